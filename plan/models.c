/* models.c: models by name. All are GPT-2's architecture: learned positions, biases, a head tied to
 * the embedding. MPT's published parameter counts are those of that architecture.
 *
 * Interface: plan_model, plan_model_names.
 */
#include <stdio.h>
#include <string.h>

#include "plan.h"

// context 0: as long as the sequences are.
static const struct {
    const char *name;
    int layers, heads, dim, vocab, context;
} models[] = {
    {"gpt2", 12, 12, 768, 50257, 1024},        {"gpt2-medium", 24, 16, 1024, 50257, 1024},
    {"gpt2-large", 36, 20, 1280, 50257, 1024}, {"gpt2-xl", 48, 25, 1600, 50257, 1024},
    {"gpt3-175b", 96, 96, 12288, 50257, 2048}, {"mpt-125m", 12, 12, 768, 50368, 0},
    {"mpt-350m", 24, 16, 1024, 50368, 0},      {"mpt-760m", 24, 12, 1536, 50368, 0},
    {"mpt-1b", 24, 16, 2048, 50368, 0},        {"mpt-3b", 32, 20, 2560, 50368, 0},
    {"mpt-7b", 32, 32, 4096, 50368, 0},        {"mpt-13b", 40, 40, 5120, 50368, 0},
    {"mpt-30b", 48, 56, 7168, 50368, 0},       {"mpt-70b", 80, 64, 8192, 50368, 0},
};
#define MODELS (sizeof models / sizeof models[0])

bool plan_model(const char *name, Gpt2Config *model)
{
    for (size_t i = 0; i < MODELS; i++) {
        if (strcmp(name, models[i].name) != 0) continue;
        model->layers = models[i].layers;
        model->heads = models[i].heads;
        model->dim = models[i].dim;
        model->vocab = models[i].vocab;
        model->max_T = models[i].context;
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
