/* A Llama-shaped model, its head tied or not, trains sharded on W = 1 ... 8 as it does unsharded:
 * bitwise, as equivalence.c and data_parallel.c have it of the MLP and of GPT-2.
 */
#include "claims.h"

TEST(same_data)
{
    for (int world = 1; world <= 8; world *= 2) {
        claim_same_data(spec_llama(2, false), world, 20, 0.0f);
        claim_same_data(spec_llama(1, true), world, 10, 0.0f);
    }
}

TEST(different_data)
{
    for (int world = 1; world <= 8; world++)
        claim_different_data(spec_llama(2, world % 3 == 0), world, 5);
}

TEST(padding_and_bytes)
{
    claim_padding(spec_llama(2, false), 5);
    claim_padding(spec_llama(2, true), 7);
    claim_live_bytes(spec_llama(2, true), 3);
    claim_peak(spec_llama(4, false), 4);
    claim_traffic(spec_llama(2, true), 3);
    claim_traffic(spec_llama(2, false), 4);
}

// Llama 3's 8B on meta, as the kit counts it.
TEST(counts_8b)
{
    LlamaConfig config = {.vocab = 128256,
                          .max_T = 8192,
                          .layers = 32,
                          .heads = 32,
                          .kv_heads = 8,
                          .dim = 4096,
                          .hidden = 14336};
    Module *m = llama_create(&config);
    assert_non_null(m);
    assert_int_equal(meta_count(m), 8030261248);
    assert_int_equal(meta_bytes(m), 4 * 8030261248);
    module_destroy(m);
}

TEST(reshard_or_keep)
{
    claim_reshard(spec_llama(3, false), 3, 10);
}

SUITE_MAIN("llama sharded")
