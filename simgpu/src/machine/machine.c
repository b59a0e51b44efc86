/* machine/machine.c: machines by name, from the texts of simgpu/machines or a file of the program's
 * user.
 *
 * A line is `key value unit`, and # begins a comment. The file has every figure that the machine's
 * models need once; with `base NAME` in the first line, figures that the file does not give are
 * those of a machine that comes with simgpu. A wrong file is refused with one line, which names
 * file, line and key.
 *
 * The texts are made by make/rules.mk: sim_machine_texts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/machine_file.h"

#define FILE_BYTES 65536

typedef struct Kept {
    SimMachine machine;
    SimFigures figures;
    char *asked;
    struct Kept *next;
} Kept;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Kept *machines;

SimPs sim_round(double ps, SimPs least)
{
    const double most = 4e18; // picoseconds: 46 days
    if (!(ps > (double)least)) return least;
    if (ps >= most) return (SimPs)most;
    SimPs whole = (SimPs)ps;
    return (double)whole < ps ? whole + 1 : whole;
}

static const char *text_of(const char *name)
{
    for (const SimMachineText *t = sim_machine_texts; t->name; t++)
        if (strcmp(t->name, name) == 0) return t->text;
    return NULL;
}

const char *const *sim_machine_names(void)
{
    static const char *names[SIM_MACHINE_TEXTS + 1];
    static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&own);
    for (int i = 0; i < SIM_MACHINE_TEXTS && sim_machine_texts[i].name; i++)
        names[i] = sim_machine_texts[i].name;
    pthread_mutex_unlock(&own);
    return names;
}

// "there is no machine x: it is one of a100x8 …, or a file", where x is no name.
static void say_unknown(const char *name, char *error, size_t size)
{
    int n = snprintf(error, size, "there is no machine \"%.80s\": it is", name);
    for (const SimMachineText *t = sim_machine_texts; t->name && n > 0 && (size_t)n < size; t++)
        n += snprintf(error + n, size - (size_t)n, " %s,", t->name);
    if (n > 0 && (size_t)n < size) snprintf(error + n, size - (size_t)n, " none or a file");
}

// The whole file as a text; NULL, with a line in error, where it cannot be.
static char *read_file(const char *name, char *error, size_t size)
{
    FILE *file = fopen(name, "re");
    if (!file && errno == ENOENT && !strchr(name, '/')) {
        say_unknown(name, error, size);
        return NULL;
    }
    char *text = file ? malloc(FILE_BYTES + 1) : NULL;
    size_t n = text ? fread(text, 1, FILE_BYTES + 1, file) : 0;
    bool good = text && !ferror(file) && n <= FILE_BYTES && !memchr(text, 0, n);
    if (!good)
        snprintf(error, size, "machine file %.200s: %s", name,
                 !file || (text && ferror(file)) ? strerror(errno)
                                                 : "is not a text of at most 64 KiB");
    if (good) text[n] = 0;
    if (!good) free(text);
    if (file) fclose(file);
    return good ? text : NULL;
}

static bool read_machine(Kept *kept, const char *name, char *error, size_t size)
{
    SimMachineFile draft = {.machine = &kept->machine, .figures = &kept->figures};
    const char *text = text_of(name);
    char *own = text ? NULL : read_file(name, error, size);
    bool good = false;
    if (text || own) {
        const char *slash = strrchr(name, '/');
        snprintf(kept->machine.name, sizeof kept->machine.name, "%s", slash ? slash + 1 : name);
        kept->machine.figures = &kept->figures;
        good = sim_machine_read(&draft, name, text ? text : own, text_of, error, size);
    }
    free(own);
    return good;
}

static Kept *find_or_read(const char *name, char *error, size_t size)
{
    for (Kept *k = machines; k; k = k->next)
        if (strcmp(k->asked, name) == 0) return k;
    Kept *kept = calloc(1, sizeof *kept);
    char *asked = strdup(name);
    if (!kept || !asked) snprintf(error, size, "no memory for the machine %.80s", name);
    if (!kept || !asked || !read_machine(kept, name, error, size)) {
        free(asked);
        free(kept);
        return NULL;
    }
    kept->asked = asked;
    kept->next = machines;
    machines = kept;
    return kept;
}

const SimMachine *sim_machine(const char *name, char *error, size_t size)
{
    pthread_mutex_lock(&lock);
    Kept *kept = find_or_read(name, error, size);
    pthread_mutex_unlock(&lock);
    return kept ? &kept->machine : NULL;
}
