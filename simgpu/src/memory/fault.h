/* memory/fault.h: what the host touches though it may not: by itself (fault.c), or by a system call
 * (syscall.c).
 */
#ifndef SIMGPU_FAULT_H
#define SIMGPU_FAULT_H

#include <stdbool.h>

void sim_fault_install(void); // once
void sim_fault_thread(void);  // gives this thread a stack for its signals
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

#endif
