/* machine/machine_file.c: reads the text of a machine: its keys, and the values that each may have.
 *
 * Numbers are read here and not by strtod, so that a program's locale changes nothing.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "machine/machine_file.h"

typedef enum Kind {
    COUNT,    // uint64_t
    GPUS,     // int
    BYTES,    // size_t
    RATE,     // double: a second's bytes
    FLOPS,    // double
    HOST,     // SimPs
    TIME,     // double: whole picoseconds
    ROOT,     // double: picoseconds per root of a byte
    FRACTION, // double: above 0, at most 1
    RATIO,    // SimRatio
    WORD,     // an enum
    NAME,     // char[64]: _ in place of blanks
    VERSION,  // two int: 9.0
} Kind;

// Which machines need a key; MAYBE: none, and any may have it.
typedef enum Needed { ALWAYS, NCCL, PLAIN, TILES, MAYBE } Needed;

typedef struct Key {
    const char *name;
    Kind kind;
    Needed needed;
    bool figure; // of figures, else of machine
    size_t at;
    bool none;                // may be "none": 0
    const char *const *words; // of WORD
} Key;

static const char *const models[] = {"nccl", "plain", NULL};
static const char *const gemms[] = {"tiles", "plain", NULL};
static const char *const generations[] = {"volta", "ampere", "hopper", "blackwell", NULL};
static const char *const cpus[] = {"intel", "amd", NULL};

#define OF_MACHINE(field) false, offsetof(SimMachine, field)
#define OF_FIGURES(field) true, offsetof(SimFigures, field)
static const Key keys[] = {
    {"gpus_per_node", GPUS, ALWAYS, OF_MACHINE(gpus_per_node), false, NULL},
    {"gpu", NAME, MAYBE, OF_MACHINE(gpu.name), false, NULL},
    {"capability", VERSION, MAYBE, OF_MACHINE(gpu.major), false, NULL},
    {"bus", COUNT, MAYBE, OF_MACHINE(gpu.bus), false, NULL},
    {"l2", BYTES, MAYBE, OF_MACHINE(gpu.l2), false, NULL},
    {"memory", BYTES, ALWAYS, OF_MACHINE(memory), false, NULL},
    {"peak_f64", FLOPS, ALWAYS, OF_MACHINE(peak[SIM_F64]), false, NULL},
    {"peak_f32", FLOPS, ALWAYS, OF_MACHINE(peak[SIM_F32]), false, NULL},
    {"peak_tf32", FLOPS, ALWAYS, OF_MACHINE(peak[SIM_TF32]), false, NULL},
    {"peak_bf16", FLOPS, ALWAYS, OF_MACHINE(peak[SIM_BF16]), false, NULL},
    {"peak_fp8", FLOPS, ALWAYS, OF_MACHINE(peak[SIM_FP8]), false, NULL},
    {"hbm", RATE, ALWAYS, OF_FIGURES(hbm), false, NULL},
    {"nvlink", RATE, ALWAYS, OF_FIGURES(link[SIM_NVLINK]), true, NULL},
    {"pcie", RATE, ALWAYS, OF_FIGURES(link[SIM_PCIE]), false, NULL},
    {"nic", RATE, ALWAYS, OF_FIGURES(link[SIM_NIC]), true, NULL},
    {"kernel", TIME, ALWAYS, OF_FIGURES(kernel), false, NULL},
    {"copy", TIME, ALWAYS, OF_FIGURES(copy), false, NULL},
    {"launch", HOST, ALWAYS, OF_MACHINE(host.launch), false, NULL},
    {"graph_launch", HOST, MAYBE, OF_MACHINE(host.graph_launch), false, NULL},
    {"graph_node", HOST, MAYBE, OF_MACHINE(host.graph_node), false, NULL},
    {"collective", HOST, ALWAYS, OF_MACHINE(host.collective), false, NULL},
    {"enqueue", HOST, ALWAYS, OF_MACHINE(host.enqueue), false, NULL},
    {"allocate", HOST, ALWAYS, OF_MACHINE(host.allocate), false, NULL},
    {"free", HOST, ALWAYS, OF_MACHINE(host.free), false, NULL},
    {"pin", HOST, ALWAYS, OF_MACHINE(host.pin), false, NULL},
    {"sync", HOST, ALWAYS, OF_MACHINE(host.sync), false, NULL},
    {"query", HOST, ALWAYS, OF_MACHINE(host.query), false, NULL},
    {"wake", HOST, ALWAYS, OF_MACHINE(host.wake), false, NULL},
    {"slow_compute", RATIO, ALWAYS, OF_MACHINE(slow_compute), false, NULL},
    {"slow_compute_nic", RATIO, MAYBE, OF_MACHINE(slow_compute_nic), false, NULL},
    {"slow_transfer", RATIO, ALWAYS, OF_MACHINE(slow_transfer), false, NULL},
    {"gemm", WORD, ALWAYS, OF_FIGURES(gemm), false, gemms},
    {"sms", COUNT, TILES, OF_FIGURES(sms), false, NULL},
    {"gemm_efficiency", FRACTION, TILES, OF_FIGURES(gemm_efficiency), false, NULL},
    {"fused_efficiency", FRACTION, TILES, OF_FIGURES(fused_efficiency), false, NULL},
    {"eager_efficiency", FRACTION, MAYBE, OF_FIGURES(fitted.eager), false, NULL},
    {"compiled_efficiency", FRACTION, MAYBE, OF_FIGURES(fitted.compiled), false, NULL},
    {"flash1_efficiency", FRACTION, MAYBE, OF_FIGURES(fitted.flash1), false, NULL},
    {"step_doubling", FRACTION, MAYBE, OF_FIGURES(fitted.doubling), true, NULL},
    {"step_least", FRACTION, MAYBE, OF_FIGURES(fitted.least), true, NULL},
    {"step_most", RATIO, MAYBE, OF_FIGURES(fitted.most), false, NULL},
    {"model", WORD, ALWAYS, OF_FIGURES(model), false, models},
    {"latency", TIME, PLAIN, OF_FIGURES(latency), false, NULL},
    {"nccl_generation", WORD, NCCL, OF_FIGURES(generation), false, generations},
    {"nccl_cpu", WORD, NCCL, OF_FIGURES(cpu), false, cpus},
    {"ring_channels", COUNT, NCCL, OF_FIGURES(ring.channels), false, NULL},
    {"ring_intra", RATE, NCCL, OF_FIGURES(ring.intra), false, NULL},
    {"ring_inter", RATE, NCCL, OF_FIGURES(ring.inter), true, NULL},
    {"nvls_channels", COUNT, NCCL, OF_FIGURES(nvls.channels), true, NULL},
    {"nvls_intra", RATE, NCCL, OF_FIGURES(nvls.intra), true, NULL},
    {"nvls_inter", RATE, NCCL, OF_FIGURES(nvls.inter), true, NULL},
    {"net_latency", TIME, NCCL, OF_FIGURES(net_latency), false, NULL},
    {"nccl_constant", TIME, NCCL, OF_FIGURES(nccl_constant), false, NULL},
    {"nccl_root", ROOT, NCCL, OF_FIGURES(nccl_root), false, NULL},
};
#define KEYS ((int)(sizeof keys / sizeof keys[0]))
_Static_assert(sizeof keys / sizeof keys[0] <= SIM_MACHINE_KEYS, "SIM_MACHINE_KEYS");

// ---- Units ---- What a number is multiplied by.

typedef struct Unit {
    const char *name;
    uint64_t times;
} Unit;

static const Unit bytes_units[] = {{"B", 1},           {"KB", 1000},     {"MB", 1000000},
                                   {"GB", 1000000000}, {"KiB", 1 << 10}, {"MiB", 1 << 20},
                                   {"GiB", 1 << 30},   {NULL, 0}};
static const Unit rate_units[] = {
    {"MB/s", 1000000}, {"GB/s", 1000000000}, {"TB/s", 1000000000000}, {NULL, 0}};
static const Unit flops_units[] = {{"GFLOP/s", 1000000000}, {"TFLOP/s", 1000000000000}, {NULL, 0}};
static const Unit time_units[] = {{"ps", 1},          {"ns", 1000},         {"us", 1000000},
                                  {"ms", 1000000000}, {"s", 1000000000000}, {NULL, 0}};
static const Unit root_units[] = {{"us/sqrt(B)", 1000000}, {NULL, 0}};
static const Unit no_unit[] = {{"", 1}, {NULL, 0}};

static const Unit *units_of(Kind kind)
{
    switch (kind) {
    case BYTES: return bytes_units;
    case RATE: return rate_units;
    case FLOPS: return flops_units;
    case HOST:
    case TIME: return time_units;
    case ROOT: return root_units;
    default: return no_unit;
    }
}

// "a number and GB/s, TB/s": describes the values of a kind of key.
static void say_wanted(const Key *key, char *text, size_t size)
{
    int n = 0;
    if (key->kind == WORD) {
        for (const char *const *w = key->words; *w && (size_t)n < size; w++)
            n += snprintf(text + n, size - (size_t)n, "%s%s", w == key->words ? "" : " or ", *w);
        return;
    }
    const char *number = key->kind == NAME      ? "a name of at most 63 letters, with _ for blanks"
                         : key->kind == VERSION ? "a compute capability, such as 9.0"
                         : key->kind == COUNT || key->kind == GPUS ? "a whole number from 1"
                         : key->kind == RATIO                      ? "a ratio from 1, such as 13/10"
                         : key->kind == FRACTION                   ? "a number above 0, at most 1"
                                                                   : "a number and";
    n = snprintf(text, size, "%s", number);
    for (const Unit *u = units_of(key->kind); u->name && (size_t)n < size; u++)
        if (*u->name)
            n += snprintf(text + n, size - (size_t)n, "%s %s",
                          u == units_of(key->kind) ? ""
                          : u[1].name              ? ","
                                                   : " or",
                          u->name);
    if (key->none && (size_t)n < size) snprintf(text + n, size - (size_t)n, ", or none");
}

// ---- Values ----

typedef struct Number {
    uint64_t digits, below; // digits / below
} Number;

// "3.35": at most 15 digits.
static bool read_number(const char *text, Number *number)
{
    bool point = false;
    int n = 0;
    *number = (Number){0, 1};
    if (!isdigit((unsigned char)*text)) return false;
    for (; *text; text++) {
        if (*text == '.' && !point && isdigit((unsigned char)text[1])) {
            point = true;
            continue;
        }
        if (!isdigit((unsigned char)*text) || ++n > 15) return false;
        number->digits = number->digits * 10 + (uint64_t)(*text - '0');
        if (point) number->below *= 10;
    }
    return true;
}

static bool read_ratio(char *text, SimRatio *ratio)
{
    Number num, den;
    char *slash = strchr(text, '/');
    if (!slash) return false;
    *slash = 0;
    bool good = read_number(text, &num) && read_number(slash + 1, &den) && num.below == 1 &&
                den.below == 1 && den.digits > 0 && num.digits >= den.digits &&
                num.digits <= 1000000;
    *slash = '/';
    if (good) *ratio = (SimRatio){num.digits, den.digits};
    return good;
}

static bool read_word(const Key *key, const char *text, unsigned *word)
{
    for (unsigned i = 0; key->words[i]; i++)
        if (strcmp(key->words[i], text) == 0) {
            *word = i;
            return true;
        }
    return false;
}

static bool read_name(const char *text, char *name)
{
    size_t n = strlen(text);
    if (n >= sizeof((SimGpu *)NULL)->name) return false;
    for (size_t i = 0; i <= n; i++) name[i] = (char)(text[i] == '_' ? ' ' : text[i]);
    return true;
}

// Stores a number with its unit in the place of the key.
static bool store(const Key *key, void *to, Number n, uint64_t times)
{
    unsigned __int128 all = (unsigned __int128)n.digits * times;
    double value = (double)n.digits * (double)times / (double)n.below;
    switch (key->kind) {
    case GPUS:
    case COUNT:
        if (n.below != 1 || n.digits < 1 || n.digits > 100000) return false;
        if (key->kind == GPUS) *(int *)to = (int)n.digits;
        if (key->kind == COUNT) *(uint64_t *)to = n.digits;
        return true;
    case VERSION:
        if (n.below != 10 || n.digits < 10 || n.digits > 1000) return false;
        ((int *)to)[0] = (int)(n.digits / 10);
        ((int *)to)[1] = (int)(n.digits % 10);
        return true;
    case BYTES:
        if (all / n.below < 1 || all / n.below > (uint64_t)1 << 50) return false;
        *(size_t *)to = (size_t)(all / n.below);
        return true;
    case HOST:
    case TIME: // to the nearest picosecond
        all = (all + n.below / 2) / n.below;
        if (all > 1000000000000000) return false;
        if (key->kind == HOST) *(SimPs *)to = (SimPs)all;
        if (key->kind == TIME) *(double *)to = (double)(SimPs)all;
        return true;
    case FRACTION:
        if (!(value > 0 && value <= 1)) return false;
        break;
    case ROOT:
        if (!(value <= 1e15)) return false;
        break;
    default: // a rate
        if (!(value >= 1e3 && value <= 1e21)) return false;
    }
    *(double *)to = value;
    return true;
}

// Splits a line into key, value, unit; more words are an error.
static int split(char *line, char *word[4])
{
    int n = 0;
    char *comment = strchr(line, '#'), *rest = NULL;
    if (comment) *comment = 0;
    for (char *w = strtok_r(line, " \t\r", &rest); w && n < 4; w = strtok_r(NULL, " \t\r", &rest))
        word[n++] = w;
    return n;
}

static bool set_value(const SimMachineFile *file, const Key *key, int n, char *word[4])
{
    void *to = (char *)(key->figure ? (void *)file->figures : (void *)file->machine) + key->at;
    if (n == 2 && key->none && strcmp(word[1], "none") == 0) {
        if (key->kind == COUNT)
            *(uint64_t *)to = 0;
        else
            *(double *)to = 0;
        return true;
    }
    if (key->kind == RATIO) return n == 2 && read_ratio(word[1], to);
    if (key->kind == NAME) return n == 2 && read_name(word[1], to);
    if (key->kind == WORD) return n == 2 && read_word(key, word[1], to);
    Number number;
    if (n < 2 || n > 3 || !read_number(word[1], &number)) return false;
    for (const Unit *u = units_of(key->kind); u->name; u++)
        if (strcmp(u->name, n == 3 ? word[2] : "") == 0) return store(key, to, number, u->times);
    return false;
}

// ---- The file ----

typedef struct Error {
    char *text;
    size_t size;
} Error;

#define WRONG(error, file, line, ...)                                                              \
    (wrong_line((error), (file), (line)), append((error), __VA_ARGS__), false)

static void wrong_line(Error error, const SimMachineFile *file, int line)
{
    snprintf(error.text, error.size, "machine file %.200s, line %d: ", file->name, line);
}
__attribute__((format(printf, 2, 3))) static void append(Error error, const char *format, ...)
{
    size_t n = strlen(error.text);
    va_list args;
    va_start(args, format);
    vsnprintf(error.text + n, error.size - n, format, args);
    va_end(args);
}

static bool read_key(SimMachineFile *file, int line, int n, char *word[4], Error error)
{
    char wanted[160];
    for (int k = 0; k < KEYS; k++) {
        if (strcmp(keys[k].name, word[0]) != 0) continue;
        if (file->line[k])
            return WRONG(error, file, line, "%s is there twice, first in line %d", word[0],
                         file->line[k]);
        file->line[k] = line;
        file->set[k] = true;
        if (set_value(file, &keys[k], n, word)) return true;
        say_wanted(&keys[k], wanted, sizeof wanted);
        return WRONG(error, file, line, "%s is \"%.40s%s%.20s\"%s: must be %s", word[0],
                     n > 1 ? word[1] : "", n > 2 ? " " : "", n > 2 ? word[2] : "",
                     n > 1 && *word[1] == '-' ? ", negative"
                     : n > 3                  ? " and more"
                                              : "",
                     wanted);
    }
    return WRONG(error, file, line, "there is no key %.40s", word[0]);
}

// A line of the text, without its end, into a buffer; false: it is too long.
static bool take_line(const char **text, char *line, size_t size)
{
    size_t length = strcspn(*text, "\n");
    bool fits = length < size;
    if (fits) memcpy(line, *text, length);
    line[fits ? length : 0] = 0;
    *text += length + ((*text)[length] == '\n');
    return fits;
}

// `base NAME`, before all keys.
static bool read_base(SimMachineFile *file, int line, int n, char *word[4], bool first,
                      const char *(*base)(const char *), Error error)
{
    const char *text = n == 2 && base ? base(word[1]) : NULL;
    if (!first) return WRONG(error, file, line, "base comes once, before all other keys");
    if (!text)
        return WRONG(error, file, line, "base is \"%.40s\": must be a machine of simgpu's own",
                     n > 1 ? word[1] : "");
    SimMachineFile below = {.machine = file->machine, .figures = file->figures};
    if (!sim_machine_read(&below, word[1], text, base, error.text, error.size)) return false;
    memcpy(file->set, below.set, sizeof file->set);
    return true;
}

static bool is_needed(const SimMachineFile *file, Needed needed)
{
    return needed == ALWAYS || (needed == NCCL && file->figures->model == SIM_MODEL_NCCL) ||
           (needed == PLAIN && file->figures->model == SIM_MODEL_PLAIN) ||
           (needed == TILES && file->figures->gemm == SIM_GEMM_TILES);
}

// Checks that no key is missing and none is superfluous.
static bool is_complete(const SimMachineFile *file, int lines, Error error)
{
    static const char *const belongs[] = {"", "model nccl", "model plain", "gemm tiles"};
    for (int k = 0; k < KEYS; k++)
        if (!file->set[k] && keys[k].needed == ALWAYS)
            return WRONG(error, file, lines, "the file ends, and %s is missing", keys[k].name);
    for (int k = 0; k < KEYS; k++) {
        bool needed = is_needed(file, keys[k].needed);
        if (keys[k].needed == MAYBE) continue;
        if (needed && !file->set[k])
            return WRONG(error, file, lines, "the file ends, and %s is missing, which %s needs",
                         keys[k].name, belongs[keys[k].needed]);
        if (!needed && file->line[k])
            return WRONG(error, file, file->line[k], "%s belongs to %s, which this machine is not",
                         keys[k].name, belongs[keys[k].needed]);
    }
    const SimFigures *f = file->figures;
    if (f->model == SIM_MODEL_NCCL && f->link[SIM_NIC] > 0 && !(f->ring.inter > 0))
        return WRONG(error, file, lines, "ring_inter is none, but the machine has a nic");
    if (f->model == SIM_MODEL_NCCL && f->nvls.channels > 0 && !(f->nvls.intra > 0))
        return WRONG(error, file, lines, "nvls_intra is none, but nvls_channels is not");
    return true;
}

bool sim_machine_read(SimMachineFile *file, const char *name, const char *text,
                      const char *(*base)(const char *name), char *error_text, size_t size)
{
    Error error = {error_text, size};
    char buffer[512], *word[4];
    int line = 0;
    bool first = true;
    file->name = name;
    while (*text) {
        line++;
        if (!take_line(&text, buffer, sizeof buffer))
            return WRONG(error, file, line, "is longer than %zu bytes", sizeof buffer - 1);
        int n = split(buffer, word);
        if (n == 0) continue;
        bool good = strcmp(word[0], "base") == 0
                        ? read_base(file, line, n, word, first, base, error)
                        : read_key(file, line, n, word, error);
        if (!good) return false;
        first = false;
    }
    if (!is_complete(file, line, error)) return false;
    if (file->machine->slow_compute_nic.den == 0)
        file->machine->slow_compute_nic = file->machine->slow_compute;
    for (int l = 0; l < SIM_LINKS; l++) file->machine->has_link[l] = file->figures->link[l] > 0;
    return true;
}
