/* config.c: the SIMGPU_* variables, read once.
 *
 * They are read on first use, not when the program starts, so that a launcher can set them in a
 * forked rank. An invalid value ends the program with one line.
 */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "core/threads.h"
#include "gpulog_machine.h"
#include "report/report.h"

// ThreadSanitizer leaves a program some 1.5 TiB of addresses. A rank of eight maps 16 arenas, so in
// such a build a device is smaller unless SIMGPU_MEMORY says otherwise.
#ifdef __SANITIZE_THREAD__
#define MOST_MEMORY ((size_t)8 << 30)
#define PHANTOM_MEMORY MOST_MEMORY
#else
#define MOST_MEMORY ((size_t)1 << 40)
#define PHANTOM_MEMORY ((size_t)2 << 40) // dry runs that ask how much a program would need
#endif

static SimConfig config;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool ready;

// Reads "80G", "64M", "4096"; false: the text is something else.
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

static SimCheck read_check(void)
{
    static const char *const words[] = {"off", "fast", "full"};
    const char *text = getenv("SIMGPU_CHECK");
    if (!text || !*text) return CHECK_FULL;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0) return (SimCheck)i;
    char title[160];
    snprintf(title, sizeof title, "SIMGPU_CHECK is \"%.80s\": must be off, fast or full", text);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

// The number of ranks on this host, if a launcher says it, and whether that launcher may bind them
// to processors.
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
        gpulog_set_machine(config.machine->name);
        return;
    }
    snprintf(title, sizeof title, "SIMGPU_MACHINE: %s", error);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

// Reads "10%", "2.5%" as a ratio; *end is the text after it. False: the text is something else.
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

// The memory of a device without SIMGPU_MEMORY: that of the modelled machine.
static size_t usual_memory(void)
{
    size_t machine = config.machine ? config.machine->memory : (size_t)80 << 30;
    if (config.phantoms) return PHANTOM_MEMORY;
    return machine < MOST_MEMORY ? machine : MOST_MEMORY;
}

static void read_all(void)
{
    sim_read_visible(&config, (int)read_number("SIMGPU_DEVICES", 8, 1, SIM_MAX_DEVICES));
    read_dry();
    read_machine();
    config.memory =
        read_number("SIMGPU_MEMORY", usual_memory(), 4096, (size_t)1 << (config.dry ? 44 : 40));
    config.check = read_check();
    if (config.dry && config.check == CHECK_FULL) config.check = CHECK_FAST;
    config.poison = read_number("SIMGPU_POISON", 1, 0, 1) != 0 && !config.dry;
    config.notice_seconds = (double)read_number("SIMGPU_NOTICE_SECONDS", 10, 1, 86400);
    gpulog_reserve(read_number("SIMGPU_LOG", 65536, 16, (size_t)1 << 26));
    read_spread();
    read_threads();
    sim_report_begin();
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

bool sim_dry(void)
{
    return sim_config()->dry;
}
