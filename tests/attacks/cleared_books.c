/* cleared_books: resets the peak of memory and the traffic after using them.
 *
 * Ends: error
 * Says: uses .*gpulog_reset_
 */
#include "gpulog.h"

static void attack(void)
{
    gpulog_reset_peak(0);
    gpulog_reset_traffic();
}
