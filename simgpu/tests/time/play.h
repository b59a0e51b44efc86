/* play.h: what the files that run a program on simgpu share.
 *
 *   play.c          a run: its processes, what they make first, and the times that come out
 *   play_threads.c  which thread of a process makes which calls
 *   play_calls.c    the calls
 */
#ifndef SHARDLAB_TIME_PLAY_H
#define SHARDLAB_TIME_PLAY_H

#include "harness.h"
#include "program.h"

// What a process of the run has.
typedef struct Player {
    const Program *program;
    int process;
    ncclComm_t comms[MAX_COMMS][MAX_RANKS];
    cudaStream_t streams[MAX_RANKS][STREAMS];
    cudaEvent_t events[MAX_RANKS][EVENTS]; // by slot
    cudaEvent_t of_record[MAX_STEPS];
    char *device_buffer[MAX_RANKS], *pinned_buffer[MAX_RANKS];
    void *memory[3][MAX_RANKS][BLOCKS]; // stream-ordered, cudaMalloc's, pinned
    char pageable_buffer[MAX_RANKS][MAX_BYTES];
    Times *times; // in memory that the processes share
} Player;
extern Player player;

// Of the device's buffer; messages of a group need places of their own.
enum { BUFFER = (3 + 2 * MAX_CALLS) * MAX_BYTES };

bool is_mine(int rank);

// ---- play_calls.c ----

void call_cuda(const Step *s, int at);
// The calls of NCCL that a thread makes in a step: of all the process's ranks, or of one. In a
// group, where they are several.
void call_all(const Step *s, int only_rank);

// ---- play_threads.c ----

void run_steps(void);

#endif
