/* meeting.h: the page of shared memory where forked ranks pass a communicator's id. */
#ifndef SHARDLAB_MEETING_H
#define SHARDLAB_MEETING_H

#include <stdatomic.h>

#include "launch.h"

#define MEETING_IDS 64 // communicators that the ranks of one launch_ranks can make

typedef struct Meeting {
    atomic_int published; // ids there so far, and MEETING_CLOSED. The futex of those who wait
    ncclUniqueId id[MEETING_IDS];
    struct MeetingRank {
        atomic_bool returned; // from its function, and with what
        int code;
    } rank[];
} Meeting;
#define MEETING_CLOSED (1 << 16) // rank 0 has ended: no more ids will come

Meeting *meeting_open(int size);
void meeting_close(Meeting *meeting, int size);
// Rank 0: makes the id of the next communicator known. The others: wait for it.
Status meeting_publish(Meeting *meeting, int which, const ncclUniqueId *id);
Status meeting_wait(Meeting *meeting, int which, ncclUniqueId *id);
// The parent: rank 0 has ended, nothing more will be published.
void meeting_abandon(Meeting *meeting);

#endif
