/* notice.h: prints notices on stderr while a rank waits for long. */
#ifndef SIMGPU_NCCL_NOTICE_H
#define SIMGPU_NCCL_NOTICE_H

#include "nccl/shared.h"

typedef struct Notice { // of one wait
    double began, due;
    int said, waited; // how many were printed, and the seconds when the last one was due
} Notice;
void sim_notice_begin(Notice *notice);
int sim_notice_left(const Notice *notice);   // milliseconds until it is due
int sim_notice_waited(const Notice *notice); // … since it began
bool sim_notice_due(Notice *notice);         // whether one is due; then the next is not yet
// Prints which ranks have not joined. shared: NULL if the memory is not known yet.
void sim_say_absent(ncclComm_t comm, const CommShared *shared, const Notice *notice);
void sim_say_taken(ncclComm_t comm); // another communicator uses the place where it was to meet
void sim_say(const char *text);      // prints by one write: ranks share a terminal

#endif
