/* books.h: how the books of gpulog.h are written: by simgpu on simulated GPUs, by the interposer
 * (gpulog/wrap) on real ones. Readers include gpulog.h alone.
 *
 * Interface: books_write, books_last, books_reserve: the log; books_allocated, books_freed: the
 * bytes a device holds.
 */
#ifndef GPULOG_BOOKS_H
#define GPULOG_BOOKS_H

#include "gpulog.h"

#define BOOKS_DEVICES 64

// Appends an operation, and counts its traffic where it is a collective. The entry's index is set
// here.
void books_write(const GpuLogEntry *entry);

// The last entry, without waiting for a lock: for a process that may be dying.
bool books_last(GpuLogEntry *entry);

// How many operations the log keeps. Has no effect once something has been written.
void books_reserve(size_t entries);

// `bytes` bytes more, or fewer, are allocated on a device.
void books_allocated(int device, size_t bytes);
void books_freed(int device, size_t bytes);

#endif
