/* launches.h: graphs of several devices that one thread launches in turn. */
#ifndef SIMGPU_NCCL_LAUNCHES_H
#define SIMGPU_NCCL_LAUNCHES_H

// Launches are held back, from now on, where they need other ranks of this process.
void sim_launches_hold(void);
// Makes those that are held back, and waits for what they need.
void sim_launches_made(void);

#endif
