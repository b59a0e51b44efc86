/* machine_memory.c: devices that hold more than this machine has: who touches it is told, before
 * the system ends the process and says nothing. /proc/meminfo is a file of the test's own, in a
 * mount namespace, where the system allows that.
 */
#define _GNU_SOURCE // unshare
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "files.h"
#include "heard.h"

enum { MIB = 1 << 20 };
static char meminfo[PATH_BYTES];

static void set_available(int mib)
{
    char text[128];
    snprintf(text, sizeof text, "MemTotal: 99999999 kB\nMemAvailable: %d kB\n", mib * 1024);
    write_bytes(meminfo, text, strlen(text));
}

// Exit status 77: this system does not allow it.
static void own_meminfo(void)
{
    snprintf(meminfo, sizeof meminfo, "%s", in_folder(own_folder, "meminfo"));
    set_available(1024);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        mount(meminfo, "/proc/meminfo", NULL, MS_BIND, NULL) != 0)
        _exit(77);
}

static char *touched(size_t mib)
{
    char *x;
    need_cuda(cudaMalloc((void **)&x, mib * MIB));
    need_cuda(kernel_touch(x, mib * MIB, 1, NULL));
    return x;
}

static void touches_too_much(void)
{
    own_meminfo();
    set_available(256 + 50); // 256 are everybody's
    touched(40);
    touched(200);
}

// What has memory already needs no more, however little is left.
static void touches_the_same_again(void)
{
    own_meminfo();
    char *x = touched(100);
    set_available(256 + 2);
    for (int i = 0; i < 5; i++) need_cuda(kernel_touch(x, 100ul * MIB, 1, NULL));
    need_cuda(cudaFree(x));
}

// A control group of which 90 MiB are used, 20 of them pages of files, and so 30 are left; as both
// versions have it.
static void touches_more_than_its_group_has(void)
{
    static const char *const files[][2] = {
        {"memory.max", "104857600\n"},
        {"memory.current", "94371840\n"},
        {"memory.stat", "anon 1\nfile 2\ninactive_file 20971520\nactive_file 0\n"},
        {"memory/memory.limit_in_bytes", "104857600\n"},
        {"memory/memory.usage_in_bytes", "94371840\n"},
        {"memory/memory.stat", "cache 1\ninactive_file 20971520\nactive_file 0\n"}};
    own_meminfo();
    mkdir(in_folder(own_folder, "memory"), 0700);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        write_bytes(in_folder(own_folder, files[i][0]), files[i][1], strlen(files[i][1]));
    if (mount(own_folder, "/sys/fs/cgroup", NULL, MS_BIND, NULL) != 0) _exit(77);
    touched(40);
}

static void runs_dry(void)
{
    setenv("SIMGPU_DRY", "1", 1);
    own_meminfo();
    set_available(1);
    need_cuda(cudaFree(touched(2000)));
}

static const char *run_it(void (*fn)(void), int *status)
{
    const char *text = stderr_of(fn, status);
    if (WIFEXITED(*status) && WEXITSTATUS(*status) == 77) skip();
    return text;
}

TEST_BETWEEN(test_says_it_before_the_machine_is_full, own_folder_begin, own_folder_end)
{
    int status;
    const char *text = run_it(touches_too_much, &status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != SIMGPU_FATAL_EXIT)
        fail_msg("status %#x: %s", status, text);
    static const char *const words[] = {"does not have enough memory",
                                        "machine_memory.c:",
                                        "200 MiB",
                                        "306 MiB",
                                        "SIMGPU_MEMORY",
                                        "SIMGPU_DRY=1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i])) fail_msg("no \"%s\" in: %s", words[i], text);
}

TEST_BETWEEN(test_the_limit_of_a_control_group, own_folder_begin, own_folder_end)
{
    int status;
    const char *text = run_it(touches_more_than_its_group_has, &status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != SIMGPU_FATAL_EXIT ||
        !strstr(text, "has 30 MiB left"))
        fail_msg("status %#x: %s", status, text);
}

TEST_BETWEEN(test_what_is_there_may_be_used, own_folder_begin, own_folder_end)
{
    int status;
    const char *text = run_it(touches_the_same_again, &status);
    if (status != 0 || text[0]) fail_msg("status %#x: %s", status, text);
    text = run_it(runs_dry, &status);
    if (status != 0 || text[0]) fail_msg("status %#x: %s", status, text);
}

SUITE_MAIN("simgpu/machine_memory")
