/* site.c: turns return addresses into "file.c:88 (function)".
 *
 * A return address has the line of its call, so the address before it is looked up. libdw reads the
 * debug information of the program and its libraries at the first report, not before; results are
 * kept. A path is shortened to what tells files apart: relative to where it was compiled, its last
 * folder and the file.
 *
 * The lock has a time limit, because a dying process may ask while it holds it.
 */
#define _GNU_SOURCE
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log_writer.h"

#define CACHE 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Dwfl *dwfl;
static GpuLogLine *cache; // (CACHE), by address

// Whether a file of this name is where libdwfl looks for the debug information of `file`.
static bool lies_beside(const char *file, const char *folder, const char *name)
{
    char path[PATH_MAX];
    const char *last = strrchr(file, '/');
    int n = snprintf(path, sizeof path, "%.*s%s%s", last ? (int)(last - file + 1) : 0, file, folder,
                     name);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

// Each walk up a stack ends in the C library. Its debug information, if installed, takes longer to
// unpack than the rest of a report.
static bool is_c_library(const char *file)
{
    const char *last = file ? strrchr(file, '/') : NULL;
    return last && strncmp(last, "/libc.so", 8) == 0;
}

// libdwfl's own search without its last step, which loads an HTTP client into the program and may
// ask a server: for a library without debug information, the function's name is enough.
static int find_debuginfo(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
                          const char *file, const char *link, GElf_Word crc, char **found)
{
    if (is_c_library(file)) return -1;
    int fd = dwfl_build_id_find_debuginfo(module, data, name, base, file, link, crc, found);
    if (fd >= 0 || !file || !link) return fd;
    if (!lies_beside(file, "", link) && !lies_beside(file, ".debug/", link)) return fd;
    return dwfl_standard_find_debuginfo(module, data, name, base, file, link, crc, found);
}

// Lists the modules that are mapped now.
static bool list_modules(void)
{
    static char *debug_path;
    static const Dwfl_Callbacks callbacks = {
        .find_elf = dwfl_linux_proc_find_elf,
        .find_debuginfo = find_debuginfo,
        .debuginfo_path = &debug_path,
    };
    if (dwfl) dwfl_end(dwfl);
    dwfl = dwfl_begin(&callbacks);
    if (!dwfl) return false;
    bool listed = dwfl_linux_proc_report(dwfl, getpid()) == 0;
    return dwfl_report_end(dwfl, NULL, NULL) == 0 && listed;
}

// "/home/ann/kit/reference/forward.c", compiled in /home/ann/kit: "reference/forward.c".
static const char *shorten(const char *path, const char *compiled_in)
{
    size_t n = compiled_in ? strlen(compiled_in) : 0;
    if (n && strncmp(path, compiled_in, n) == 0 && path[n] == '/') path += n + 1;
    while (strncmp(path, "./", 2) == 0) path += 2;
    const char *last = strrchr(path, '/'), *before = last;
    while (before && before > path && before[-1] != '/') before--;
    return before ? before : path;
}

typedef struct Source {
    const char *function, *path, *compiled_in;
    int line;
    uint64_t unit;
} Source;

static bool is_artificial(Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    bool yes = false;
    return dwarf_attr_integrate(die, DW_AT_artificial, &attribute) &&
           dwarf_formflag(&attribute, &yes) == 0 && yes;
}

// Where an inlined function was called.
static void take_call(Dwarf_Die *unit, Dwarf_Die *inlined, Source *source)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file, line;
    Dwarf_Files *files;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) == 0 &&
        dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) == 0 &&
        dwarf_getsrcfiles(unit, &files, NULL) == 0) {
        source->path = dwarf_filesrc(files, file, NULL, NULL);
        source->line = (int)line;
    }
}

// The unit of the address; *bias: what the addresses of its debug information lack. NULL: none.
static Dwarf_Die *find_unit(Dwfl_Module *module, Dwarf_Addr address, Dwarf_Addr *bias)
{
    Dwarf_Die *unit = dwfl_module_addrdie(module, address, bias);
    // For code without debug information libdwfl gives the unit before it.
    if (unit && dwarf_haspc(unit, address - *bias) > 0) return unit;
    // Nor does it find units of clang, which lists no addresses of units (.debug_aranges).
    unit = NULL;
    do unit = dwfl_module_nextcu(module, unit, bias);
    while (unit && dwarf_haspc(unit, address - *bias) <= 0);
    return unit;
}

static void find_line(Dwarf_Die *unit, Dwarf_Addr address, Source *source)
{
    Dwarf_Attribute attribute;
    Dwarf_Line *line = dwarf_getsrc_die(unit, address);
    if (!line || dwarf_lineno(line, &source->line) != 0) return;
    // clang gives line 0 to code that it moved or made of several lines: the next row's is near.
    Dwarf_Lines *rows;
    size_t n;
    if (source->line == 0 && dwarf_getsrclines(unit, &rows, &n) == 0) {
        for (size_t i = 0; i < n && source->line == 0; i++) {
            Dwarf_Addr at;
            line = dwarf_onesrcline(rows, i);
            if (dwarf_lineaddr(line, &at) == 0 && at > address) dwarf_lineno(line, &source->line);
        }
    }
    source->path = dwarf_linesrc(line, NULL, NULL);
    source->compiled_in = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
}

// The innermost function that contains the address, inlined or not: reports show its line. For a
// wrapper that is marked artificial (cuda_runtime.h) they show the line that called it.
static void find_function(Dwarf_Die *unit, Dwarf_Addr address, Source *source)
{
    Dwarf_Die *scopes = NULL;
    int n = dwarf_getscopes(unit, address, &scopes);
    for (int i = 0; i < n && !source->function; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag == DW_TAG_inlined_subroutine && is_artificial(&scopes[i]))
            take_call(unit, &scopes[i], source);
        else if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine)
            source->function = dwarf_diename(&scopes[i]);
    }
    // The scopes around an inlined function are where it was written, not where it was called.
    free(scopes);
}

static Dwfl_Module *module_of(Dwarf_Addr address)
{
    Dwfl_Module *module = dwfl ? dwfl_addrmodule(dwfl, address) : NULL;
    // A library may have been loaded since the list was made.
    if (!module && list_modules()) module = dwfl_addrmodule(dwfl, address);
    return module;
}

static Source find_source(Dwfl_Module *module, Dwarf_Addr address)
{
    Source source = {NULL, NULL, NULL, 0, 0};
    Dwarf_Addr bias;
    Dwarf_Die *unit = find_unit(module, address, &bias);
    if (unit) {
        source.unit = bias + dwarf_dieoffset(unit);
        find_line(unit, address - bias, &source);
        find_function(unit, address - bias, &source);
    }
    if (!source.function) source.function = dwfl_module_addrname(module, address);
    return source;
}

// The full path of the source file; "" if it does not fit.
static void keep_path(const Source *source, GpuLogLine *line)
{
    const char *folder = source->compiled_in ? source->compiled_in : "";
    bool whole = source->path[0] == '/' || !folder[0];
    int n = snprintf(line->path, sizeof line->path, "%s%s%s", whole ? "" : folder, whole ? "" : "/",
                     source->path);
    if (n < 0 || (size_t)n >= sizeof line->path) line->path[0] = 0;
    n = (int)strlen(folder);
    if (n > 0 && strncmp(line->path, folder, (size_t)n) == 0 && line->path[n] == '/')
        line->below = (size_t)n + 1;
    line->line = source->line;
}

static void resolve(const void *site, GpuLogLine *line)
{
    Dwarf_Addr address = (Dwarf_Addr)(uintptr_t)site - 1;
    Dwfl_Module *module = module_of(address);
    Source source = {NULL, NULL, NULL, 0, 0};
    char *text = line->text;
    size_t size = sizeof line->text;
    *line = (GpuLogLine){.address = site};
    if (module) source = find_source(module, address);
    line->unit = source.unit;
    if (source.function) snprintf(line->function, sizeof line->function, "%s", source.function);
    if (source.path) {
        snprintf(text, size, "%s:%d (%s)", shorten(source.path, source.compiled_in), source.line,
                 source.function ? source.function : "?");
        keep_path(&source, line);
    } else if (source.function) {
        const char *file = dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
        const char *base = file ? strrchr(file, '/') : NULL;
        snprintf(text, size, "%s (%s; compile with -g for the line)", source.function,
                 base   ? base + 1
                 : file ? file
                        : "?");
    } else {
        snprintf(text, size, "%p", site);
    }
}

static void resolve_cached(const void *site, GpuLogLine *line)
{
    size_t place = ((uintptr_t)site * 0x9e3779b97f4a7c15u) >> 54; // 10 bits: CACHE entries
    if (!cache) cache = calloc(CACHE, sizeof *cache);
    if (cache && cache[place].address == site) {
        *line = cache[place];
        return;
    }
    resolve(site, line);
    if (cache) cache[place] = *line;
}

bool gpulog_line(const void *address, GpuLogLine *line)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 2;
    if (pthread_mutex_timedlock(&lock, &limit)) return false;
    resolve_cached(address, line);
    pthread_mutex_unlock(&lock);
    return true;
}
