/* include_bomb: includes itself twice, two hundred deep.
 *
 * Ends: error
 * Says: takes too long to compile|does not compile|longer than|of memory to compile|more than
 */
#if __INCLUDE_LEVEL__ < 180
#include "optimizer.c"
#include "optimizer.c"
#endif
static void attack(void);
