/* fault.c: reports host code that touches device memory, or pinned memory during a copy.
 *
 * The addresses that programs see have no access rights, so reading or writing one raises SIGSEGV.
 * The handler here reports the allocation and the line, and ends the process. Pinned memory that a
 * copy uses has no access rights either (pages.c); there the program goes on. Any other fault goes
 * to the handler that was installed before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/config.h"
#include "log_writer.h"
#include "memory/aarch64.h"
#include "memory/fault.h"
#include "memory/pinned.h"
#include "memory/place.h"
#include "report/report.h"

#define STACK_BYTES ((size_t)512 << 10)  // reading debug information takes some
#define STACK_ENOUGH ((size_t)128 << 10) // a sanitizer sets up less
#define FRAMES 64
#define SEARCH_SECONDS 10

static struct sigaction previous;

// The instruction that faulted.
static const void *fault_address(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (const void *)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (const void *)context->uc_mcontext.pc;
#else
    return NULL;
#endif
}

// "reads" or "writes"; "touches" if the processor does not say.
static const char *fault_verb(const ucontext_t *context)
{
#if defined(__x86_64__)
    return context->uc_mcontext.gregs[REG_ERR] & 2 ? "writes" : "reads";
#elif defined(__aarch64__)
    return sim_aarch64_fault_verb(context);
#else
    return "touches";
#endif
}

// Whether code is of the program or one of its own libraries, and not of the system.
static bool is_program(const void *address)
{
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return false;
    return strncmp(info.dli_fname, "/lib", 4) != 0 && strncmp(info.dli_fname, "/usr/lib", 8) != 0;
}

// The call site of the innermost place in the program: a fault inside memcpy shows the call of
// memcpy. A frame is a return address, and one byte before it is looked up. The instruction that
// faulted is no return address, so `place` is one byte after it.
static const void *find_place(const void *at, const void *place)
{
    void *frames[FRAMES];
    int n = backtrace(frames, FRAMES), i = 0;
    while (i < n && frames[i] != at) i++;
    if (!is_program(at))
        while (++i < n && !is_program(frames[i])) continue;
    if (i >= n) return place;
    if (frames[i] == at) frames[i] = (void *)(uintptr_t)place;
    return gpulog_stack((const void *const *)&frames[i], n - i);
}

static const void *fault_place(const void *instruction)
{
    return find_place(instruction, (const char *)instruction + 1);
}

const void *sim_fault_site(const void *return_address)
{
    return find_place(return_address, return_address);
}

static void pass_on(const struct sigaction *to, int number, siginfo_t *info, void *context)
{
    if (to->sa_flags & SA_SIGINFO) {
        to->sa_sigaction(number, info, context);
    } else if (to->sa_handler != SIG_DFL && to->sa_handler != SIG_IGN) {
        to->sa_handler(number);
    } else {
        // The instruction faults again when this returns, or the signal comes again, and the
        // system's default ends the process.
        signal(number, SIG_DFL);
        if (number == SIGTRAP) raise(number);
    }
}

// ---- One instruction ----
// A page may have bytes that the program may touch, and others that it may not. It is opened for
// the one instruction that touched it: the processor stops after that (TF), and SIGTRAP comes here.
// If that is not possible, the page stays open until the next call that concerns it.

#if defined(__x86_64__)
static struct sigaction previous_trap;

#define TRAP_FLAG 0x100
#define MOST_PAGES 4 // of one instruction

static _Thread_local void *stepped[MOST_PAGES];
static _Thread_local int n_stepped;

static void on_trap(int number, siginfo_t *info, void *context)
{
    int error_number = errno;
    if (n_stepped == 0) {
        pass_on(&previous_trap, number, info, context);
        return;
    }
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    while (n_stepped > 0) sim_pinned_stepped(stepped[--n_stepped]);
    errno = error_number;
}

static void step(ucontext_t *context, void *address)
{
    struct sigaction now;
    bool ours = sigaction(SIGTRAP, NULL, &now) == 0 && now.sa_sigaction == on_trap;
    if (!ours || sigismember(&context->uc_sigmask, SIGTRAP) || n_stepped == MOST_PAGES) return;
    stepped[n_stepped++] = address;
    context->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void install_step(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sim_config()->check == CHECK_FULL) sigaction(SIGTRAP, &action, &previous_trap);
}
#else
static void step(ucontext_t *context, void *address)
{
}

static void install_step(void)
{
}
#endif

// A fault can come within malloc, or while a lock is held that the search for lines needs. Then the
// report says less, but the process does not hang.
static void on_stuck(int number)
{
    static const char text[] =
        "simgpu: host code touches device memory; the search for the place in "
        "the program got stuck. A debugger shows it.\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(SIMGPU_FATAL_EXIT);
    _exit(SIMGPU_FATAL_EXIT);
}

static void limit_search(void)
{
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, on_stuck);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(SEARCH_SECONDS);
}

void sim_fault_device(const char *call, const void *ptr, const char *verb, const void *site)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    char what[1024], where[256];
    sim_describe(device, offset, what, sizeof what);
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call ? call : "the host's code", site, SIM_NO_STREAM);
    sim_facts_range(ptr, 1);
    sim_fatal(
        SIMGPU_HOST_DEREFERENCE,
        call ? "a system call was given device memory" : "host code touches device memory",
        "%s%s%s\n%s %p, an address of device %d:\n%s.\n"
        "On a machine with a GPU this is %s.\n"
        "Was a cudaMemcpy to the host meant, or cudaFree in place of free? In a kernel of your\n"
        "own, use the pointer that simgpu_read, simgpu_write or simgpu_update returns.",
        call ? call : "", call ? ", called at " : "", where, verb, ptr, device->index, what,
        call ? "the error EFAULT (\"Bad address\"), or a segmentation fault"
             : "a segmentation fault");
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    size_t offset;
    SimDevice *device = sim_device_of(info->si_addr, &offset);
    int error_number = errno;
    if (!device) {
        SimPinnedTouch touch = sim_pinned_fault(info->si_addr, fault_verb(context), fault_place,
                                                fault_address(context));
        if (touch == PINNED_FOR_A_STEP) step(context, info->si_addr);
        errno = error_number;
        if (touch == PINNED_NO) pass_on(&previous, number, info, context);
        return;
    }
    limit_search();
    sim_fault_device(NULL, info->si_addr, fault_verb(context), fault_place(fault_address(context)));
}

static void install(void)
{
    void *frame;
    backtrace(&frame, 1); // loads the unwinder now: a signal handler must not
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
    install_step();
    sim_syscall_install();
}

void sim_fault_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

bool sim_fault_catches(void)
{
    struct sigaction now;
    sigset_t blocked;
    return sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == on_fault &&
           pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && !sigismember(&blocked, SIGSEGV);
}

// ---- A stack for each thread's signals ----

static pthread_key_t key;
static _Thread_local stack_t stack_before; // the thread's own: none, or one that is too small

static void drop_stack(void *memory)
{
    sigaltstack(&stack_before, NULL);
    munmap(memory, STACK_BYTES);
}

static void make_key(void)
{
    pthread_key_create(&key, drop_stack);
}

void sim_fault_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local bool done;
    if (done) return;
    done = true;
    pthread_once(&once, make_key);
    if (sigaltstack(NULL, &stack_before)) return;
    bool has_one = !(stack_before.ss_flags & SS_DISABLE);
    if (has_one && stack_before.ss_size >= STACK_ENOUGH) return;
    void *memory =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t stack = {.ss_sp = memory, .ss_size = STACK_BYTES};
    if (sigaltstack(&stack, NULL))
        munmap(memory, STACK_BYTES);
    else
        pthread_setspecific(key, memory);
}
