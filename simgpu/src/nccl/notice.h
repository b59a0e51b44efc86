/* notice.h: what ranks that wait say now and then, on stderr. */
#ifndef SIMGPU_NCCL_NOTICE_H
#define SIMGPU_NCCL_NOTICE_H

#include "nccl/shared.h"

typedef struct Notice { // of one wait
    double began, due;
    int said, waited; // how often, and seconds when it was due last
} Notice;
void sim_notice_begin(Notice *notice);
int sim_notice_left(const Notice *notice);   // milliseconds until it is due
int sim_notice_waited(const Notice *notice); // … since it began
bool sim_notice_due(Notice *notice);         // true: now, and not again until it is due once more
// Who has not joined, on stderr. The shared: NULL where it is not known yet.
void sim_say_absent(ncclComm_t comm, const CommShared *shared, const Notice *notice);
void sim_say_taken(ncclComm_t comm); // others meet where it was to
void sim_say(const char *text);      // in one write: ranks share a terminal

#endif
