/* sample.c: text that a byte-level model writes. See sample.h. */
#include "sample.h"

#include <stdio.h>
#include <stdlib.h>

#include "generate.h"

#define TEMPERATURE 0.7f

static void print(const int32_t *tokens, int n)
{
    printf("\na sample, at temperature %.1f\n  ", (double)TEMPERATURE);
    for (int i = 0; i < n; i++) {
        if (tokens[i] == '\n')
            printf("\n  ");
        else
            putchar(tokens[i] >= 32 && tokens[i] < 127 ? tokens[i] : '.');
    }
    printf("\n");
}

Status sample_text(Trainer *t, int bytes)
{
    static const char prompt[] = "The ";
    static const GenerateOptions OPTIONS = {.temperature = TEMPERATURE, .seed = 42};
    int n = (int)sizeof prompt - 1;
    int32_t *tokens = malloc((size_t)(n + bytes) * sizeof *tokens);
    if (tokens == NULL) return fail(ERR_MEMORY, "no host memory for a sample");
    for (int i = 0; i < n; i++) tokens[i] = prompt[i];
    Status status = generate(t, &OPTIONS, tokens, n, bytes);
    if (status == OK && t->world.rank == 0) print(tokens, n + bytes);
    free(tokens);
    return status;
}
