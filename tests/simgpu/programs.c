/* Programs that know nothing of the kit (programs/): each is compiled as a user of simgpu would,
 * with the flags that simgpu.pc has, and run. They check their own results. Settings of simgpu that
 * make no sense end such a program with one line.
 */
#define _GNU_SOURCE // RTLD_DEFAULT
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { PATH = 1024, OUTPUT = 1 << 16 };

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZE "-fsanitize=address,undefined "
#elif defined(__SANITIZE_THREAD__)
#define SANITIZE "-fsanitize=thread "
#else
#define SANITIZE ""
#endif

static char build[PATH];   // the build tree that this suite is part of
static char sources[PATH]; // the folder of the programs
static char scratch[PATH]; // what is compiled goes here
static char output[OUTPUT];

// Runs a shell command for a minute at most; returns its exit status, and what it printed in
// output.
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    char command[8 * PATH], line[9 * PATH];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(line, sizeof line, "exec 2>&1 </dev/null; timeout -k 5 60 env %s", command);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The library beneath simgpu's cuBLAS. This suite is linked with the same one, since it calls
// cuBLAS.
static const char *blas_flag(void)
{
    assert_non_null(cublasGetStatusString(CUBLAS_STATUS_SUCCESS));
    return dlsym(RTLD_DEFAULT, "dnnl_sgemm") ? "-ldnnl" : "-lopenblas";
}

static void compile(const char *compiler, const char *name, const char *ending)
{
    int status =
        run("%s -g -Wall -Wextra -Werror %s'%s/%s%s' -I'%s/../../../simgpu/include' "
            "-L'%s/lib' -lsimgpu %s -ldw -lgomp -lm -lpthread -o '%s/%s'",
            compiler, SANITIZE, sources, name, ending, sources, build, blas_flag(), scratch, name);
    if (status) fail_msg("%s%s does not compile: %s", name, ending, output);
}

static void expect(int status, int want, const char *words)
{
    if (status != want || !strstr(output, words))
        fail_msg("exit status %d, want %d, and \"%s\" in what was printed:\n%s", status, want,
                 words, output);
}

static void run_program(const char *settings, const char *name, const char *words)
{
    expect(run("%s '%s/%s'", settings, scratch, name), 0, words);
}

static void test_one_thread(void **state)
{
    compile("cc", "one_thread", ".c");
    run_program("", "one_thread", "8 devices, 0 wrong\n");
    run_program("SIMGPU_DEVICES=1", "one_thread", "1 devices, 0 wrong\n");
    run_program("SIMGPU_DEVICES=3", "one_thread", "3 devices, 0 wrong\n");
}

static void test_processes(void **state)
{
    compile("cc", "processes", ".c");
    run_program("", "processes", "5 processes, 0 wrong\n");
}

static void test_threads(void **state)
{
    compile("cc", "threads", ".c");
    run_program("", "threads", "8 threads, 0 wrong\n");
    run_program("SIMGPU_DEVICES=3", "threads", "3 threads, 0 wrong\n");
}

static void test_cplusplus(void **state)
{
    if (run("sh -c 'command -v c++'") != 0) skip(); // the kit itself needs no C++ compiler
    compile("c++", "typed", ".cc");
    run_program("", "typed", "2 devices, 0 wrong\n");
}

static void test_bad_settings(void **state)
{
    static const char *const bad[][2] = {
        {"SIMGPU_DEVICES=0", "SIMGPU_DEVICES is \"0\": must be a number from 1 to 64"},
        {"SIMGPU_DEVICES=65", "SIMGPU_DEVICES is \"65\": "},
        {"SIMGPU_DEVICES=eight", "SIMGPU_DEVICES is \"eight\": "},
        {"SIMGPU_DEVICES=-1", "SIMGPU_DEVICES is \"-1\": "},
        {"SIMGPU_MEMORY=80X", "SIMGPU_MEMORY is \"80X\": "},
        {"SIMGPU_MEMORY=1", "SIMGPU_MEMORY is \"1\": "},
        {"SIMGPU_MEMORY=99999999T", "SIMGPU_MEMORY is \"99999999T\": "},
        {"SIMGPU_POISON=2", "SIMGPU_POISON is \"2\": must be a number from 0 to 1"},
        {"SIMGPU_THREADS=0", "SIMGPU_THREADS is \"0\": "},
        {"SIMGPU_LOG=yes", "SIMGPU_LOG is \"yes\": "},
    };
    compile("cc", "one_thread", ".c");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int status = run("%s '%s/one_thread'", bad[i][0], scratch);
        char *end = strchr(output, '\n');
        expect(status, 86, bad[i][1]);
        if (!end || end[1]) fail_msg("%s: want one line, not:\n%s", bad[i][0], output);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_thread),   cmocka_unit_test(test_processes),
    cmocka_unit_test(test_threads),      cmocka_unit_test(test_cplusplus),
    cmocka_unit_test(test_bad_settings),
};

// build/tests/simgpu/programs knows build/. The sources are found from the root of the kit, where
// make runs, or beside a build tree that lies there.
static bool find_places(void)
{
    char self[PATH] = "", beside[2 * PATH];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return false;
    snprintf(build, sizeof build, "%s", dirname(dirname(dirname(self))));
    snprintf(beside, sizeof beside, "%s/../tests/simgpu/programs", build);
    if (!realpath("tests/simgpu/programs", sources) && !realpath(beside, sources)) return false;
    const char *folder = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%.900s/simgpu-programs-XXXXXX",
             folder && *folder ? folder : P_tmpdir);
    return mkdtemp(scratch) != NULL;
}

int main(int argc, char **argv)
{
    char command[2 * PATH];
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0); // as tests/support/sanitize.c has it, and why
    if (!find_places()) {
        fprintf(stderr, "tests/simgpu/programs is not here: run this from the kit's folder\n");
        return 2;
    }
    int status = suite_main(argc, argv, "simgpu/programs", tests, sizeof tests / sizeof tests[0]);
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command) == 0 ? status : 2;
}
