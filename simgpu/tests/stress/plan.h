/* plan.h: random sequences of collectives, messages, groups and splits, drawn from a seed.
 *
 * A seed says everything, step by step: what is called, with which type, count and root, on which
 * communicator and stream, in which group. All numbers are small whole ones, so that every result
 * is exact in every type, and is checked.
 */
#ifndef SHARDLAB_STRESS_PLAN_H
#define SHARDLAB_STRESS_PLAN_H

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MAX_WORLD = 8,
    MAX_BATCH = 4, // calls in one group
};

typedef struct Actor {
    int rank, world;
    ncclComm_t comm[2]; // of all ranks; in the second they are numbered backwards
    cudaStream_t stream[2];
    ncclComm_t part; // of a split, while one is tried
    char *send[MAX_BATCH], *recv[MAX_BATCH];
    bool in_turn; // several threads play it, one after the other
    bool blocks;  // its communicators all do: who waits in one reports a rank that died
} Actor;

// Makes what n actors (one, or all) need in addition to comm[0], and frees it again.
void equip(Actor *actor, int n);
void strip(Actor *actor, int n);
// Plays them through batches [0, batches).
void play(Actor *actor, int n, uint64_t seed, uint64_t batches);

#endif
