/* check/: what is wrong with a program that runs to its end all the same.
 *
 *   race.c     operations that did not wait for each other, and reads of what nobody wrote
 *   shadow.c   who touched which bytes of an allocation last (shadow.h)
 *   overlap.c  operands that overlap or are not aligned
 *   fault.c    host code that touches device memory
 *   syscall.c  the same by a system call: write, read, send and the like
 *   leak.c     what is still alive when the process ends
 *   end.c      the end of a process by exit
 *
 * What an operation touches is brought here by streams/kernel.c and memory/; what is found goes to
 * report/. The checks of races have a header of their own, shadow.h.
 */
#ifndef SIMGPU_CHECK_H
#define SIMGPU_CHECK_H

#include "streams/streams.h"

// ---- fault.c ----
void sim_fault_install(void); // once
void sim_fault_thread(void); // gives this thread a stack for its signals
// Whether a touch of closed memory by this thread comes here: nobody else has taken SIGSEGV since,
// and it is not blocked.
bool sim_fault_catches(void);
// Reports that the host touches device memory, in a system call of that name or, where `call` is
// NULL, by itself; ends the process.
_Noreturn void sim_fault_device(const char *call, const void *ptr, const char *verb,
                                const void *site);
// The call site of the innermost place in the program, where a call that is still under way
// returns to return_address.
const void *sim_fault_site(const void *return_address);

// ---- syscall.c ----
void sim_syscall_install(void); // from now on system calls are looked at

// ---- overlap.c ----
// Whether ptr is a multiple of `align`; else it is reported, and the operation fails.
bool sim_check_aligned(SimgpuOp *op, const void *ptr, size_t bytes, size_t align);
// Reports what the ended operation writes over its own other operands. Called by simgpu_end.
void sim_check_overlap(const SimgpuOp *op);
void sim_report_overlap(const SimgpuOp *op, const GpuRange *written, const GpuRange *other,
                        const char *rule);

// ---- leak.c ---- What is alive at the process's end. Each owner of such things notes what it has,
// waiting for no lock.
typedef enum SimThing {
    THING_MEMORY,
    THING_PINNED,
    THING_STREAM,
    THING_EVENT,
    THING_COMM,
    THING_BLAS,
    SIM_THINGS
} SimThing;
typedef struct SimLeaks SimLeaks;
void sim_leak_note(SimLeaks *leaks, SimThing thing, const void *ptr, size_t bytes,
                   const void *site);
void sim_leak_reset(void); // a cudaDeviceReset took things away

// ---- end.c ----
// Has `run` run when the process ends by exit, with its status; those registered last come first.
void sim_on_end(void (*run)(int status));

#endif
