/* launches.h: graphs of several devices that one thread launches in turn. */
#ifndef SIMGPU_NCCL_LAUNCHES_H
#define SIMGPU_NCCL_LAUNCHES_H

// From now on launches that need other ranks of this process are held back.
void sim_launches_hold(void);
// Runs the launches that are held back, and waits for what they need.
void sim_launches_made(void);

#endif
