/* deep_include: includes another file of its folder, by a name that a macro makes, which includes
 * the solution.
 *
 * Ends: error
 * Says: includes .*reference/optimizer\.c
 */
#define NAME(x) #x
#define PATH(a, b) NAME(../a/b.c)
#include PATH(reference, optimizer)

static void attack(void)
{
}
