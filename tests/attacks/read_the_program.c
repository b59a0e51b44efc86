/* read_the_program: reads the program's file, to find expected values in it.
 *
 * Ends: error
 * Says: uses .*(fopen|fread)
 */
#include <stdio.h>

static void attack(void)
{
    char bytes[4096];
    FILE *file = fopen("/proc/self/exe", "rb");

    if (file != NULL && fread(bytes, 1, sizeof bytes, file) > 0) fclose(file);
}
