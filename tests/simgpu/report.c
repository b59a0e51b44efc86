/* report.c: what a report looks like, what a process says of itself, faults that are not simgpu's.
 * */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heard.h"

static Heard *heard;

// Runs fn in a process of its own and returns what it wrote to stderr; *status is waitpid's.
static char *stderr_of(void (*fn)(void), int *status)
{
    static char text[16384];
    int ends[2];
    size_t used = 0;
    ssize_t n;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(20);
        signal(SIGSEGV, SIG_DFL); // cmocka has one of its own
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(ends[1]);
    while ((n = read(ends[0], text + used, sizeof text - 1 - used)) > 0) used += (size_t)n;
    text[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, status, 0), pid);
    return text;
}

static void free_twice(void)
{
    void *p;
    cudaSetDevice(3);
    if (cudaMalloc(&p, 5) || cudaFree(p)) _exit(1);
    _exit(cudaFree(p) == cudaErrorInvalidValue ? 0 : 1);
}
static void test_every_line_has_its_head(void **state)
{
    int status;
    char *text = stderr_of(free_twice, &status);
    assert_int_equal(status, 0);
    assert_ptr_equal(strstr(text, "simgpu: device 3: device memory was freed twice\n"), text);
    int lines = 0;
    for (char *line = text; *line; lines++) {
        assert_int_equal(strncmp(line, "simgpu: ", 8), 0);
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
    }
    assert_true(lines >= 4);
}

// The rank is in front once there is a communicator.
static void says_the_rank(const Rank *r, void *arg)
{
    char head[64], line[64];
    hear(heard + r->rank);
    check(cudaFree(&head) == cudaErrorInvalidValue, "the stack was freed");
    snprintf(head, sizeof head, "simgpu: rank %d, device %d: ", r->rank, r->device);
    snprintf(line, sizeof line, "\nsimgpu: rank %d |   ", r->rank);
    check(strncmp(heard[r->rank].text, head, strlen(head)) == 0, "it says %s", heard[r->rank].text);
    check(strstr(heard[r->rank].text, line) != NULL, "it says %s", heard[r->rank].text);
}
static void test_says_the_rank(void **state)
{
    run_ranks(3, says_the_rank, NULL);
}

static void touch_device_memory(void)
{
    volatile int *p;
    if (cudaMalloc((void **)&p, 40)) _exit(1);
    p[3] = 1;
}
static void test_a_fatal_report_ends_the_process(void **state)
{
    int status;
    char *text = stderr_of(touch_device_memory, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIMGPU_FATAL_EXIT);
    assert_non_null(strstr(text, "host code touches device memory"));
    assert_non_null(strstr(text, "byte 12 of the 40 bytes allocated at simgpu/report.c:"));
    assert_non_null(strstr(text, "(touch_device_memory)"));
}

// Faults elsewhere stay the program's: its own handler runs, or the system's default.
static void crash(void)
{
    void *p;
    int *volatile nowhere = (int *)8;
    if (cudaMalloc(&p, 40)) _exit(1);
    *nowhere = 1;
}
static void on_fault(int number)
{
    _exit(number == SIGSEGV ? 33 : 1);
}
static void crash_with_a_handler(void)
{
    signal(SIGSEGV, on_fault);
    crash();
}
static void test_other_faults_are_passed_on(void **state)
{
    int status;
    char *text = stderr_of(crash, &status);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_string_equal(text, "");
    stderr_of(crash_with_a_handler, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 33);
}

// A setting that makes no sense is told, and the default is used.
static void bad_settings(void)
{
    int count;
    setenv("SIMGPU_DEVICES", "many", 1);
    cudaGetDeviceCount(&count);
    _exit(0);
}
static void test_bad_settings_are_told(void **state)
{
    int status;
    char *text = stderr_of(bad_settings, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIMGPU_FATAL_EXIT);
    assert_non_null(strstr(text, "SIMGPU_DEVICES is \"many\": must be a number from 1 to 64\n"));
}

static void tells_its_activity(const Rank *r, void *arg)
{
    char text[512], *p;
    need_cuda(cudaMalloc((void **)&p, 8));
    need_cuda(kernel_touch(p, 8, 0, r->stream));
    gpulog_activity(text, sizeof text);
    check(strstr(text, "last did kernel_touch at simgpu/report.c:") == text, "it says %s", text);
    check(strstr(text, "(tells_its_activity)") != NULL, "it says %s", text);
}
static void test_tells_its_activity(void **state)
{
    run_ranks(1, tells_its_activity, NULL);
}

static void takes_the_hook_away(const Rank *r, void *arg)
{
    char host;
    hear(heard);
    simgpu_on_report(NULL, NULL);
    check(cudaFree(&host) == cudaErrorInvalidValue, "the stack was freed");
    check(heard->count == 0, "the hook ran");
}
static void test_takes_the_hook_away(void **state)
{
    run_ranks(1, takes_the_hook_away, NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_line_has_its_head),
        cmocka_unit_test(test_says_the_rank),
        cmocka_unit_test(test_a_fatal_report_ends_the_process),
        cmocka_unit_test(test_other_faults_are_passed_on),
        cmocka_unit_test(test_bad_settings_are_told),
        cmocka_unit_test(test_tells_its_activity),
        cmocka_unit_test(test_takes_the_hook_away),
    };
    heard = shared_alloc(8 * sizeof *heard);
    return suite_main(argc, argv, "simgpu/report", tests, sizeof tests / sizeof tests[0]);
}
