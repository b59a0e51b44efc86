/* settings.c: NAME=VALUE on the command line. See settings.h. */
#include "settings.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(name) #name
static const char *const names[SETTINGS] = {PLAN_SETTINGS(NAME)};

Status plan_refuse(const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "plan: %s\n", text);
    return ERR_ARGUMENT;
}

Status plan_read(int argc, char **argv, PlanValues value)
{
    for (int i = 1; i < argc; i++) {
        int k = 0;
        const char *equals = strchr(argv[i], '=');
        size_t length = equals ? (size_t)(equals - argv[i]) : 0;
        while (k < SETTINGS && (strlen(names[k]) != length || strncmp(names[k], argv[i], length)))
            k++;
        if (k == SETTINGS)
            return plan_refuse("\"%.80s\" is not a setting of a plan: MODEL=gpt2-xl, "
                               "GPUS=1024 and others are (handouts/plan.md)",
                               argv[i]);
        if (equals[1]) value[k] = equals + 1;
    }
    return OK;
}

Status plan_number_from(const PlanValues value, PlanSetting which, int least, int otherwise,
                        int *number)
{
    char *end;
    *number = otherwise;
    if (!value[which]) return OK;
    errno = 0;
    long read = strtol(value[which], &end, 10);
    if (errno || *end || read < least || read > INT_MAX)
        return plan_refuse("%s=%.40s: must be a whole number from %d to %d", names[which],
                           value[which], least, INT_MAX);
    *number = (int)read;
    return OK;
}

Status plan_number(const PlanValues value, PlanSetting which, int otherwise, int *number)
{
    return plan_number_from(value, which, 1, otherwise, number);
}

Status plan_word(const PlanValues value, PlanSetting which, const char *const *words, int n,
                 int *found)
{
    char list[200] = "";
    *found = 0;
    if (!value[which]) return OK;
    for (*found = 0; *found < n; ++*found)
        if (strcmp(value[which], words[*found]) == 0) return OK;
    for (int i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                 i == 0       ? ""
                 : i == n - 1 ? " or "
                              : ", ",
                 words[i]);
    return plan_refuse("%s=%.40s: must be %s", names[which], value[which], list);
}

Status plan_choice(const PlanValues value, PlanSetting which, const char *first, const char *second,
                   bool *is_second)
{
    const char *const words[] = {first, second};
    int word;
    TRY(plan_word(value, which, words, 2, &word));
    *is_second = word == 1;
    return OK;
}
