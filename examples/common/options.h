/* options.h: the command line of an example. */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include <stdbool.h>

#include "check.h"

typedef enum OptionKind {
    OPTION_FLAG,   // --name: a bool becomes true
    OPTION_INT,    // --name N: an int, at least `low`
    OPTION_FLOAT,  // --name X: a float above 0
    OPTION_NUMBER, // --name X: a float, 0 or more
    OPTION_PAIR,   // --name X,Y: two floats, each from 0 to less than 1
    OPTION_TEXT,   // --name X: a const char *
    OPTION_CHOICE, // --name X: one of `choices`, whose index an int or an enum becomes
} OptionKind;

typedef struct Option {
    const char *name;
    OptionKind kind;
    void *value; // where it goes, as its kind says
    int low;
    const char *const *choices; // the last one is NULL
    bool *given;                // becomes true where the option is given; NULL: nobody asks
} Option;

enum { MOST_OPTIONS = 80 };

// Reads --name of the n options, in any order; *rest is the first argument that is none of them.
// *help: --help was among them; nothing after it was read, and *rest is argc. ERR_ARGUMENT, with
// one line, for an option that is not there or a value that does not suit it.
Status options_parse(const Option *options, int n, int argc, char **argv, int *rest, bool *help);

// A whole number in [low, 2³¹), or an error with one line. `name` is the option's.
Status parse_int(const char *name, const char *text, int low, int *value);
// A finite number above 0, or from 0 on.
Status parse_float(const char *name, const char *text, bool or_zero, float *value);

#endif
