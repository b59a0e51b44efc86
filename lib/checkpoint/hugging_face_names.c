/* hugging_face_names.c: Hugging Face's names and layouts of GPT-2's and Llama's parameters.
 *
 * Hugging Face has GPT-2's linear layers as Conv1D, y = x·W + b with W (in, out); ours are
 * y = x·Wᵀ + b with W (out, in). In both, queries, keys and values are thirds of the columns. The
 * head is tied to the embedding, and the file does not have it.
 *
 * Llama's linear layers have our layout. Their three layers for queries, keys and values are rows
 * of one layer of ours, and so are their gate and up. In both, a rotary position turns columns i
 * and i + hs/2 as a pair (their rotate_half), so the order of rows is the same. (Meta's own files
 * pair columns 2i and 2i + 1.) The file does not have a head that is tied.
 */
#include "hugging_face.h"

#include <stdio.h>
#include <string.h>

typedef struct Name {
    const char *ours, *theirs;
} Name;

// Sets the name that they have for a parameter, after the prefix. It has all of its rows.
static void begin_piece(HuggingFacePiece *piece, const Param *param, const char *prefix,
                        const Name *names, size_t n)
{
    *piece = (HuggingFacePiece){.rows = param->shape[0],
                                .columns = param->ndim == 2 ? param->shape[1] : 1};
    piece->ndim = param->ndim;
    piece->bare = piece->name + strlen(prefix);
    for (size_t i = 0; i < n; i++) {
        const char *found = strstr(param->name, names[i].ours);
        if (found == NULL) continue;
        snprintf(piece->name, sizeof piece->name, "%s%.*s%s%s", prefix, (int)(found - param->name),
                 param->name, names[i].theirs, found + strlen(names[i].ours));
        return;
    }
    snprintf(piece->name, sizeof piece->name, "%s%s", prefix, param->name);
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// ---- GPT-2 ----

static int gpt2_pieces(const Param *param, HuggingFacePiece *pieces)
{
    static const Name NAMES[] = {{"embed.wte", "wte.weight"}, {"embed.wpe", "wpe.weight"},
                                 {"attn.qkv", "attn.c_attn"}, {"attn.proj", "attn.c_proj"},
                                 {"mlp.fc", "mlp.c_fc"},      {"mlp.proj", "mlp.c_proj"}};
    begin_piece(pieces, param, "transformer.", NAMES, sizeof NAMES / sizeof NAMES[0]);
    // Weights of linear layers, which are all in blocks.
    pieces->turned = param->ndim == 2 && strncmp(param->name, "h.", 2) == 0;
    return 1;
}

// Masks.
static bool gpt2_leaves_aside(const char *name)
{
    return ends_in(name, ".attn.bias") || ends_in(name, ".attn.masked_bias");
}

const HuggingFaceModel hugging_face_gpt2 = {false, gpt2_pieces, gpt2_leaves_aside};

// ---- Llama ----

// The rest of a name in a block, "h.3.attn.qkv.weight", is `ours`; then "layers.3." and `theirs`.
static void name_in_block(HuggingFacePiece *piece, const Param *param, const char *theirs)
{
    const char *number = param->name + strlen("h.");
    snprintf(piece->name, sizeof piece->name, "model.layers.%.*s.%s.weight",
             (int)strcspn(number, "."), number, theirs);
}

// Of qkv.weight (C + 2·kv, C): C rows of queries, kv of keys and kv of values.
static int qkv_pieces(const Param *param, HuggingFacePiece *pieces)
{
    static const char *const PARTS[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    int64_t queries = param->shape[1], keys = (param->shape[0] - queries) / 2;
    for (int i = 0; i < 3; i++) {
        begin_piece(&pieces[i], param, "model.", NULL, 0);
        name_in_block(&pieces[i], param, PARTS[i]);
        pieces[i].first = i == 0 ? 0 : queries + (i - 1) * keys;
        pieces[i].rows = i == 0 ? queries : keys;
    }
    return 3;
}

static int gate_up_pieces(const Param *param, HuggingFacePiece *pieces)
{
    for (int i = 0; i < 2; i++) {
        begin_piece(&pieces[i], param, "model.", NULL, 0);
        name_in_block(&pieces[i], param, i == 0 ? "mlp.gate_proj" : "mlp.up_proj");
        pieces[i].first = i * (param->shape[0] / 2);
        pieces[i].rows = param->shape[0] / 2;
    }
    return 2;
}

static int llama_pieces(const Param *param, HuggingFacePiece *pieces)
{
    static const Name NAMES[] = {{"embed.wte", "embed_tokens.weight"}, {"norm_f", "norm"}};
    static const Name IN_BLOCK[] = {{".norm_1.", "input_layernorm"},
                                    {".norm_2.", "post_attention_layernorm"},
                                    {".attn.proj.", "self_attn.o_proj"},
                                    {".mlp.down.", "mlp.down_proj"}};
    if (strstr(param->name, ".attn.qkv.") != NULL) return qkv_pieces(param, pieces);
    if (strstr(param->name, ".mlp.gate_up.") != NULL) return gate_up_pieces(param, pieces);
    begin_piece(pieces, param, "model.", NAMES, sizeof NAMES / sizeof NAMES[0]);
    for (size_t i = 0; i < sizeof IN_BLOCK / sizeof IN_BLOCK[0]; i++)
        if (strstr(param->name, IN_BLOCK[i].ours) != NULL)
            name_in_block(pieces, param, IN_BLOCK[i].theirs);
    if (strcmp(param->name, "head.weight") == 0) {
        snprintf(pieces->name, sizeof pieces->name, "lm_head.weight");
        pieces->bare = pieces->name; // it has no prefix
    }
    return 1;
}

// Frequencies, which older files have.
static bool llama_leaves_aside(const char *name)
{
    return ends_in(name, ".rotary_emb.inv_freq");
}

const HuggingFaceModel hugging_face_llama = {true, llama_pieces, llama_leaves_aside};
