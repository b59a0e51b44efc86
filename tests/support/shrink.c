/* shrink.c: see shrink.h. */
#include "shrink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 16 }; // values of a gene that are tried one by one

// Whether it fails with values[i] = value, which then stays.
static bool keep(int *values, int i, int value, FailsFn fails, void *arg, int *tried)
{
    int before = values[i];
    values[i] = value;
    ++*tried;
    if (fails(values, arg)) return true;
    values[i] = before;
    return false;
}

// Lowers values[i]. Whether it is lower than before.
static bool lower(const Gene *gene, int i, int *values, FailsFn fails, void *arg, int *tried)
{
    int before = values[i];
    for (int low = gene->least; gene->most - gene->least < FEW && low < values[i]; low++)
        if (keep(values, i, low, fails, arg, tried)) return true;
    if (gene->most - gene->least < FEW) return false;
    for (int step = before - gene->least; step > 0; step /= 2)
        while (values[i] - step >= gene->least)
            if (!keep(values, i, values[i] - step, fails, arg, tried)) break;
    return values[i] < before;
}

int shrink(const Gene *genes, int n, int *values, FailsFn fails, void *arg)
{
    int tried = 0;
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < n; i++) again |= lower(&genes[i], i, values, fails, arg, &tried);
    }
    return tried;
}

const char *case_text(const Gene *genes, int n, const int *values, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        if (values[i] != genes[i].least)
            used += (size_t)snprintf(text + used, size - used, "%s%s=%d", used > 0 ? " " : "",
                                     genes[i].name, values[i]);
    return text;
}

// One "name=value" of length `length`.
static bool read_word(const Gene *genes, int n, int *values, const char *word, size_t length)
{
    for (int i = 0; i < n; i++) {
        size_t name = strlen(genes[i].name);
        if (length <= name || word[name] != '=' || strncmp(word, genes[i].name, name) != 0)
            continue;
        char *end;
        long value = strtol(word + name + 1, &end, 10);
        if (end != word + length || end == word + name + 1 || value < genes[i].least ||
            value > genes[i].most) {
            fprintf(stderr, "\"%.*s\": %s is a whole number from %d to %d\n", (int)length, word,
                    genes[i].name, genes[i].least, genes[i].most);
            return false;
        }
        values[i] = (int)value;
        return true;
    }
    fprintf(stderr, "\"%.*s\" is no part of a case; these are:", (int)length, word);
    for (int i = 0; i < n; i++) fprintf(stderr, " %s=%d", genes[i].name, genes[i].least);
    fprintf(stderr, "\n");
    return false;
}

bool case_read(const Gene *genes, int n, int *values, const char *text)
{
    for (int i = 0; i < n; i++) values[i] = genes[i].least;
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (length > 0 && !read_word(genes, n, values, text, length)) return false;
        text += length + strspn(text + length, " ");
    }
    return true;
}
