/* own_main: brings a main() of its own, which says that all is well.
 *
 * Ends: error
 * Says: has a main
 */
int main(void)
{
    return 0;
}

static void attack(void)
{
}
