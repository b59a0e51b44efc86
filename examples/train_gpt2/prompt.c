/* prompt.c: --generate: what a model writes after a prompt. Of a model of bytes both are text; else
 * they are tokens' numbers, which examples/tokenize.py makes from text and turns into text. See
 * program.h.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/generate.h"
#include "program.h"

enum { BYTES = 256 };

// The prompt's tokens (as many as it has characters at most) to `tokens`, where it is not NULL; how
// many, or -1, with a line.
static int read_prompt(const char *prompt, int vocab, int32_t *tokens)
{
    int n = 0;
    if (vocab == BYTES)
        for (; prompt[n] != '\0'; n++)
            if (tokens != NULL) tokens[n] = (unsigned char)prompt[n];
    for (const char *at = prompt; vocab != BYTES; n++) {
        char *end;
        at += strspn(at, " ,\t\n");
        if (*at == '\0') break;
        long token = strtol(at, &end, 10);
        if (end == at || token < 0 || token >= vocab) {
            fail(ERR_ARGUMENT,
                 "--generate '%.40s': want tokens from 0 to %d, as \"464 2068\" "
                 "(examples/tokenize.py "
                 "encode makes them from text)",
                 at, vocab - 1);
            return -1;
        }
        if (tokens != NULL) tokens[n] = (int32_t)token;
        at = end;
    }
    if (n == 0) fail(ERR_ARGUMENT, "--generate '': a prompt has a token at least");
    return n > 0 ? n : -1;
}

Status prompt_check(const Program *p)
{
    const char *prompt = p->opt.generate;
    return prompt == NULL || read_prompt(prompt, p->trainer.opt.model.vocab, NULL) > 0
               ? OK
               : ERR_ARGUMENT;
}

static void print(const int32_t *tokens, int n, int vocab)
{
    for (int i = 0; i < n; i++)
        if (vocab == BYTES)
            putchar(tokens[i]);
        else
            printf("%s%d", i > 0 ? " " : "", tokens[i]);
    putchar('\n');
}

Status prompt_continue(Program *p)
{
    Trainer *t = &p->trainer;
    int vocab = t->opt.model.vocab;
    if (p->opt.generate == NULL) return OK;
    int n = read_prompt(p->opt.generate, vocab, NULL), all = n + p->opt.tokens;
    int32_t *tokens = malloc((size_t)all * sizeof *tokens);
    if (tokens == NULL) return fail(ERR_MEMORY, "no host memory for %d tokens", all);
    read_prompt(p->opt.generate, vocab, tokens);
    const GenerateOptions options = {p->opt.temperature, p->opt.top_k, t->opt.seed};
    Status status = generate(t, &options, tokens, n, p->opt.tokens);
    if (status == OK && t->world.rank == 0) print(tokens, all, vocab);
    free(tokens);
    return status;
}
