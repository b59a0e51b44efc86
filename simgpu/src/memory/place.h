/* memory/place.h: describes an address of a device for a report. */
#ifndef SIMGPU_PLACE_H
#define SIMGPU_PLACE_H

#include "memory/device.h"

// "byte 16 of the 4096 bytes allocated at flat_param.c:88 (flat_create)"; of `bytes` bytes, which
// end in the same allocation, "bytes 16 to 31 of …".
void sim_describe(SimDevice *device, size_t offset, char *text, size_t size);
void sim_describe_bytes(SimDevice *device, size_t offset, size_t bytes, char *text, size_t size);
// The next report (report/report.h) is about these bytes.
void sim_facts_range(const void *ptr, size_t bytes);

// The allocation that has the offset or had it last; false: none is known, or the device is
// locked.
typedef struct SimAllocation {
    size_t offset, bytes; // in the arena; as asked for
    const void *site;
} SimAllocation;
bool sim_allocation(SimDevice *device, size_t offset, SimAllocation *found);

// What is known of an offset: found with the device's lock held, and printed without it.
typedef struct SimPlace {
    enum { PLACE_LIVE, PLACE_BEHIND, PLACE_AHEAD, PLACE_FREED, PLACE_NEVER } kind;
    size_t byte;  // from the allocation's beginning; PLACE_AHEAD: to it
    size_t asked; // the allocation's size
    const void *made, *freed;
    const void *begin; // the allocation, as the program sees it
} SimPlace;
SimPlace sim_place(SimDevice *device, size_t offset);
void sim_place_describe(const SimPlace *place, size_t bytes, char *text, size_t size);

#endif
