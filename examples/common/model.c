/* model.c: the model that an example trains. See model.h. */
#include "model.h"

#include <limits.h>

Status model_check(const LlamaOptions *llama, bool attention)
{
    if (llama->chosen && attention)
        return fail(ERR_ARGUMENT, "--attention is for --model gpt2: a Llama's is always fused");
    if (!llama->chosen && (llama->kv_heads > 0 || llama->hidden > 0 || llama->tied))
        return fail(ERR_ARGUMENT, "--kv-heads, --hidden and --tied are for --model llama");
    return OK;
}

static int kv_heads_of(const Gpt2Config *sizes, const LlamaOptions *llama)
{
    if (llama->kv_heads > 0) return llama->kv_heads;
    return sizes->heads % 4 == 0 ? sizes->heads / 4 : sizes->heads;
}

// So that the three matrices of SwiGLU have about as many elements as GPT-2's two of 4·dim.
static int hidden_of(const Gpt2Config *sizes, const LlamaOptions *llama)
{
    if (llama->hidden > 0) return llama->hidden;
    int64_t hidden = ((int64_t)sizes->dim * 8 / 3 + 7) / 8 * 8;
    return hidden < INT_MAX ? (int)hidden : INT_MAX;
}

LlamaConfig model_llama_config(const Gpt2Config *sizes, const LlamaOptions *llama)
{
    return (LlamaConfig){
        .vocab = sizes->vocab,
        .max_T = sizes->max_T,
        .layers = sizes->layers,
        .heads = sizes->heads,
        .kv_heads = kv_heads_of(sizes, llama),
        .dim = sizes->dim,
        .hidden = hidden_of(sizes, llama),
        .tied = llama->tied,
        .eps = llama->eps,
        .rotary = llama->rotary,
        .dtype = sizes->dtype,
    };
}

Module *model_create(const Gpt2Config *sizes, const LlamaOptions *llama)
{
    const LlamaConfig config = model_llama_config(sizes, llama);
    return llama->chosen ? llama_create(&config) : gpt2_create(sizes);
}

const char *model_name(const LlamaOptions *llama)
{
    return llama->chosen ? "Llama" : "GPT-2";
}
