/* include_anything: includes a file of the machine's.
 *
 * Ends: error
 * Says: includes /etc/
 */
static const char file[] =
#if 1
#include "/etc/hostname"
#endif
;

static void attack(void)
{
}
