/* compile_time_bomb: expands to more than anybody will wait for.
 *
 * Ends: error
 * Says: takes too long to compile|longer than|when compiled|of memory to compile
 */
#define A(x) x x x x x x x x
#define B(x) A(A(x))
#define C(x) B(B(x))
#define D(x) C(C(x))
static volatile int n;

static void attack(void)
{
    D(D(n++;))
}
