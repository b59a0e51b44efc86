/* pch_pragma: asks for a precompiled header where only preprocessed text may.
 *
 * Ends: error
 * Says: precompiled header
 */
#pragma GCC pch_preprocess "optimizer.gch"

static void attack(void)
{
}
