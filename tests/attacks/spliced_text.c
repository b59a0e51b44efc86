/* spliced_text: a macro leaves a backslash at the end of a line, to join it with the next one once
 * the text is compiled.
 *
 * Ends: error
 * Says: backslash at the end
 */
#define LAST(x) x
static void attack(void)
{
    __as LAST(\)
m__("syscall");
}
