/* example_programs.c: the programs of examples/, run by a shell. See example_programs.h. */
#include "example_programs.h"

#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "harness.h"

static char bin[4096];    // the folder of the programs, which are linked with the reference
static char launch[4096]; // the launcher
char programs_folder[64];
char programs_printed[PRINTED_BYTES];

int run_programs(const char *command)
{
    char line[16384];
    double limit = 120.0 * time_factor();
    snprintf(line, sizeof line, "exec 2>&1; timeout -k 5 %.0f sh -c 'IFS=; %s'", limit, command);
    setenv("BIN", bin, 1);
    setenv("LAUNCH", launch, 1);
    setenv("SIMGPU_THREADS", "1", 1); // threads that wait for each other spin
    setenv("DIR", programs_folder, 1);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t n = fread(programs_printed, 1, sizeof programs_printed - 1, pipe);
    programs_printed[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void expect_printed(int status, int want, const char *words)
{
    if (status != want || strstr(programs_printed, words) == NULL)
        fail_msg("exit status %d, want %d, and \"%s\" in what was printed:\n%s", status, want,
                 words, programs_printed);
}

int printed_lines(void)
{
    int n = 0;
    for (const char *c = programs_printed; *c != '\0'; c++) n += *c == '\n';
    return n;
}

double number_behind(const char *words)
{
    const char *at = NULL;
    for (const char *c = strstr(programs_printed, words); c != NULL; c = strstr(c + 1, words))
        at = c;
    if (at == NULL) fail_msg("no \"%s\" in what was printed:\n%s", words, programs_printed);
    return strtod(at + strlen(words), NULL);
}

int logged(const char *file, const char *name, double out[LOGGED])
{
    char path[128], line[1024];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", programs_folder, file);
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log) != NULL) {
        json_t *all = json_loads(line, 0, NULL);
        if (all == NULL) fail_msg("not JSON: %s", line);
        const json_t *value = json_object_get(all, name);
        if (value != NULL) out[n++] = json_is_number(value) ? json_number_value(value) : NAN;
        json_decref(all);
        assert_true(n < LOGGED);
    }
    assert_int_equal(fclose(log), 0);
    return n;
}

static void write_text(const char *name, int sentences)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", programs_folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) return;
    for (int i = 0; i < sentences; i++)
        fprintf(file,
                "Sentence %d says that rank %d of %d gathers its unit, computes, and frees it.\n",
                i, i % 4, 4 + i % 5);
    fclose(file);
}

int example_programs_main(int argc, char **argv, const char *suite)
{
    static char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 2;
    dirname(self); // which cuts the name off
    snprintf(bin, sizeof bin, "%.4000s/../../impl/reference/bin", self);
    snprintf(launch, sizeof launch, "%.4000s/../../bin/launch", self);
    strcpy(programs_folder, "/tmp/shardlab-examples-XXXXXX");
    if (mkdtemp(programs_folder) == NULL) return 2;
    write_text("text", 400);
    write_text("short", 1);
    write_text("empty", 0);
    int status = suite_main(argc, argv, suite);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", programs_folder);
    return system(command) == 0 ? status : 2;
}
