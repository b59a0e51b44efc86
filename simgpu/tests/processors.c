/* processors.c: how many processors a rank may use: of those that it may run on, and of the time
 * that control groups grant, with folders as Linux, Docker and Kubernetes have them; and that this
 * is how many threads a process has by default.
 */
#define _GNU_SOURCE // sched_setaffinity
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/threads.h"
#include "files.h"
#include "harness.h"
#include "simgpu.h"

// Writes the file of that path below the folder, and the folders that it is in.
static void put(const char *path, const char *text)
{
    char whole[PATH_BYTES];
    snprintf(whole, sizeof whole, "%s", in_folder(own_folder, path));
    for (char *at = whole + strlen(own_folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    write_bytes(whole, text, strlen(text));
}

static void expect_quota(size_t want, const char *groups)
{
    char file[PATH_BYTES];
    put("groups", groups);
    snprintf(file, sizeof file, "%s", in_folder(own_folder, "groups"));
    size_t got = sim_quota(file, own_folder);
    if (got != want) fail_msg("%zu processors, want %zu, with %s", got, want, groups);
}

TEST_BETWEEN(test_version_2, own_folder_begin, own_folder_end)
{
    expect_quota(0, "0::/a/b\n"); // no such folder
    put("a/b/cpu.max", "max 100000\n");
    expect_quota(0, "0::/a/b\n");
    put("a/b/cpu.max", "250000 100000\n"); // rounded up
    expect_quota(3, "0::/a/b\n");
    put("a/cpu.max", "200000 100000\n"); // what is above holds too
    expect_quota(2, "0::/a/b\n");
    expect_quota(2, "0::/a/c\n");
    put("cpu.max", "100000 100000\n"); // a container: the folder itself is the group
    expect_quota(1, "0::/\n");
    expect_quota(1, "0::/not/here\n");
    put("cpu.max", "5000 100000\n"); // a twentieth
    expect_quota(1, "0::/\n");
}

TEST_BETWEEN(test_version_1, own_folder_begin, own_folder_end)
{
    static const char groups[] = "12:pids:/pod/x\n4:cpu,cpuacct:/pod/x\n1:name=systemd:/pod/x\n";
    expect_quota(0, groups);
    put("cpu,cpuacct/pod/x/cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct/pod/x/cpu.cfs_period_us", "100000\n");
    expect_quota(0, groups);
    put("cpu,cpuacct/pod/x/cpu.cfs_quota_us", "400000\n");
    expect_quota(4, groups);
    put("cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
    put("cpu,cpuacct/cpu.cfs_period_us", "50000\n");
    expect_quota(3, groups);
    put("cpuset/cpu.cfs_quota_us", "100000\n"); // of another controller
    put("cpuset/cpu.cfs_period_us", "100000\n");
    expect_quota(0, "3:cpuset:/\n");
}

TEST_BETWEEN(test_no_sense, own_folder_begin, own_folder_end)
{
    assert_int_equal(sim_quota("/no/such/file", own_folder), 0);
    expect_quota(0, "");
    expect_quota(0, "what\n:\n::\n");
    put("cpu.max", "");
    expect_quota(0, "0::/\n");
    put("cpu.max", "100000\n");
    expect_quota(0, "0::/\n");
    put("cpu.max", "-5 100000\n");
    expect_quota(0, "0::/\n");
    put("cpu.max", "100000 0\n");
    expect_quota(0, "0::/\n");
}

// From here on this process may run on the first n of the processors alone.
static void run_on(int n, const cpu_set_t *all)
{
    cpu_set_t some;
    CPU_ZERO(&some);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&some) < n; i++)
        if (CPU_ISSET(i, all)) CPU_SET(i, &some);
    if (sched_setaffinity(0, sizeof some, &some)) _exit(255);
}

static int share_on(int n, const cpu_set_t *all, size_t ranks, bool bound)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_on(n, all);
        _exit((int)sim_share(ranks, bound));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int at_least_one(size_t n)
{
    return n > 0 ? (int)n : 1;
}

TEST(test_shares)
{
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    size_t n = (size_t)CPU_COUNT(&all), quota = sim_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 || n > 200 || n != sim_processors()) skip(); // this machine grants a part alone
    for (size_t ranks = 1; ranks <= 2 * n; ranks++)
        for (int bound = 0; bound < 2; bound++) {
            assert_int_equal(share_on((int)n, &all, ranks, bound), at_least_one(n / ranks));
            assert_int_equal(share_on(1, &all, ranks, bound), 1);
        }
    // A launcher that has bound each of two ranks to half of the processors; and half for both.
    if (n < 2) return;
    assert_int_equal(share_on((int)n / 2, &all, 2, true), n / 2);
    assert_int_equal(share_on((int)n / 2, &all, 2, false), at_least_one(n / 2 / 2));
}

static void pass(void *arg, size_t begin, size_t end)
{
}

// How many threads work for many starts, without SIMGPU_THREADS, in a process of its own, which has
// read no settings yet and in which a launcher has said how many ranks the host has.
static int workers_on(int n, const cpu_set_t *all, const char *name, const char *ranks)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        SimTids before, after;
        run_on(n, all);
        unsetenv("SIMGPU_THREADS");
        setenv(name, ranks, 1);
        sim_tids(&before);
        simgpu_parallel(4096, 1, pass, NULL);
        sim_tids(&after);
        _exit(after.n - before.n);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(test_threads_by_default)
{
    static const struct {
        const char *name, *ranks;
        bool bound;
    } rows[] = {{"LOCAL_WORLD_SIZE", "1", false},
                {"LOCAL_WORLD_SIZE", "2", false},
                {"OMPI_COMM_WORLD_LOCAL_SIZE", "1", true},
                {"SLURM_NTASKS_PER_NODE", "2", true}};
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int most = CPU_COUNT(&all);
    if (most > 200) skip();
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) { // on all, and on half of them
        const int row = (int)(i / 2), n = i % 2 == 0 ? most : (most + 1) / 2;
        int want = share_on(n, &all, (size_t)atoi(rows[row].ranks), rows[row].bound) - 1;
#if defined(__SANITIZE_THREAD__)
        want += want > 0; // ThreadSanitizer starts one of its own with the first
#endif
        assert_int_equal(workers_on(n, &all, rows[row].name, rows[row].ranks), want);
    }
}

SUITE_MAIN("processors")
