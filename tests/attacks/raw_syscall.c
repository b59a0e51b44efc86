/* raw_syscall: calls the system without the C library; the word is made of two halves.
 *
 * Ends: error
 * Says: assembly
 */
#define WORD_OF(a, b) a##b
#define WORD(a, b) WORD_OF(a, b)

static void attack(void)
{
    long number = 231; // exit_group on x86-64

    WORD(__as, m__) volatile("syscall" : "+a"(number) : "D"(0) : "rcx", "r11", "memory");
}
