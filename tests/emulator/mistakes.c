/* mistakes.c: the emulator of CUDA threads finds the mistakes it is for, and says in one line
 * which.
 */
#include "../nn/numbers.h"
#include "wrong.cuh"

enum { N = 64 };

typedef struct Arrays {
    float *x, *other; // (N), on the device
} Arrays;

static Arrays make_arrays(void)
{
    float count[N];
    for (int i = 0; i < N; i++) count[i] = (float)(i + 1);
    return (Arrays){on_device(count, N), on_device(count, N)};
}

static void free_arrays(Arrays a)
{
    need_cuda(cudaFree(a.x));
    need_cuda(cudaFree(a.other));
}

// How many of x are as turning 1 … N round leaves them.
static int count_turned(const float *device)
{
    int turned = 0;
    float *x = fetch(device, N);
    for (int i = 0; i < N; i++) turned += x[i] == (float)(N - i);
    free(x);
    return turned;
}

// What a mistake leaves of x, with threads in an order of `seed`.
static int turned_by(const Rank *r, Wrong wrong, const char *seed)
{
    Arrays a = make_arrays();
    setenv("EMULATOR_SEED", seed, 1);
    need_cuda(wrong_kernel(wrong, a.x, a.other, r->stream));
    int turned = count_turned(a.x);
    free_arrays(a);
    return turned;
}

RANK_TEST(test_orders, 1)
{
    static const char *const seeds[] = {"0", "1", "2", "3", "4"};
    for (int i = 0; i < 5; i++) {
        check(turned_by(r, RIGHT, seeds[i]) == N, "with a barrier, and seed %s, it went wrong",
              seeds[i]);
        check(turned_by(r, NO_BARRIER, seeds[i]) < N,
              "without a barrier, and seed %s, it went well", seeds[i]);
    }
}

// Twice, because shared memory must be forgotten between blocks and grids.
RANK_TEST(test_shared, 1)
{
    for (int i = 0; i < 2; i++) {
        Arrays a = make_arrays();
        need_cuda(wrong_kernel(RIGHT, a.x, a.other, r->stream));
        need_cuda(wrong_kernel(NEVER_WRITTEN, a.x, a.other, r->stream));
        float *x = fetch(a.x, N);
        for (int j = 0; j < N; j++) check(isnan(x[j]), "shared memory began with %g", x[j]);
        free(x);
        free_arrays(a);
    }
}

// A mistake that ends the program, and what the program must say.
typedef struct Mistake {
    Wrong wrong;
    const char *says;
} Mistake;

static void make_mistake(const Rank *r, void *arg)
{
    const Mistake *mistake = arg;
    Arrays a = make_arrays();
    cudaError_t error = wrong_kernel(mistake->wrong, a.x, a.other, r->stream);
    check(false, "nothing was found; it returned %s", cudaGetErrorString(error));
}

TEST(test_fatal)
{
    static const Mistake mistakes[] = {
        {LEFT_EARLY, "left"},
        {TWO_BARRIERS, "wait at different barriers"},
        {HALF_A_WARP, "threads that left the kernel"},
        {TWO_SHUFFLES, "at different shuffles"},
        {SHORT_MASK, "less than a whole warp"},
        {ODD_BLOCK, "not whole warps"},
        {NOT_DECLARED, "in no range it declared"},
    };
    static const char *const seeds[] = {"0", "1", "2"};
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        for (int s = 0; s < 3; s++) {
            setenv("EMULATOR_SEED", seeds[s], 1);
            char *message = run_ranks_message(1, RANKS_LIMIT, make_mistake, (void *)&mistakes[i]);
            if (message == NULL || strstr(message, "emulator: wrong_kernel: ") == NULL ||
                strstr(message, mistakes[i].says) == NULL)
                fail_msg("mistake %d, seed %s: it says \"%s\", without \"%s\"", mistakes[i].wrong,
                         seeds[s], message != NULL ? message : "", mistakes[i].says);
            free(message);
        }
    unsetenv("EMULATOR_SEED");
}

// A mistake that the launch returns as an error, after which the next kernel runs as ever.
static void check_error(const Rank *r, Wrong wrong, cudaError_t due)
{
    Arrays a = make_arrays();
    cudaError_t error = wrong_kernel(wrong, a.x, a.other, r->stream);
    check(error == due, "mistake %d returned %s, not %s", wrong, cudaGetErrorName(error),
          cudaGetErrorName(due));
    float *x = fetch(a.x, N);
    for (int i = 0; i < N; i++) check(x[i] == (float)(i + 1), "x[%d] is %g", i, x[i]);
    free(x);
    need_cuda(wrong_kernel(RIGHT, a.x, a.other, r->stream));
    check(count_turned(a.x) == N, "after mistake %d a kernel does not work", wrong);
    free_arrays(a);
}

RANK_TEST(test_errors, 1)
{
    check_error(r, HUGE_BLOCK, cudaErrorInvalidConfiguration);
    check_error(r, TRAP, cudaErrorLaunchFailure);
    check_error(r, AFTER_A_TRAP, cudaErrorLaunchFailure);
}

// simgpu checks what was declared: here it is longer than the array, and the kernel does not run.
static void check_declared(const Rank *r, void *arg)
{
    Arrays a = make_arrays();
    cudaError_t error = wrong_kernel(TOO_LONG, a.x, a.other, r->stream);
    check(error == cudaErrorIllegalAddress, "a range past the end returned %s",
          cudaGetErrorName(error));
}

TEST(test_declared)
{
    char *message = run_ranks_message(1, RANKS_LIMIT, check_declared, NULL);
    if (message != NULL && strstr(message, "past the end returned") != NULL)
        fail_msg("%s", message);
    free(message); // else simgpu's own report of it
}

SUITE_MAIN("emulator")
