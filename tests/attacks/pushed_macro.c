/* pushed_macro: has a forbidden word pushed away while a reader looks, and popped where it counts.
 *
 * Ends: error
 * Says: assembly
 */
#define quiet __asm__
#pragma push_macro("quiet")
#undef quiet
#define quiet (void)
#pragma pop_macro("quiet")

static void attack(void)
{
    quiet("syscall");
}
