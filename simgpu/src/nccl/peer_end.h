/* peer_end.h: the watcher, which notices the ends of peers' processes. */
#ifndef SIMGPU_NCCL_PEER_END_H
#define SIMGPU_NCCL_PEER_END_H

#include "nccl/peers.h"

int sim_open_pidfd(int pid); // a pidfd; -1: the kernel has none, or there is no such process
// The wait status of an ended process; -1 where the kernel does not say.
int sim_ended_how(int pid, int pidfd);
bool sim_is_dead(int pid);
void sim_peers_changed(void); // the list sim_peers has changed
// Writes into all shared memory of this process that a peer has ended. Called with the lock held.
void sim_mark_ended(const Peer *peer);
void sim_peer_end_forked(void);

#endif
