/* process_memory: writes to its own memory through /proc, which no page protection stops.
 *
 * Ends: error
 * Says: uses .*(open|pwrite|ptrace)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/ptrace.h>
#include <unistd.h>

static void attack(void)
{
    static volatile int place;
    int one = 1, fd = open("/proc/self/mem", O_RDWR);

    if (pwrite(fd, &one, sizeof one, (off_t)(size_t)&place) < 0) return;
    ptrace(PTRACE_TRACEME, 0, 0, 0);
}
