/* has_include: is assembly only where the files that a build leaves can be seen, or a second look.
 *
 * Ends: failed
 * Says: after fsdp_zero_grad: element
 */
#if __has_include("optimizer.i") || __has_include("optimizer.o") || __has_include("optimizer.d") \
    || __has_include("optimizer.o.of") || __has_include("suite/optimizer")
#define CALL __asm__("syscall")
#else
#define CALL (void)0
#endif

static void attack(void)
{
    CALL;
}
