/* options.h: numbers on the command line of an example.
 *
 * Interface: parse_int, parse_float.
 */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include "check.h"

// A whole number in [low, 2³¹), or an error with one line. `name` is the option's.
Status parse_int(const char *name, const char *text, int low, int *value);
// A finite number above 0.
Status parse_float(const char *name, const char *text, float *value);

#endif
