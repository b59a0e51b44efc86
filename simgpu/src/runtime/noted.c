/* noted.c: calls that a graph makes again, from their function and arguments. See noted.h.
 *
 * The call follows the machine's calling convention: the first integers and pointers are in
 * registers, the first floating-point numbers in others, and the rest on the stack, in order, eight
 * bytes each (System V x86-64; AAPCS64 on Linux). A structure of more than 16 bytes is on the stack
 * among them; on AArch64 its address is a word. Extra arguments do not disturb a function.
 */
#include "runtime/noted.h"

#include <string.h>

#include "core/error.h"
#include "report/report.h"
#include "runtime/operation.h"
#include "streams/capture.h"
#include "streams/handles.h"

typedef uint64_t W;
typedef double D;
static _Thread_local SimNotedCall noted;

void simgpu_note_call(const void *function, int n, const SimgpuArg *arg)
{
    size_t used = 0;
    noted = (SimNotedCall){.n = n};
    for (int i = 0; i < n; i++) {
        if (i == SIM_MAX_ARGS) return;
        noted.arg[i] = arg[i];
        if (arg[i].kind != SIMGPU_ARG_BYTES) continue;
        size_t bytes = (size_t)arg[i].number, room = (bytes + sizeof(W) - 1) / sizeof(W);
        if (used + room * sizeof(W) > sizeof noted.bytes) return;
        memcpy(noted.bytes + used, (const void *)(uintptr_t)arg[i].word, bytes);
        noted.arg[i].word = used;
        used += room * sizeof(W);
    }
    noted.function = function;
}

void sim_note_handle(const void *handle, int bytes)
{
    if (bytes > (int)sizeof noted.handle) return;
    memcpy(noted.handle, handle, (size_t)bytes);
    noted.handle_bytes = bytes;
}

// ---- Calling ----

#if defined(__aarch64__)
enum { WORDS = 8, BY_ADDRESS = 1 };
#define REGISTERS W, W, W, W, W, W, W, W
#define WORD_REGISTERS(w) w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
#else
enum { WORDS = 6, BY_ADDRESS = 0 };
#define REGISTERS W, W, W, W, W, W
#define WORD_REGISTERS(w) w[0], w[1], w[2], w[3], w[4], w[5]
#endif
enum { NUMBERS = 8, STACK = 96 };
#define W8 W, W, W, W, W, W, W, W
#define S8(i) s[i], s[i + 1], s[i + 2], s[i + 3], s[i + 4], s[i + 5], s[i + 6], s[i + 7]
typedef int (*Function)(REGISTERS, D, D, D, D, D, D, D, D, W8, W8, W8, W8, W8, W8, W8, W8, W8, W8,
                        W8, W8);

// A float is in the lower half of its register, or of its place on the stack.
static W bits_of(const SimgpuArg *arg)
{
    W bits = arg->word;
    float narrow = (float)arg->number;
    if (arg->kind == SIMGPU_ARG_DOUBLE) memcpy(&bits, &arg->number, sizeof bits);
    if (arg->kind != SIMGPU_ARG_FLOAT) return bits;
    bits = 0;
    memcpy(&bits, &narrow, sizeof narrow);
    return bits;
}

static int call_function(const SimNotedCall *c)
{
    W w[WORDS] = {0}, s[STACK] = {0};
    D d[NUMBERS] = {0};
    int words = 0, numbers = 0, rest = 0;
    for (int i = 0; i < c->n; i++) {
        W bits = bits_of(&c->arg[i]);
        if (c->arg[i].kind == SIMGPU_ARG_BYTES) {
            const unsigned char *bytes = c->bytes + c->arg[i].word;
            size_t size = (size_t)c->arg[i].number;
            if (BY_ADDRESS && words < WORDS)
                w[words++] = (W)(uintptr_t)bytes;
            else if (BY_ADDRESS)
                s[rest++] = (W)(uintptr_t)bytes;
            else
                memcpy(&s[rest], bytes, size);
            if (!BY_ADDRESS) rest += (int)((size + sizeof(W) - 1) / sizeof(W));
        } else if (c->arg[i].kind == SIMGPU_ARG_WORD && words < WORDS)
            w[words++] = bits;
        else if (c->arg[i].kind != SIMGPU_ARG_WORD && numbers < NUMBERS)
            memcpy(&d[numbers++], &bits, sizeof bits);
        else
            s[rest++] = bits;
    }
    Function f = (Function)(uintptr_t)c->function;
    return f(WORD_REGISTERS(w), d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], S8(0), S8(8),
             S8(16), S8(24), S8(32), S8(40), S8(48), S8(56), S8(64), S8(72), S8(80), S8(88));
}

// cuBLAS returns an error of its own; the cause is the runtime's last error.
static cudaError_t call_again(cudaGraphNode_t node)
{
    SimNotedCall call = *(const SimNotedCall *)node->call.args;
    char handle[sizeof call.handle];
    void *there = (void *)(uintptr_t)call.arg[0].word;
    if (!call.handle_bytes) return (cudaError_t)call_function(&call);
    memcpy(handle, there, (size_t)call.handle_bytes);
    memcpy(there, call.handle, (size_t)call.handle_bytes);
    int status = call_function(&call);
    memcpy(there, handle, (size_t)call.handle_bytes);
    return status == 0 ? cudaSuccess : cudaErrorLaunchFailure;
}

// ---- Capturing ----

static SimNewNode noted_node(enum cudaGraphNodeType type)
{
    return (SimNewNode){.type = type, .again = call_again, .args = &noted, .bytes = sizeof noted};
}

bool sim_hold_kernel(const char *name, cudaStream_t stream, const void *site)
{
    bool held =
        noted.function && sim_hold_node(stream, name, site, noted_node(cudaGraphNodeTypeKernel));
    if (held) noted.function = NULL;
    return held;
}

void sim_capture_noted(SimgpuOp *op, enum cudaGraphNodeType type)
{
    if (op->error != cudaSuccess) return;
    if (!noted.function) {
        char where[256];
        gpulog_where(op->entry.site, where, sizeof where);
        sim_facts_call(op->entry.name, op->entry.site, op->entry.stream);
        sim_report(SIMGPU_CAPTURE, "a kernel that cannot be captured",
                   "%s, called at %s,\nis captured, and does not say its arguments, with which "
                   "a launch would call it again.\n"
                   "On a GPU it becomes a node of the graph.\n"
                   "Can its SIMGPU_BEGIN name them, as simgpu.h says?",
                   op->entry.name, where);
        op->error = cudaErrorStreamCaptureUnsupported;
        return;
    }
    op->error = sim_capture_node(op, noted_node(type));
    noted.function = NULL;
}

const void *sim_noted_scalar(const SimgpuOp *op, const void *ptr, size_t bytes)
{
    SimNotedCall *c = NULL;
    if (op->captured && op->error == cudaSuccess) {
        pthread_mutex_lock(&sim_streams_lock);
        const struct CUstream_st *s = sim_stream_of_op(op);
        if (s->last.n) c = s->last.node[0]->call.args;
        pthread_mutex_unlock(&sim_streams_lock);
        if (!c || c->n_scalars == SIM_MAX_SCALARS || bytes > sizeof c->scalar[0].bytes) return ptr;
        c->scalar[c->n_scalars].ptr = ptr;
        memcpy(c->scalar[c->n_scalars++].bytes, ptr, bytes);
    } else if (sim_launching.node && sim_launching.node->call.again == call_again) {
        c = sim_launching.node->call.args;
        for (int i = 0; i < c->n_scalars; i++)
            if (c->scalar[i].ptr == ptr) return c->scalar[i].bytes;
    }
    return ptr;
}
