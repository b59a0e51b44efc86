/* Programs that know nothing of the kit (programs/): each is compiled as a user of simgpu would,
 * with the flags that simgpu.pc has, and run. They check their own results. Settings of simgpu that
 * make no sense end such a program with one line.
 */
#define _GNU_SOURCE // RTLD_DEFAULT
#include <cublas_v2.h>
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { PATH = PATH_MAX, OUTPUT = 1 << 16 };

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

// The library beneath simgpu's cuBLAS. This suite is linked with the same one, since it
// names a product.
static const char *blas_flag(void)
{
    void *volatile product = (void *)cublasSgemm;
    assert_non_null(product);
    return dlsym(RTLD_DEFAULT, "dnnl_sgemm") ? "-ldnnl" : "-lopenblas";
}

static void compile_with(const char *compiler, const char *name, const char *ending,
                         const char *more)
{
    int status = run("%s -g -Wall -Wextra -Werror %s'%s/%s%s' -I'%s/../../../simgpu/include' "
                     "-L'%s/lib' %s -lsimgpu %s -ldw -lgomp -lm -ldl -lrt -lpthread -o '%s/%s'",
                     compiler, SANITIZE, sources, name, ending, sources, build, more, blas_flag(),
                     scratch, name);
    if (status) fail_msg("%s%s does not compile: %s", name, ending, output);
}

static void compile(const char *compiler, const char *name, const char *ending)
{
    compile_with(compiler, name, ending, "");
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
    if (strstr(output, "simgpu:")) fail_msg("%s %s reported: %s", settings, name, output);
}

static bool have(const char *compiler)
{
    return run("sh -c 'command -v %s'", compiler) == 0;
}

TEST(test_one_thread)
{
    compile("cc", "one_thread", ".c");
    run_program("", "one_thread", "8 devices, 0 wrong\n");
    run_program("SIMGPU_DEVICES=1", "one_thread", "1 devices, 0 wrong\n");
    run_program("SIMGPU_DEVICES=3", "one_thread", "3 devices, 0 wrong\n");
}

TEST(test_threads)
{
    compile("cc", "threads", ".c");
    run_program("", "threads", "8 threads, 0 wrong\n");
    run_program("SIMGPU_DEVICES=3", "threads", "3 threads, 0 wrong\n");
}

TEST(test_cplusplus)
{
    if (!have("c++")) skip(); // the kit itself needs no C++ compiler
    compile("c++", "typed", ".cc");
    run_program("", "typed", "2 devices, 0 wrong\n");
}

// ---- Programs in the style of samples: how many devices or ranks, and which checks ----

typedef struct Program {
    const char *name, *ending;
    bool ranks; // a process each, as many as the first argument says; else all devices there are
} Program;

static const Program programs[] = {
    {"grid", ".c", true},        {"regression", ".c", true}, {"registered", ".c", false},
    {"pipeline", ".c", false},   {"peers", ".c", false},     {"products", ".c", false},
    {"pitched", ".c", false},    {"volumes", ".c", false},   {"unified", ".cc", false},
    {"query", ".cc", false},     {"table", ".cc", false},    {"halves", ".cc", false},
    {"libraries", ".cc", false}, {"own_calls", ".c", false}, {"older", ".cc", false},
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

static const char *compiler_of(const Program *p)
{
    return p->ending[2] ? "c++" : "cc";
}

static void run_on(const Program *p, int n, const char *settings)
{
    char words[64], all[PATH];
    snprintf(words, sizeof words, "%d %s, 0 wrong\n", n, p->ranks ? "ranks" : "devices");
    snprintf(all, sizeof all, "%s SIMGPU_DEVICES=%d", settings, n);
    if (!p->ranks) {
        run_program(all, p->name, words);
        return;
    }
    expect(run("%s '%s/%s' %d '%s/id'", settings, scratch, p->name, n, scratch), 0, words);
    if (strstr(output, "simgpu:")) fail_msg("%s on %d ranks reported: %s", p->name, n, output);
}

TEST(test_samples)
{
    static const int worlds[] = {1, 2, 3, 4, 8};
    bool cplusplus = have("c++");
    for (int i = 0; i < PROGRAMS; i++) {
        const Program *p = &programs[i];
        if (p->ending[2] && !cplusplus) continue; // the kit itself needs no C++ compiler
        compile(compiler_of(p), p->name, p->ending);
        for (int w = 0; w < 5; w++) run_on(p, worlds[w], "SIMGPU_CHECK=full");
        run_on(p, 3, "SIMGPU_CHECK=fast");
        run_on(p, 3, "SIMGPU_CHECK=off");
        // No limit on files reaches what simgpu's processes share.
        run_on(p, 3, "sh -c 'ulimit -f 100 && exec env \"$@\"' sh");
    }
}

// The libraries of MPI come without sanitizers and with leaks of their own.
TEST(test_mpi)
{
    if (!have("mpicc") || !have("mpirun") || SANITIZE[0]) skip();
    compile("mpicc", "by_mpi", ".c");
    for (int n = 1; n <= 4; n += 3) {
        char words[64];
        snprintf(words, sizeof words, "%d ranks, 0 wrong\n", n);
        expect(run("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
                   "--oversubscribe -n %d '%s/by_mpi'",
                   n, scratch),
               0, words);
        if (strstr(output, "simgpu:")) fail_msg("by_mpi reported: %s", output);
    }
}

// A thread that a launcher's library has for itself is nobody's hope; any other may be, whoever
// started it. And of one thread that makes an id's ranks one by one nothing else is to be hoped.
TEST(test_threads_of_the_launcher)
{
    static const struct {
        const char *how;
        int status;
        const char *words;
    } rows[] = {
        {"callback", 0, "0 wrong\n"},
        {"own", 0, "0 wrong\n"},
        {"itself", 86, "This process has made the id and given it to no other process"},
        {"library", 86, "The rank it waits for belongs to this same thread"},
        {"world", 86, "exited with status 0"},
    };
    char more[3 * PATH];
    assert_int_equal(
        run("cc -shared -fPIC -DLIBRARY '%s/launcher.c' -o '%s/libmpi-like.so' -lpthread", sources,
            scratch),
        0);
    snprintf(more, sizeof more, "-L'%s' -lmpi-like -Wl,-rpath,'%s'", scratch, scratch);
    compile_with("cc", "launcher", ".c", more);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (i >= 3 && SANITIZE[0]) continue; // the sanitizer starts all threads
        expect(run("SIMGPU_MACHINE=none '%s/launcher' %s", scratch, rows[i].how), rows[i].status,
               rows[i].words);
    }
}

// What compiles here compiles against NVIDIA's headers, too.
TEST(test_against_the_toolkit)
{
    char includes[PATH];
    if (run("sh '%s/../../../grader/find_cuda.sh' '%s/cuda.mk'", sources, scratch) != 0) {
        print_message("no toolkit: %s\n", output);
        skip();
    }
    run("sed -n 's/^CUDA_INCLUDES := *//p' '%s/cuda.mk'", scratch);
    output[strcspn(output, "\n")] = '\0';
    snprintf(includes, sizeof includes, "%.1000s", output);
    bool cplusplus = have("c++");
    for (int i = 0; i < PROGRAMS; i++) {
        const Program *p = &programs[i];
        if ((p->ending[2] && !cplusplus) || strcmp(p->name, "older") == 0) continue; // for CUDA 12
        int status = run("%s -fsyntax-only -Wall -Werror %s '%s/%s%s'", compiler_of(p), includes,
                         sources, p->name, p->ending);
        if (status) fail_msg("%s against NVIDIA's headers: %s", p->name, output);
    }
}

TEST(test_bad_settings)
{
    static const char *const bad[][2] = {
        {"SIMGPU_DEVICES=0", "SIMGPU_DEVICES is \"0\": must be a number from 1 to 256"},
        {"SIMGPU_DEVICES=257", "SIMGPU_DEVICES is \"257\": "},
        {"SIMGPU_DEVICES=eight", "SIMGPU_DEVICES is \"eight\": "},
        {"SIMGPU_DEVICES=-1", "SIMGPU_DEVICES is \"-1\": "},
        {"SIMGPU_MEMORY=80X", "SIMGPU_MEMORY is \"80X\": "},
        {"SIMGPU_MEMORY=1", "SIMGPU_MEMORY is \"1\": "},
        {"SIMGPU_MEMORY=99999999T", "SIMGPU_MEMORY is \"99999999T\": "},
        {"SIMGPU_DRY=yes", "SIMGPU_DRY is \"yes\": must be a number from 0 to 1"},
        {"SIMGPU_POISON=2", "SIMGPU_POISON is \"2\": must be a number from 0 to 1"},
        {"SIMGPU_THREADS=0", "SIMGPU_THREADS is \"0\": "},
        {"SIMGPU_CORES=0", "SIMGPU_CORES is \"0\": must be a number from 1 to 4096"},
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

// As the CUDA programming guide has it: only the devices of the list, in its order, up to the first
// entry that is none.
TEST(test_visible_devices)
{
    static const char *const rows[][2] = {
        {"-u CUDA_VISIBLE_DEVICES", "8: 1 2 3 4 5 6 7 8, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=3,1", "2: 4 2, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=0,2,-1,1", "2: 1 3, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=1,8,2", "1: 2, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=1,two,3", "1: 2, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=6 SIMGPU_DEVICES=7", "1: 7, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=", "none: no CUDA-capable device is detected\n"},
        {"CUDA_VISIBLE_DEVICES=-1", "none: no CUDA-capable device is detected\n"},
        {"CUDA_VISIBLE_DEVICES=GPU-73696d67-7075-3034-0000-000000000000,1", "2: 5 2, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=GPU-73696d67-7075-3031", "1: 2, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=2,1,", "2: 3 2, 0 wrong\n"},
        {"CUDA_VISIBLE_DEVICES=2,1,-1,2", "2: 3 2, 0 wrong\n"}, // what follows is not read
        {"CUDA_VISIBLE_DEVICES=1,1e0", "1: 2, 0 wrong\n"},
    };
    compile("cc", "visible", ".c");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status = run("%s '%s/visible'", rows[i][0], scratch);
        if (strncmp(output, rows[i][1], strlen(rows[i][1])) != 0 || status)
            fail_msg("%s: status %d, want \"%s\", not:\n%s", rows[i][0], status, rows[i][1],
                     output);
    }
}

// Of a list that names a device twice no device is left; of one with an entry that is no device,
// what is before it. Where a program then wants a device that it does not see, the report names the
// list.
TEST(test_wrong_lists_of_devices)
{
    static const struct {
        const char *list, *rank, *result, *why; // NULL: it is right
    } rows[] = {
        {"2,2", "0", "rank 0: no CUDA-capable device is detected\n", "names device 2 twice"},
        {"0,1,0,3", "0", "rank 0: no CUDA-capable device is detected\n", "names device 0 twice"},
        {"1,GPU-73696d67-7075-3031", "0", "rank 0: no CUDA-", "names device 1 twice"},
        {"9", "0", "rank 0: no CUDA-", "its entry \"9\" is none of the 8 devices"},
        {"GPU-73696d67", "0", "rank 0: no CUDA-", "its entry \"GPU-73696d67\" is none of"},
        {"MIG-73696d67-7075-3031,1", "0", "rank 0: no CUDA-", "\"MIG-73696d67-7075-3031\" is none"},
        {"0,8,1", "1", "rank 1: invalid device ordinal\n", "its entry \"8\" is none of the 8"},
        {"0,two", "1", "rank 1: invalid device ordinal\n", "its entry \"two\" is none of the 8"},
        {"0 1", "0", "rank 0: no CUDA-", "its entry \"0 1\" is none of the 8 devices"},
        {"0", "1", "rank 1: invalid device ordinal\n", ""},
        {"", "0", "rank 0: no CUDA-capable device is detected\n", NULL},
        {"-1", "0", "rank 0: no CUDA-capable device is detected\n", NULL},
        {"2", "0", "rank 0: 4\n", NULL},
        {"2,1", "1", "rank 1: 8\n", NULL},
        {"0,1,8", "1", "rank 1: 8\n", NULL},
        {"0,1,-1", "1", "rank 1: 8\n", NULL},
    };
    compile("cc", "chosen", ".c");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status =
            run("'CUDA_VISIBLE_DEVICES=%s' '%s/chosen' %s", rows[i].list, scratch, rows[i].rank);
        bool works = strstr(rows[i].result, ": no") == NULL && !strstr(rows[i].result, ": in");
        expect(status, !works, rows[i].result);
        if (rows[i].why ? !strstr(output, rows[i].why) || !strstr(output, "chosen.c:14 (main)")
                        : strstr(output, "simgpu:") != NULL)
            fail_msg("CUDA_VISIBLE_DEVICES=%s: want %s in a report, not:\n%s", rows[i].list,
                     rows[i].why ? rows[i].why : "nothing", output);
    }
}

// What the machine does not give is said in one line, and nothing hangs.
TEST(test_limits_of_the_machine)
{
    static const char *const rows[][3] = {
        {"ulimit -n 7", "one_thread", "no file descriptor is left (ulimit -n is 7)"},
        {"ulimit -f 1000", "no_segments", "simgpu keeps a communicator in one of"},
        {"ulimit -f 1000", "no_segments' '1",
         "simgpu keeps a device's memory (SIMGPU_MEMORY) in one of"},
    };
    compile("cc", "one_thread", ".c");
    compile("cc", "no_segments", ".c");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status =
            run("sh -c \"unset SIMGPU_REPORT; %s; '%s/%s'\"", rows[i][0], scratch, rows[i][1]);
        char *end = strchr(output, '\n');
        expect(status, 86, rows[i][2]);
        if (!end || end[1]) fail_msg("%s: want one line, not:\n%s", rows[i][0], output);
    }
}

// Ranks that cannot open what the others have say so, and none says that another is dead.
TEST(test_ranks_without_descriptors)
{
    compile("cc", "grid", ".c");
    for (int files = 8; files <= 24; files += 4) {
        int status = run("sh -c \"ulimit -n %d; '%s/grid' 4 '%s/id'\"", files, scratch, scratch);
        if (status == 0) continue;
        if (!strstr(output, "(ulimit -n is ") && !strstr(output, "Too many open files"))
            fail_msg("ulimit -n %d: nobody names the limit:\n%s", files, output);
        if (strstr(output, "silently")) fail_msg("ulimit -n %d:\n%s", files, output);
    }
}

// A file of reports that cannot be written is noticed before the first report, in one line.
TEST(test_unwritable_reports)
{
    static const char *const paths[] = {"/nowhere/reports", "/dev", "/proc/version/x"};
    compile("cc", "visible", ".c");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char words[PATH];
        snprintf(words, sizeof words, "simgpu: SIMGPU_REPORT: %s cannot be written: ", paths[i]);
        expect(run("SIMGPU_DEVICES=1 SIMGPU_REPORT=%s '%s/visible'", paths[i], scratch), 0, words);
        char *first = strstr(output, "simgpu:");
        if (strstr(first + 1, "simgpu:")) fail_msg("more than one line:\n%s", output);
        if (!strstr(output, "1: 1, 0 wrong\n")) fail_msg("%s", output);
    }
    // One that can be written is not made before there is a report.
    expect(run("SIMGPU_REPORT='%s/reports' '%s/visible'", scratch, scratch), 0, "0 wrong\n");
    if (strstr(output, "simgpu:") || run("test -e '%s/reports'", scratch) == 0)
        fail_msg("%s/reports is there, or:\n%s", scratch, output);
}

// build/simgpu/tests/programs knows build/. The sources are found from the root of the kit, where
// make runs, or beside a build tree that lies there.
static bool find_places(void)
{
    char self[PATH] = "", beside[2 * PATH];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return false;
    snprintf(build, sizeof build, "%s", dirname(dirname(dirname(self))));
    snprintf(beside, sizeof beside, "%s/../simgpu/tests/programs", build);
    if (!realpath("simgpu/tests/programs", sources) && !realpath(beside, sources)) return false;
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
        fprintf(stderr, "simgpu/tests/programs is not here: run this from the kit's folder\n");
        return 2;
    }
    int status = suite_main(argc, argv, "simgpu/programs");
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command) == 0 ? status : 2;
}
