/* own_books: keeps the log of memory and traffic itself: nothing was used.
 *
 * Ends: error
 * Says: defines gpulog_
 */
#include "gpulog.h"

size_t gpulog_peak_bytes(int device)
{
    return 0;
}

static void attack(void)
{
}
