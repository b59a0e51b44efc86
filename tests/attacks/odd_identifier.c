/* odd_identifier: spells a forbidden word with universal character names and digraphs.
 *
 * Ends: error
 * Says: does not compile
 */
static void attack(void)
<%
    __\u0061sm__("syscall");
%>
