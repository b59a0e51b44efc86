/* describe.h: calls, call sites and ends in words. */
#ifndef SIMGPU_NCCL_DESCRIBE_H
#define SIMGPU_NCCL_DESCRIBE_H

#include "nccl/call.h"

void sim_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// "byte 16 of flat->shard, the 4096 bytes …"; of other memory than a device's, the address.
void sim_describe_buffer(const void *ptr, char *text, size_t size);
const char *sim_type_name(int type);
const char *sim_op_name(int op);
// Converts a call site of that rank to one of this process; NULL: it runs another program.
const void *sim_site_here(const RankSlot *slot, const SharedSite *site);
void sim_describe_site(const RankSlot *slot, const SharedSite *site, char *text, size_t size);
// A rank's call in words, and as a fact of the report to come.
void sim_describe_desc(const RankSlot *slot, const CallDesc *desc, char *text, size_t size);
void sim_note_desc(int rank, const RankSlot *slot, const CallDesc *desc);
void sim_describe_host_call(const RankSlot *slot, const HostCall *in, char *text, size_t size);
void sim_note_host_call(int rank, const RankSlot *slot, const HostCall *in);
void sim_describe_waiting(const Call *call, char *text, size_t size);
// "exited with status 3", for a status as wait() gives it (a signal in the low bits, the exit
// status above); -1: not known.
void sim_describe_status(int status, char *text, size_t size);

#endif
