/* object_bomb: has an object of two gigabytes.
 *
 * Ends: error
 * Says: when compiled|of memory to compile
 */
char large[1u << 31] = {1};

static void attack(void)
{
}
