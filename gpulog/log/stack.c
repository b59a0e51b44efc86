/* stack.c: a call site as one pointer: the return addresses of the calls that were under way.
 *
 * A program's line often calls given code, which calls the operation, so one return address does
 * not lead to that line. A call site is therefore a short stack of return addresses, innermost
 * first, found by following frame pointers (-fno-omit-frame-pointer), which takes a few nanoseconds
 * per frame. Equal stacks are stored once, and the call site is the address of that copy. Without
 * room for another one, the innermost return address itself is the call site; so is any return
 * address from elsewhere.
 *
 * The walk reads only the thread's own stack, because code compiled without frame pointers leaves
 * other values in that register. Its result may then be wrong: where.c checks that an address
 * follows a call.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "log_writer.h"

#define STACKS 32768
#define SLOTS 4096 // of the hash table: few, because most programs have some hundred stacks

typedef struct Stack {
    struct Stack *next; // the next with the same hash
    int n;
    const void *frame[GPULOG_FRAMES];
} Stack;

static Stack *_Atomic stacks;       // (STACKS), reserved on first use
static int n_stacks;                // under the lock
static Stack *_Atomic table[SLOTS]; // the newest of each chain
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- Keeping ----

static Stack *_Atomic *slot_of(const void *const *frames, int n)
{
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) h = (h ^ (uintptr_t)frames[i]) * 0x9e3779b97f4a7c15u;
    return &table[(h >> 48) % SLOTS];
}

static const Stack *find(const void *const *frames, int n)
{
    const Stack *stack = atomic_load_explicit(slot_of(frames, n), memory_order_acquire);
    while (stack &&
           (stack->n != n || memcmp(stack->frame, frames, (size_t)n * sizeof *frames) != 0))
        stack = stack->next;
    return stack;
}

// Called with the lock held.
static Stack *new_stack(void)
{
    Stack *all = atomic_load(&stacks);
    if (!all) {
        void *memory = mmap(NULL, STACKS * sizeof *all, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return NULL;
        all = memory;
        atomic_store(&stacks, all);
    }
    return n_stacks < STACKS ? &all[n_stacks++] : NULL;
}

static const Stack *keep(const void *const *frames, int n)
{
    pthread_mutex_lock(&lock);
    const Stack *known = find(frames, n); // another thread may have been quicker
    Stack *stack = known ? NULL : new_stack();
    if (stack) {
        Stack *_Atomic *slot = slot_of(frames, n);
        stack->n = n;
        memcpy(stack->frame, frames, (size_t)n * sizeof *frames);
        stack->next = atomic_load(slot);
        atomic_store_explicit(slot, stack, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return known ? known : stack;
}

const void *gpulog_stack(const void *const *frames, int n)
{
    if (n > GPULOG_FRAMES) n = GPULOG_FRAMES;
    if (n <= 0) return NULL;
    const Stack *stack = find(frames, n);
    if (!stack) stack = keep(frames, n);
    return stack ? (const void *)stack : frames[0];
}

int gpulog_frames(const void *site, const void *frames[GPULOG_FRAMES])
{
    uintptr_t first = (uintptr_t)atomic_load(&stacks), at = (uintptr_t)site;
    if (!site) return 0;
    if (!first || at < first || at >= first + STACKS * sizeof(Stack)) {
        frames[0] = site;
        return 1;
    }
    const Stack *stack = site;
    memcpy(frames, stack->frame, (size_t)stack->n * sizeof *frames);
    return stack->n;
}

// ---- Walking ----

// The end of this thread's stack; 0: not known.
static uintptr_t stack_end(void)
{
    static _Thread_local uintptr_t end;
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (end) return end;
    end = 1; // as good as none
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &low, &size) == 0) end = (uintptr_t)low + size;
        pthread_attr_destroy(&attributes);
    }
    return end;
}

// A forked child keeps the stack of the thread that forks it. To find the end of a first thread's
// stack, the C library reads the list of mappings; here it does so once for all ranks.
static void before_fork(void)
{
    stack_end();
}

__attribute__((constructor)) static void find_end_for_children(void)
{
    pthread_atfork(before_fork, NULL, NULL);
}

// On x86-64 and AArch64 a frame begins with the caller's frame pointer and the return address.
typedef struct Frame {
    const struct Frame *caller;
    const void *return_address;
} Frame;

// The frame that called this one; NULL: none, or the code keeps no frame pointer.
#if defined(__x86_64__) || defined(__aarch64__)
static const Frame *caller_of(const Frame *frame, uintptr_t end)
{
    const Frame *caller = frame->caller;
    bool on_stack = caller > frame && (uintptr_t)caller + sizeof *caller <= end;
    return on_stack && (uintptr_t)caller % sizeof(void *) == 0 ? caller : NULL;
}
#else
static const Frame *caller_of(const Frame *frame, uintptr_t end)
{
    return NULL;
}
#endif

const void *gpulog_site(const void *return_address, const void *frame)
{
    const void *found[GPULOG_FRAMES] = {return_address};
    const Frame *at = frame;
    uintptr_t end = stack_end();
    int n = 1;
    while (n < GPULOG_FRAMES && (at = caller_of(at, end)) && at->return_address)
        found[n++] = at->return_address;
    return gpulog_stack(found, n);
}

const void *gpulog_site_above(const void *site)
{
    const Frame *at = __builtin_frame_address(0);
    uintptr_t end = stack_end();
    const void *frames[GPULOG_FRAMES];
    if (gpulog_frames(site, frames) != 1) return site; // it is a stack already
    for (int i = 0; at && i < GPULOG_FRAMES; i++, at = caller_of(at, end))
        if (at->return_address == site) return gpulog_site(site, at);
    return site;
}
