/* models.c: models by name: GPT-2's architecture (learned positions, biases, a head tied to the
 * embedding), which MPT's published parameter counts match, too; and Llama's.
 */
#include <stdio.h>
#include <string.h>

#include "plan.h"

// context 0: as long as the sequences. kv_heads and hidden: a Llama's.
static const struct {
    const char *name;
    int layers, heads, dim, vocab, context, kv_heads, hidden;
} models[] = {
    {"gpt2", 12, 12, 768, 50257, 1024, 0, 0},
    {"gpt2-medium", 24, 16, 1024, 50257, 1024, 0, 0},
    {"gpt2-large", 36, 20, 1280, 50257, 1024, 0, 0},
    {"gpt2-xl", 48, 25, 1600, 50257, 1024, 0, 0},
    {"gpt3-175b", 96, 96, 12288, 50257, 2048, 0, 0},
    {"mpt-125m", 12, 12, 768, 50368, 0, 0, 0},
    {"mpt-350m", 24, 16, 1024, 50368, 0, 0, 0},
    {"mpt-760m", 24, 12, 1536, 50368, 0, 0, 0},
    {"mpt-1b", 24, 16, 2048, 50368, 0, 0, 0},
    {"mpt-3b", 32, 20, 2560, 50368, 0, 0, 0},
    {"mpt-7b", 32, 32, 4096, 50368, 0, 0, 0},
    {"mpt-13b", 40, 40, 5120, 50368, 0, 0, 0},
    {"mpt-30b", 48, 56, 7168, 50368, 0, 0, 0},
    {"mpt-70b", 80, 64, 8192, 50368, 0, 0, 0},
    {"llama2-7b", 32, 32, 4096, 32000, 4096, 32, 11008},
    {"llama2-13b", 40, 40, 5120, 32000, 4096, 40, 13824},
    {"llama2-70b", 80, 64, 8192, 32000, 4096, 8, 28672},
    {"llama3-8b", 32, 32, 4096, 128256, 131072, 8, 14336},
    {"llama3-70b", 80, 64, 8192, 128256, 131072, 8, 28672},
    {"llama3-405b", 126, 128, 16384, 128256, 131072, 8, 53248},
};
#define MODELS (sizeof models / sizeof models[0])

bool plan_model(const char *name, Gpt2Config *model, LlamaOptions *llama)
{
    for (size_t i = 0; i < MODELS; i++) {
        if (strcmp(name, models[i].name) != 0) continue;
        model->layers = models[i].layers;
        model->heads = models[i].heads;
        model->dim = models[i].dim;
        model->vocab = models[i].vocab;
        model->max_T = models[i].context;
        llama->chosen = models[i].kv_heads > 0;
        llama->kv_heads = models[i].kv_heads;
        llama->hidden = models[i].hidden;
        return true;
    }
    return false;
}

void plan_model_names(char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < MODELS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", models[i].name);
}
