/* config.c: the SIMGPU_* variables and CUDA_VISIBLE_DEVICES, read once.
 *
 * They are read on first use and not when the program starts, so that a launcher may set them in a
 * forked rank. A value that makes no sense ends the program with one line.
 *
 * Interface: sim_config, sim_config_ready.
 */
#include <ctype.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpulog_machine.h"
#include "report/report.h"
#include "streams/streams.h"

// ThreadSanitizer leaves a program some 1.5 TiB of addresses. A rank of eight maps 16 arenas, so in
// such a build a device is smaller unless SIMGPU_MEMORY says otherwise.
#ifdef __SANITIZE_THREAD__
#define DEFAULT_MEMORY ((size_t)8 << 30)
#define PHANTOM_MEMORY DEFAULT_MEMORY
#else
#define DEFAULT_MEMORY ((size_t)80 << 30)
#define PHANTOM_MEMORY ((size_t)2 << 40) // dry runs that ask how much a program would need
#endif

static SimConfig config;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool ready;

// Reads "80G", "64M", "4096"; false where the text is something else.
static bool parse_bytes(const char *text, size_t *bytes)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || end == text || !isdigit((unsigned char)*text)) return false;
    int shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    case 'T': shift = 40; break;
    }
    if (shift) end++;
    if (*end || (shift && number >> (64 - shift))) return false;
    *bytes = (size_t)number << shift;
    return true;
}

static size_t read_number(const char *name, size_t otherwise, size_t least, size_t most)
{
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    size_t value;
    if (parse_bytes(text, &value) && value >= least && value <= most) return value;
    char title[256];
    snprintf(title, sizeof title, "%s is \"%.80s\": must be a number from %zu to %zu%s", name, text,
             least, most, most > (size_t)1 << 20 ? ", with K, M, G or T after it" : "");
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

// The place of the variable's value among n words; `list` says them in the message.
static int read_word(const char *variable, const char *const *words, int n, int otherwise,
                     const char *list)
{
    const char *text = getenv(variable);
    if (!text || !*text) return otherwise;
    for (int i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) return i;
    char title[160];
    snprintf(title, sizeof title, "%s is \"%.80s\": must be %s", variable, text, list);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

static SimCheck read_check(void)
{
    static const char *const words[] = {"off", "fast", "full"};
    return (SimCheck)read_word("SIMGPU_CHECK", words, 3, CHECK_FULL, "off, fast or full");
}

static bool read_all_reports(void)
{
    static const char *const words[] = {"first", "all"};
    return read_word("SIMGPU_REPORTS", words, 2, 0, "first or all") == 1;
}

// ---- CUDA_VISIBLE_DEVICES ----
// "Only the devices whose index or UUID is present in the sequence are visible to CUDA
// applications, and they are enumerated in the order of the sequence. If one of the indices is
// invalid, only the devices whose index precedes the invalid index are visible." A device that is
// named twice makes all of them invisible, as with today's drivers.

// The number of the one device whose UUID begins with the text; -1: none does, or several do.
static int device_by_uuid(const char *text, size_t length, int devices)
{
    int found = -1;
    char uuid[48];
    for (int d = 0; d < devices; d++) {
        sim_device_uuid(d, uuid);
        if (strncmp(uuid, text, length) != 0) continue;
        if (found >= 0) return -1;
        found = d;
    }
    return found;
}

// -1: there is none of that number or UUID.
static int visible_device(const char *text, size_t length, int devices)
{
    char *end;
    if (strncmp(text, "GPU-", 4) == 0) return device_by_uuid(text, length, devices);
    long index = strtol(text, &end, 10);
    if (end == text) return -1;
    while (*end == ' ') end++;
    return end == text + length && index >= 0 && index < devices ? (int)index : -1;
}

// "-1" and nothing at all are how a list is ended on purpose.
static void note_unknown(const char *list, const char *entry, size_t length, int devices)
{
    if (length == 0 || (length == 2 && strncmp(entry, "-1", 2) == 0)) return;
    snprintf(config.hidden, sizeof config.hidden,
             "CUDA_VISIBLE_DEVICES is \"%.60s\": its entry \"%.*s\" is none of the %d devices,\n"
             "and only what is before it is seen.",
             list, length < 60 ? (int)length : 60, entry, devices);
}

static void note_twice(const char *list, int device)
{
    snprintf(config.hidden, sizeof config.hidden,
             "CUDA_VISIBLE_DEVICES is \"%.60s\": it names device %d twice,\n"
             "and then no device is seen.",
             list, device);
}

// Fills in which devices of the machine the program sees.
static void read_visible(int devices)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *text = list;
    bool taken[SIM_MAX_DEVICES] = {false};
    config.devices = devices;
    for (int d = 0; d < devices; d++) config.physical[d] = d;
    if (!text) return;
    config.devices = 0;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        int device = visible_device(text, length, devices);
        if (device < 0) note_unknown(list, text, length, devices);
        if (device < 0) return;
        if (taken[device]) note_twice(list, device);
        if (taken[device]) config.devices = 0;
        if (taken[device]) return;
        taken[device] = true;
        config.physical[config.devices++] = device;
        text += length;
        if (!*text) return;
    }
}

// A copy: the program may change its environment.
static const char *read_record(void)
{
    const char *text = getenv("SIMGPU_REPORT");
    if (!text || !*text) return NULL;
    sim_record_look(text);
    return strdup(text);
}

// Ranks on this host, as far as a launcher said so; and whether that launcher may bind them.
static size_t local_ranks(bool *bound)
{
    static const char *const names[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "SLURM_NTASKS_PER_NODE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        long n = text ? strtol(text, NULL, 10) : 0;
        *bound = i > 0; // torchrun and the kit's launcher do not
        if (n > 0) return (size_t)n;
    }
    *bound = false;
    return 1;
}

static void read_threads(void)
{
    bool bound;
    size_t ranks = local_ranks(&bound), share = sim_share(ranks, bound);
    config.cores = (int)read_number("SIMGPU_CORES", sim_processors(), 1, 4096);
    config.threads = (int)read_number("SIMGPU_THREADS", share, 1, 1024);
    config.crowded = (size_t)config.threads > share;
}

// ---- The clock ----

static void read_machine(void)
{
    const char *text = getenv("SIMGPU_MACHINE");
    char error[512], title[600];
    if (!text || !*text) text = "h100x8";
    if (strcmp(text, "none") == 0) return;
    config.machine = sim_machine(text, error, sizeof error);
    if (config.machine) {
        sim_log_machine(config.machine->name);
        return;
    }
    snprintf(title, sizeof title, "SIMGPU_MACHINE: %s", error);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

// "10%", "2.5%" as a ratio, and *end: what comes after it; false: it is something else.
static bool parse_percent(const char *text, SimRatio *part, const char **end)
{
    uint64_t num = 0, den = 100;
    const char *at = text;
    for (; isdigit((unsigned char)*at) && num < 1000000; at++)
        num = 10 * num + (uint64_t)(*at - '0');
    if (at == text) return false;
    if (*at == '.' && isdigit((unsigned char)at[1]))
        for (at++; isdigit((unsigned char)*at) && den < 100000000; at++) {
            num = 10 * num + (uint64_t)(*at - '0');
            den *= 10;
        }
    *part = (SimRatio){num, den};
    *end = at + 1;
    return *at == '%';
}

_Noreturn static void refuse_spread(const char *variable, const char *text, const char *like)
{
    char title[256];
    snprintf(title, sizeof title, "%s is \"%.80s\": must be %s", variable, text, like);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

static void read_spread(void)
{
    const char *slow = getenv("SIMGPU_SLOW"), *jitter = getenv("SIMGPU_JITTER"), *end;
    char *after;
    if (slow && *slow) {
        errno = 0;
        long rank = strtol(slow, &after, 10);
        bool fits = !errno && after > slow && rank >= 0 && rank < 65536 && *after == ':' &&
                    parse_percent(after + 1, &config.spread.slow, &end) && !*end;
        if (!fits)
            refuse_spread("SIMGPU_SLOW", slow, "a rank and how much slower it is, as in 3:10%");
        config.spread.slow_rank = (int)rank;
    }
    if (jitter && *jitter) {
        bool fits = parse_percent(jitter, &config.spread.jitter, &end) && *end == ':' &&
                    isdigit((unsigned char)end[1]);
        errno = 0;
        if (fits) config.spread.seed = strtoull(end + 1, &after, 10);
        if (!fits || errno || *after)
            refuse_spread("SIMGPU_JITTER", jitter, "how much at most, and a seed, as in 5%:8812");
    }
}

static void read_dry(void)
{
    config.dry = read_number("SIMGPU_DRY", 0, 0, 1) != 0;
    config.phantoms = read_number("SIMGPU_PHANTOMS", 0, 0, 1) != 0;
    if (config.phantoms && !config.dry)
        sim_fatal(SIMGPU_SYSTEM,
                  "SIMGPU_PHANTOMS=1 without SIMGPU_DRY=1: only a dry run has phantom peers", "%s",
                  "");
}

static void read_all(void)
{
    read_visible((int)read_number("SIMGPU_DEVICES", 8, 1, SIM_MAX_DEVICES));
    read_dry();
    config.memory = read_number("SIMGPU_MEMORY", config.phantoms ? PHANTOM_MEMORY : DEFAULT_MEMORY,
                                4096, (size_t)1 << (config.dry ? 44 : 40));
    config.check = read_check();
    config.all_reports = read_all_reports();
    config.record = read_record();
    if (config.dry && config.check == CHECK_FULL) config.check = CHECK_FAST;
    config.poison = read_number("SIMGPU_POISON", 1, 0, 1) != 0 && !config.dry;
    config.notice_seconds = (double)read_number("SIMGPU_NOTICE_SECONDS", 10, 1, 86400);
    sim_log_reserve(read_number("SIMGPU_LOG", 65536, 16, (size_t)1 << 26));
    read_machine();
    read_spread();
    read_threads();
    atomic_store(&ready, true);
}

const SimConfig *sim_config(void)
{
    pthread_once(&once, read_all);
    return &config;
}

bool sim_config_ready(void)
{
    return atomic_load(&ready);
}
