/* options.c: the command line of an example. See options.h. */
#include "options.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Status parse_int(const char *name, const char *text, int low, int *value)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || number < low || number > 0x7fffffff)
        return fail(ERR_ARGUMENT, "--%s %s: want a whole number of at least %d", name, text, low);
    *value = (int)number;
    return OK;
}

Status parse_float(const char *name, const char *text, bool or_zero, float *value)
{
    char *end;
    *value = strtof(text, &end);
    bool good = *value > 0.0f || (or_zero && *value == 0.0f);
    if (*text == '\0' || *end != '\0' || !good || isinf(*value))
        return fail(ERR_ARGUMENT, "--%s %s: want a number %s", name, text,
                    or_zero ? "of at least 0" : "above 0");
    return OK;
}

static Status parse_pair(const char *name, const char *text, float *value)
{
    char rest;
    if (sscanf(text, "%f,%f%c", &value[0], &value[1], &rest) == 2 && value[0] >= 0.0f &&
        value[0] < 1.0f && value[1] >= 0.0f && value[1] < 1.0f)
        return OK;
    return fail(ERR_ARGUMENT, "--%s %s: want two numbers from 0 to less than 1, as 0.9,0.95", name,
                text);
}

// "ddp, zero1 or zero2".
static void join(const char *const *choices, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; choices[i] != NULL && used < size; i++) {
        const char *before = i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%s", before, choices[i]);
    }
}

static Status parse_choice(const Option *option, const char *text)
{
    char all[256];
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(text, option->choices[i]) != 0) continue;
        memcpy(option->value, &i, sizeof i);
        return OK;
    }
    join(option->choices, all, sizeof all);
    return fail(ERR_ARGUMENT, "--%s is %s, not '%s'", option->name, all, text);
}

static Status parse_one(const Option *option, const char *text)
{
    if (option->given != NULL) *option->given = true;
    switch (option->kind) {
    case OPTION_FLAG: *(bool *)option->value = true; return OK;
    case OPTION_INT: return parse_int(option->name, text, option->low, option->value);
    case OPTION_FLOAT: return parse_float(option->name, text, false, option->value);
    case OPTION_NUMBER: return parse_float(option->name, text, true, option->value);
    case OPTION_PAIR: return parse_pair(option->name, text, option->value);
    case OPTION_TEXT: *(const char **)option->value = text; return OK;
    case OPTION_CHOICE: return parse_choice(option, text);
    }
    return OK;
}

Status options_parse(const Option *options, int n, int argc, char **argv, int *rest, bool *help)
{
    struct option names[MOST_OPTIONS + 2] = {{"help", no_argument, NULL, 'h'}};
    int choice, index = 0;
    *help = false;
    if (n > MOST_OPTIONS) return fail(ERR_ARGUMENT, "%d options, more than MOST_OPTIONS", n);
    for (int i = 0; i < n; i++)
        names[i + 1] = (struct option){
            .name = options[i].name,
            .has_arg = options[i].kind == OPTION_FLAG ? no_argument : required_argument};
    while ((choice = getopt_long(argc, argv, "", names, &index)) != -1) {
        if (choice == 'h') {
            *help = true;
            *rest = argc;
            return OK;
        }
        if (choice == '?') return fail(ERR_ARGUMENT, "%s --help tells the options", argv[0]);
        TRY(parse_one(&options[index - 1], optarg));
    }
    *rest = optind;
    return OK;
}
