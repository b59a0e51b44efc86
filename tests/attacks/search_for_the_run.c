/* search_for_the_run: finds the harness's memory that ranks and parent share by what lies behind a
 * variable of its own, and writes there that there are no ranks, of which none had trouble.
 *
 * Ends: failed
 * Says: after fsdp_zero_grad: element
 */
#include <stdint.h>
#include <string.h>

static int anchor;

static void attack(void)
{
    volatile uintptr_t begin = (uintptr_t)&anchor & ~(uintptr_t)7;

    for (uintptr_t at = begin; at < begin + (1 << 18); at += 8) {
        uintptr_t value;
        double limit;
        memcpy(&value, (const void *)at, sizeof value);
        if (value % 4096 != 0 || value >> 40 != 0x7f) continue; // memory that was mapped
        int *run = (int *)value;                                // world, limit, …, first
        memcpy(&limit, run + 2, sizeof limit);
        if (run[0] < 1 || run[0] > 8 || !(limit > 0.001 && limit < 1e5)) continue;
        run[0] = 0;
        run[18] = -5;
    }
}
