/* machines.c: the files that describe a machine: what is read, and how a wrong one is refused, in
 * one line with file, line and key.
 */
#include "machine/machine_file.h"
#include "round_machine.h"

#define BYTES 8192

static char good[BYTES]; // the text of round.machine

static void read_good(void)
{
    needs_kit(ROUND);
    FILE *file = fopen(ROUND, "r");
    assert_non_null(file);
    good[fread(good, 1, sizeof good - 1, file)] = 0;
    fclose(file);
}

typedef struct Draft {
    SimMachine machine;
    SimFigures figures;
    SimMachineFile file;
    char error[300];
    bool read;
} Draft;

static const char *base_text(const char *name)
{
    return strcmp(name, "round") == 0 ? good : NULL;
}

static Draft *read_text(const char *text)
{
    static Draft d;
    memset(&d, 0, sizeof d);
    d.file.machine = &d.machine;
    d.file.figures = &d.figures;
    d.read = sim_machine_read(&d.file, "my.machine", text, base_text, d.error, sizeof d.error);
    return &d;
}

// The good text with the line of a key replaced.
static const char *with(const char *key, const char *line)
{
    static char text[BYTES];
    char start[64];
    snprintf(start, sizeof start, "\n%s ", key);
    const char *at = strstr(good, start);
    if (!at) fail_msg("no line %s", key);
    const char *end = strchr(at + 1, '\n');
    snprintf(text, sizeof text, "%.*s\n%s%s", (int)(at - good), good, line, end);
    return text;
}

static void refused(const char *text, const char *const *words)
{
    Draft *d = read_text(text);
    if (d->read) fail_msg("a file without \"%s\" is taken", words[0]);
    if (strchr(d->error, '\n')) fail_msg("more than a line: %s", d->error);
    for (; *words; words++)
        if (!strstr(d->error, *words)) fail_msg("no \"%s\" in: %s", *words, d->error);
}
#define REFUSED(text, ...) refused((text), (const char *const[]){"my.machine", __VA_ARGS__, NULL})

TEST(test_reads_figures)
{
    read_good();
    Draft *d = read_text(good);
    if (!d->read) fail_msg("%s", d->error);
    assert_int_equal(d->machine.gpus_per_node, 4);
    assert_true(d->machine.memory == 1 << 30);
    assert_true(d->machine.peak[SIM_F32] == 2e12 && d->figures.hbm == 1e12);
    assert_true(d->machine.host.enqueue == 500000 && d->figures.kernel == 2e6);
    assert_true(d->machine.slow_compute.num == 3 && d->machine.slow_compute.den == 2);
    assert_true(d->machine.slow_compute_nic.num == 3 && d->machine.slow_compute_nic.den == 2);
    assert_true(d->figures.fitted.eager == 0 && d->figures.fitted.most.num == 0);
    assert_true(d->machine.has_link[SIM_NIC] && d->figures.link[SIM_NIC] == 5e9);
    d = read_text(with("nvlink", "nvlink none"));
    assert_true(d->read && !d->machine.has_link[SIM_NVLINK]);
    d = read_text(with("launch", "launch 0.0000016 us # to the nearest picosecond"));
    assert_true(d->read && d->machine.host.launch == 2);
    d = read_text(with("kernel", "\tkernel\t0.0000014 us\r"));
    assert_true(d->read && d->figures.kernel == 1);
}

TEST(test_what_may_be_left_out)
{
    read_good();
    Draft *d = read_text("base round\nslow_compute_nic 5/4\neager_efficiency 0.5\n"
                         "step_doubling none\nstep_least 0.9\nstep_most 11/10\n");
    if (!d->read) fail_msg("%s", d->error);
    const SimFitted *f = &d->figures.fitted;
    assert_true(d->machine.slow_compute_nic.num == 5 && d->machine.slow_compute_nic.den == 4);
    assert_true(f->eager == 0.5 && f->doubling == 0 && f->least == 0.9 && f->most.num == 11);
    REFUSED("base round\neager_efficiency 1.5\n", "eager_efficiency", "at most 1");
    REFUSED("base round\nstep_most 9/10\n", "step_most", "a ratio from 1");
    REFUSED("base round\nstep_least 1.2\n", "step_least", "at most 1");
}

TEST(test_takes_the_rest_from_a_base)
{
    read_good();
    Draft *d = read_text("# mine\nbase round\nhbm 2 TB/s\n");
    if (!d->read) fail_msg("%s", d->error);
    assert_true(d->figures.hbm == 2e12 && d->figures.link[SIM_PCIE] == 1e10);
    REFUSED("base square\n", "line 1", "base", "square");
    REFUSED("hbm 2 TB/s\nbase round\n", "line 2", "base");
    REFUSED("base round\nbase round\n", "line 2", "base");
    REFUSED("base round\nhbm 2 TB/s\nhbm 2 TB/s\n", "line 3", "hbm", "twice", "line 2");
    REFUSED("base round\nmodel nccl\n", "missing", "nccl_generation");
    REFUSED("base round\nsms 100\n", "line 2", "sms", "gemm tiles");
}

// Each key of the file, missing, negative, doubled and of a wrong type.
TEST(test_refuses_each_key)
{
    read_good();
    char copy[BYTES], line[64], key[32], text[BYTES + 64];
    int keys = 0;
    memcpy(copy, good, sizeof copy);
    for (char *rest = NULL, *l = strtok_r(copy, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
        if (*l == '#' || sscanf(l, "%31s", key) != 1 || strcmp(key, "gpus_per_node") == 0) continue;
        keys++;
        REFUSED(with(key, "# gone"), key, "missing", "line ");
        static const char *const bad[] = {
            "-3 us",  "-1",      "fast",   "1e3 us", "3 apples", "",      "1 us 2",
            "1,5 us", "0x10 us", "nan us", "inf us", ".5 us",    "5. us", "9999999999999999 us",
            "1/0",    "1/2",     "-3/2"};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            snprintf(line, sizeof line, "%s %s", key, bad[i]);
            REFUSED(with(key, line), key, "line ", "must be");
        }
        snprintf(text, sizeof text, "%s\n%s\n", good, l);
        REFUSED(text, key, "twice");
    }
    assert_int_equal(keys, 26);
    REFUSED("base round\ngpu A B\n", "line 2", "gpu", "must be");
    REFUSED("base round\ncapability 9\n", "line 2", "capability", "9.0");
    REFUSED("base round\nbus 0\n", "line 2", "bus", "must be");
    REFUSED(with("hbm", "hbm 0 TB/s"), "hbm", "must be");
    REFUSED(with("pcie", "pcie none"), "pcie", "must be");
    REFUSED(with("hbm", "hbm -2 TB/s"), "hbm", "negative");
    REFUSED(with("hbm", "hmb 2 TB/s"), "line ", "hmb", "no key");
    REFUSED("", "missing", "gpus_per_node");
}

TEST(test_names_the_line)
{
    REFUSED("\n# here\n\nhbm two TB/s\n", "line 4", "hbm", "two TB/s", "TB/s");
    char text[1024] = "\n";
    memset(text + 1, 'x', 700);
    REFUSED(text, "line 2", "longer");
}

// Anything is taken or refused in one line, and nothing else happens.
TEST(test_survives_nonsense)
{
    read_good();
    char text[BYTES];
    size_t length = strlen(good);
    for (unsigned draw = 0; draw < 20000; draw++) {
        memcpy(text, good, length + 1);
        srand(draw);
        for (int n = 1 + rand() % 4; n > 0; n--) {
            size_t at = (size_t)rand() % length;
            switch (rand() % 3) {
            case 0: text[at] = (char)(1 + rand() % 255); break;
            case 1: text[at] = " \n#-./"[rand() % 6]; break;
            default: memmove(text + at, text + at + 1, length - at); break;
            }
        }
        Draft *d = read_text(text);
        bool said = d->error[0] && !strchr(d->error, '\n') && strstr(d->error, "machine");
        if (!d->read && !said) fail_msg("draw %u: \"%s\"", draw, d->error);
        if (!d->read) continue;
        SimPs cost = sim_cost_kernel(&(SimMachine){.peak = {1, 1, 1, 1, 1}, .figures = &d->figures},
                                     1, 1, SIM_F32);
        if (cost < 1 || d->machine.slow_compute.num < d->machine.slow_compute.den)
            fail_msg("draw %u makes no sense", draw);
    }
}

// ---- By name ----

static void unknown(const char *name, const char *const *words)
{
    char error[300] = "";
    if (sim_machine(name, error, sizeof error)) fail_msg("there is a machine %s", name);
    for (; *words; words++)
        if (!strstr(error, *words)) fail_msg("no \"%s\" in: %s", *words, error);
    assert_null(strchr(error, '\n'));
}
#define UNKNOWN(name, ...) unknown((name), (const char *const[]){__VA_ARGS__, NULL})

TEST(test_finds_machines_by_name)
{
    static const char *const wanted[] = {"a100x8", "b200x8", "h100x8",
                                         "h200x8", "laptop", "one-nic"};
    const char *const *names = sim_machine_names();
    char error[300];
    size_t n = 0;
    for (; names[n]; n++) {
        const SimMachine *m = sim_machine(names[n], error, sizeof error);
        if (!m) fail_msg("%s", error);
        assert_string_equal(m->name, names[n]);
        if (n == sizeof wanted / sizeof *wanted) fail_msg("%s is not in this list", names[n]);
        assert_string_equal(names[n], wanted[n]);
        assert_ptr_equal(m, sim_machine(names[n], error, sizeof error));
    }
    assert_int_equal(n, sizeof wanted / sizeof *wanted);
    UNKNOWN("h100x9", "h100x9", "a100x8", "one-nic", "none", "file");
    UNKNOWN("/no/such.machine", "/no/such.machine", "No such file");
    UNKNOWN("/", "machine file /");
    UNKNOWN("/dev/zero", "/dev/zero", "text");
    UNKNOWN("", "there is no machine");
}

TEST(test_finds_machines_by_file)
{
    char path[] = "/tmp/machineXXXXXX", error[300];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, "base h100x8\nhbm -1 TB/s\n", 24) == 24);
    const SimMachine *m = sim_machine(path, error, sizeof error);
    bool says = !m && strstr(error, path) && strstr(error, "line 2") && strstr(error, "hbm");
    assert_true(ftruncate(fd, 0) == 0 && pwrite(fd, "base h100x8\nhbm 1.5 TB/s\n", 25, 0) == 25);
    m = sim_machine(path, error, sizeof error);
    close(fd);
    unlink(path);
    assert_true(says);
    if (!m) fail_msg("%s", error);
    assert_string_equal(m->name, strrchr(path, '/') + 1);
    assert_true(m->figures->hbm == 1.5e12);
}

static void allocate(void)
{
    void *x;
    cudaMalloc(&x, 1);
}

// A program whose environment names no machine ends with one line.
static void ends_the_program(const char *variable, const char *value, const char *const *words)
{
    int status;
    setenv(variable, value, 1);
    const char *text = stderr_of(allocate, &status);
    unsetenv(variable);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) fail_msg("it goes on: %s", text);
    for (; *words; words++)
        if (!strstr(text, *words)) fail_msg("no \"%s\" in: %s", *words, text);
    if (strchr(text, '\n') != strrchr(text, '\n')) fail_msg("more than a line: %s", text);
}

TEST(test_ends_the_program)
{
    char path[] = "/tmp/machineXXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, "base h100x8\npcie -1 GB/s\n", 25) == 25);
    close(fd);
    ends_the_program("SIMGPU_MACHINE", "h100x9",
                     (const char *const[]){"SIMGPU_MACHINE", "h100x9", "a100x8", NULL});
    ends_the_program(
        "SIMGPU_MACHINE", path,
        (const char *const[]){"SIMGPU_MACHINE", path, "line 2", "pcie", "negative", NULL});
    unlink(path);
    static const char *const slow[] = {"3", "3:10", ":10%", "-1:10%", "3:10%x", "3:%", "x"};
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++)
        ends_the_program("SIMGPU_SLOW", slow[i],
                         (const char *const[]){"SIMGPU_SLOW", slow[i], "3:10%", NULL});
    static const char *const jitter[] = {"5%", "5:1", "5%:", "5%:x", "5%:1x", "-5%:1", "x"};
    for (size_t i = 0; i < sizeof jitter / sizeof jitter[0]; i++)
        ends_the_program("SIMGPU_JITTER", jitter[i],
                         (const char *const[]){"SIMGPU_JITTER", jitter[i], "5%:8812", NULL});
    setenv("SIMGPU_MACHINE", "none", 1);
    ends_the_program("SIMGPU_TRACE", "/tmp/never",
                     (const char *const[]){"SIMGPU_TRACE", "none", NULL});
    unsetenv("SIMGPU_MACHINE");
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "clock/machines");
}
