/* example_programs.h: the programs of examples/, run by a shell as their users run them. */
#ifndef TESTS_EXAMPLE_PROGRAMS_H
#define TESTS_EXAMPLE_PROGRAMS_H

enum { PRINTED_BYTES = 1 << 16, LOGGED = 40 };

extern char programs_printed[PRINTED_BYTES]; // by the command that ran last
extern char programs_folder[64];             // of this run's files

// Runs a shell command, $BIN and $DIR in it being the folder of the programs, which are linked with
// the reference, and that of this run's files (both may have spaces in them: hence no IFS), and
// $LAUNCH the launcher, with a time limit; returns its exit status.
int run_programs(const char *command);
// Fails unless the status is this one and the words are in what was printed.
void expect_printed(int status, int want, const char *words);
int printed_lines(void);
// The number behind the last `words` in what was printed.
double number_behind(const char *words);
// The numbers of that name in the lines of a log that have one (null: NaN); how many.
int logged(const char *file, const char *name, double out[LOGGED]);

// The suite, with files "text", "short" and "empty" in its folder.
int example_programs_main(int argc, char **argv, const char *suite);

#endif
