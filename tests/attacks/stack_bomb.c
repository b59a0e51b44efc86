/* stack_bomb: uses up the stack, by the compiler's own function.
 *
 * Ends: failed
 * Says: signal|crash|SIGSEGV|bad memory
 */
static void attack(void)
{
    volatile char *big = __builtin_alloca(1ul << 33);

    for (unsigned long i = 0; i < 1ul << 33; i += 4096) big[i] = 1;
}
