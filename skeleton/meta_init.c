/* Task 1: meta init. Models that exist as shapes, and initial values that any rank can make in
 * part.
 *
 * A model too large for one GPU cannot be built on one GPU first and cut up afterwards. So it is
 * built on "meta": every parameter has a shape and no storage. Later each rank fills in its own
 * shard, and nothing else. For that the initial values must not come from a generator that has to
 * be run from the start: element i is a function of (seed, parameter, i) and of nothing else. Then
 * the shards of W ranks, laid side by side, are bitwise equal to what a single GPU would have made.
 *
 * Interface:
 *   meta_numel, meta_params, meta_count, meta_bytes   what a model consists of
 *   philox4x32_10                                     random words from a counter and a key
 *   meta_init_slice, meta_init_device                 elements [begin, end) of a parameter
 *   meta_materialize, meta_release                    the unsharded model on one GPU
 */
// Task 1 of 6. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is handouts/1_meta_init.md; `make grade TASK=1` says how far you are.
#include "fsdp.h"

#include <stdlib.h>

int64_t meta_numel(const Param *param)
{
    // TODO 1.1: The result is the number of elements that the shape describes, exact beyond 2³¹
    // too.
    // Hint: Which type do the factors have? And what is the product of no entries?
    NOT_YET("1.1");
}

// Where a walk through the module first meets param: sets *where to the module that has it, and
// returns its index in that module's params; -1 if the walk never meets it.
static int first_use(const Module *module, const Param *param, const Module **where)
{
    for (int i = 0; i < module->n_params; i++) {
        if (module->params[i] == param) {
            *where = module;
            return i;
        }
    }
    for (int i = 0; i < module->n_children; i++) {
        int found = first_use(module->children[i], param, where);
        if (found >= 0) return found;
    }
    return -1;
}

// Walks `module`, which is in `root`, and lists the parameters that it meets for the first time.
// `n` are listed already; returns how many are listed afterwards.
static int walk(const Module *root, const Module *module, Param **out, int max, int n)
{
    // TODO 1.2: out, from out[n] on, has the parameters of `module` and of all modules below it, in
    // the order of the walk (own first, then the children in order), except those that a walk from
    // `root` meets earlier. The result is n plus their number. Nothing is written from out[max]
    // on.
    // Hint: GPT-2's output head uses the embedding's weight. How often would you train it?
    NOT_YET("1.2");
}

int meta_params(const Module *module, Param **out, int max)
{
    return walk(module, module, out, max, 0);
}

// Σ over the module's parameters of elements × (bytes of an element, or 1).
static int64_t total(const Module *module, bool in_bytes)
{
    int n = meta_params(module, NULL, 0);
    Param **params = malloc((size_t)n * sizeof *params);
    int64_t sum = 0;
    if (params == NULL) return n == 0 ? 0 : -1;
    meta_params(module, params, n);
    for (int i = 0; i < n; i++)
        sum += meta_numel(params[i]) * (in_bytes ? dtype_bytes(params[i]->dtype) : 1);
    free(params);
    return sum;
}

int64_t meta_count(const Module *module)
{
    return total(module, false);
}

int64_t meta_bytes(const Module *module)
{
    return total(module, true);
}

void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    // TODO 1.3: out holds the four words that ten rounds of Philox make of the counter and the key.
    // Hint: How wide is the product of two uint32_t in C? And when does the key grow?
    NOT_YET("1.3");
}

// Blocks per call: box_muller4 is faster with many.
enum { BLOCKS = 64 };

// The normals of blocks [first, first + n), n <= BLOCKS, before scaling: those of elements 4·first
// … 4·(first + n) - 1 of the parameter.
static void normal_blocks(const Param *param, uint64_t seed, uint64_t first, int n, float *out)
{
    uint32_t words[4 * BLOCKS];
    // TODO 1.4: words holds four random words for each of the n blocks. They depend only on the
    // seed, param->id and the block's number.
    // Hint: Which two parameters would start with the same values if the id were left out?
    NOT_YET("1.4");
    box_muller4(words, out, (size_t)n);
}

void meta_init_slice(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *out)
{
    // TODO 1.5: out[i - begin] is the initial value of element i, for every i in [begin, end),
    // bitwise the same wherever the slice begins and ends. An empty slice writes nothing.
    // Hint: Element 7 of a slice that begins at 5, and of one that begins at 0: is it the same?
    NOT_YET("1.5");
}

// Host memory for a part of a parameter on its way to the device: 1 MiB.
enum { CHUNK = 256 * 1024 };

Status meta_init_device(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *dst,
                        cudaStream_t stream)
{
    if (param->init == INIT_NONE) return OK; // storage alone
    float *chunk = malloc(CHUNK * sizeof *chunk);
    cudaError_t error = cudaSuccess;
    if (chunk == NULL) return fail(ERR_MEMORY, "no host memory for a chunk of %s", param->name);

    for (int64_t i = begin; i < end && error == cudaSuccess; i += CHUNK) {
        int64_t n = end - i < CHUNK ? end - i : CHUNK;
        meta_init_slice(param, seed, i, i + n, chunk);
        error = cudaMemcpyAsync(dst + (i - begin), chunk, (size_t)n * sizeof *chunk,
                                cudaMemcpyHostToDevice, stream);
        // The chunk is written again in the next round: the copy must have left it.
        if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    }
    free(chunk);
    CUDA_TRY(error);
    return OK;
}

// Frees what materialize_param has made so far. A flat parameter's views are not ours to free.
static void release_param(Param *param)
{
    if (param->owner != NULL) return;
    cudaFree(param->data.data);
    cudaFree(param->grad.data);
    param->data.data = NULL;
    param->grad.data = NULL;
}

// Allocates and fills one parameter, unsharded, with a zero gradient.
static Status materialize_param(Param *param, uint64_t seed, cudaStream_t stream)
{
    param->data = param->grad = (Buffer){NULL, param->dtype, meta_numel(param)};
    size_t bytes = buffer_bytes(&param->data);
    // TODO 1.6: The parameter has device memory for its data, initialised, and for its gradient,
    // zero. After a failure param still has what was allocated, so that meta_materialize can free
    // it.
    // Hint: What does fresh device memory hold, and which of your calls writes all of it?
    NOT_YET("1.6");
}

Status meta_materialize(Module *module, uint64_t seed, cudaStream_t stream)
{
    int n = meta_params(module, NULL, 0);
    Param **params = malloc((size_t)(n + 1) * sizeof *params);
    Status status = OK;
    if (params == NULL) return fail(ERR_MEMORY, "no host memory for %d parameters", n);

    // TODO 1.7: Either every parameter has storage and values, or none has: the model is on meta,
    // as before, and the result is the status of the call that failed. A parameter with storage or
    // an owner, or of another type than DTYPE_F32, is ERR_ARGUMENT before anything is allocated.
    // Hint: Why would a second attempt after "out of memory" fail if the first left its half
    // behind?
    NOT_YET("1.7");
    free(params);
    return status;
}

void meta_release(Module *module)
{
    int n = meta_params(module, NULL, 0);
    Param **params = malloc((size_t)(n + 1) * sizeof *params);
    if (params == NULL) return;
    meta_params(module, params, n);
    for (int i = 0; i < n; i++) release_param(params[i]);
    free(params);
}
