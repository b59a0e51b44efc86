/* memory/fault.h: touches of memory that the host must not touch: by its own code (fault.c), or by
 * a system call (syscall.c).
 */
#ifndef SIMGPU_FAULT_H
#define SIMGPU_FAULT_H

#include <stdbool.h>

void sim_fault_install(void); // once
void sim_fault_thread(void);  // gives this thread a stack for its signals
// Whether a touch of closed memory by this thread comes here: no other handler for SIGSEGV has been
// installed since, and it is not blocked.
bool sim_fault_catches(void);
// Reports that the host touches device memory, in a system call of that name or, if `call` is NULL,
// by its own code; ends the process.
_Noreturn void sim_fault_device(const char *call, const void *ptr, const char *verb,
                                const void *site);
// The call site of the innermost place in the program during a call that will return to
// return_address.
const void *sim_fault_site(const void *return_address);

// ---- syscall.c ----
void sim_syscall_install(void); // from now on system calls are checked

#endif
