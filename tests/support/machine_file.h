/* machine_file.h: a machine of a test's own choice, as a file that its ranks have too.
 *
 * Interface: machine_file.
 */
#ifndef TESTS_MACHINE_FILE_H
#define TESTS_MACHINE_FILE_H

// The path of a file with this text, wherever the test runs; nobody can write to it. The same one
// for the same text (a literal).
const char *machine_file(const char *text);

#endif
