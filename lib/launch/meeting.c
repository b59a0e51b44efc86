/* The meeting of forked ranks. NCCL wants rank 0 to make a communicator's id and to hand it to the
 * others; ranks that share a parent share a page of memory, so that is where they hand it over.
 * Waiting is a futex on the number of ids published.
 *
 * Interface: meeting_open and meeting_close in the parent; meeting_publish, meeting_wait in the
 * ranks.
 */
#include "meeting.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t meeting_bytes(int size)
{
    return sizeof(Meeting) + (size_t)size * sizeof(struct MeetingRank);
}

Meeting *meeting_open(int size)
{
    void *page =
        mmap(NULL, meeting_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return page == MAP_FAILED ? NULL : page;
}

void meeting_close(Meeting *meeting, int size)
{
    munmap(meeting, meeting_bytes(size));
}

static void wake_all(Meeting *meeting)
{
    syscall(SYS_futex, &meeting->published, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

Status meeting_publish(Meeting *meeting, int which, const ncclUniqueId *id)
{
    if (which >= MEETING_IDS)
        return fail(ERR_ARGUMENT, "forked ranks can call world_connect %d times at most",
                    MEETING_IDS);
    meeting->id[which] = *id;
    atomic_fetch_add(&meeting->published, 1);
    wake_all(meeting);
    return OK;
}

Status meeting_wait(Meeting *meeting, int which, ncclUniqueId *id)
{
    int published;

    if (which >= MEETING_IDS)
        return fail(ERR_ARGUMENT, "forked ranks can call world_connect %d times at most",
                    MEETING_IDS);
    while (((published = atomic_load(&meeting->published)) & ~MEETING_CLOSED) <= which) {
        if (published & MEETING_CLOSED)
            return fail(ERR_NCCL, "rank 0 ended before it made the communicator's id");
        syscall(SYS_futex, &meeting->published, FUTEX_WAIT, published, NULL, NULL, 0);
    }
    *id = meeting->id[which];
    return OK;
}

void meeting_abandon(Meeting *meeting)
{
    atomic_fetch_or(&meeting->published, MEETING_CLOSED);
    wake_all(meeting);
}
