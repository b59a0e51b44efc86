/* section_name: hands the assembler lines of its own inside the name of a section.
 *
 * Ends: error
 * Says: attribute section
 */
__attribute__((section(".data\n.incbin \"/etc/passwd\"\n#"))) int x = 1;

static void attack(void)
{
}
