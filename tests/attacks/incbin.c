/* incbin: puts the bytes of a file into its object by the assembler.
 *
 * Ends: error
 * Says: assembly
 */
__asm__(".section .rodata\n.global stolen\nstolen: .incbin \"/etc/passwd\"\n.previous\n");

static void attack(void)
{
}
