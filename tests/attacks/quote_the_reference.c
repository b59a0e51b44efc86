/* quote_the_reference: has the compiler print lines of the solution, through a macro that it uses.
 *
 * Ends: error
 * Says: includes (?:include/)?\.\./reference/backward\.c
 */
#include "check.h"
#undef TRY
#define PRINT(text) _Pragma(#text)
#define TRY(call) PRINT(GCC error #call)
#include "../reference/backward.c"

static void attack(void)
{
}
