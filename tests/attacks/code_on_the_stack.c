/* code_on_the_stack: runs code on the stack, which a pointer to an inner function makes possible.
 *
 * Ends: error
 * Says: makes the stack executable
 */
static int sum;

static void each(void (*fn)(int))
{
    for (int i = 0; i < 3; i++) fn(i);
}

static void attack(void)
{
    int base = sum;
    void inner(int i)
    {
        sum += i + base;
    }
    each(inner);
}
