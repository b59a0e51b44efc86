/* model.h: the model that an example trains: a GPT-2, or a Llama with the same sizes. */
#ifndef EXAMPLES_MODEL_H
#define EXAMPLES_MODEL_H

#include "nn.h"

// What a Llama has in addition to the sizes that Gpt2Config names: vocab, max_T, layers, heads,
// dim.
typedef struct LlamaOptions {
    bool chosen;  // the model is a Llama
    int kv_heads; // 0: a quarter of the heads where 4 divides them, else as many
    int hidden;   // 0: 8/3 of dim, rounded up to a multiple of 8
    bool tied;    // the head's weight is the embedding's
    float eps;    // of the normalisations; 0: 1e-5
    RotaryConfig rotary;
} LlamaOptions;

// What goes with one model alone. attention: that --attention was given.
Status model_check(const LlamaOptions *llama, bool attention);
// The sizes of a Llama, with the defaults filled in.
LlamaConfig model_llama_config(const Gpt2Config *sizes, const LlamaOptions *llama);
// On meta; NULL, with a line, for sizes that no model has.
Module *model_create(const Gpt2Config *sizes, const LlamaOptions *llama);
const char *model_name(const LlamaOptions *llama); // "GPT-2"

#endif
