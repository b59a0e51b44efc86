/* strategies_growth.c: run_growth: a training leaves no more memory of the host, however long it
 * goes on. See strategies.h.
 */
#include "strategies_oracle.h"

#include "host_memory.h"

// Steps; and bytes that may stay of each: noise as in rules_growth.c (2,174 bytes were seen).
enum { FIRST = 12, TIMES = 56, EACH = 72 };

static void step(Wrapped *w, const Case *c, const Rank *r, int step)
{
    Batch batch = case_batch(c, step, r->rank, 0);
    for (int training = 0; training < 2; training++) { // an evaluation; a forward that is dropped
        need(fsdp_set_training(w->model, training == 1));
        forward_batch(&c->spec, &w->run, w->model, &batch);
        need(fsdp_reshard_all(w->model));
    }
    train_batch(&c->spec, &w->run, w->model, &batch);
    need_cuda(cudaDeviceSynchronize());
    batch_destroy(&batch);
}

static void growth_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    size_t host = 0, live = 0;
    uint64_t first = 0;
    Wrapped w;
    check_leaks();
    case_wrap(&w, c, r);
    for (int i = 0; i < TIMES; i++) {
        if (i == FIRST) host = host_bytes();
        if (i == FIRST) live = gpulog_live_bytes(r->device);
        if (i == FIRST) first = gpulog_length();
        step(&w, c, r, i);
    }
    size_t now = host_bytes();
    check(
        now <= host + (TIMES - FIRST) * EACH,
        "%d steps, each with two forwards more, leave %zu bytes of host memory, which nobody frees",
        TIMES - FIRST, now - host);
    bool slices = c->options.reshard_ranks > 0;
    if (gpulog_live_bytes(r->device) != live && !slices) check_all_freed(first);
    check(gpulog_live_bytes(r->device) == live,
          "%d steps, each with two forwards more, leave %zu bytes of the device%s", TIMES - FIRST,
          gpulog_live_bytes(r->device) - live,
          slices ? LIKELY "strategy_all_gather does not free a slice that it does not gather" : "");
    case_unwrap(&w, r);
}

void run_growth(int world, Case *c)
{
    run_ranks(world, growth_body, c);
}
