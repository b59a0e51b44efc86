/* rules_adamw.c: sentences of fsdp.h on the making of an AdamW, and on more than one, that no other
 * body of its suite reads. See rules.h.
 */
#include "rules.h"

#include "backend.h"
#include "figures.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "snapshot.h"
#include "steps.h"
#include "training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Optimizers and their steps ----

// The gradient of step t, on every unit of a model.
static void give_step(FlatParam *const *flat, int n, int t)
{
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < n; k++) {
        const FlatLayout *layout = &flat[k]->layout;
        float *host = malloc((size_t)layout->shard_numel * sizeof *host);
        for (int64_t e = 0; e < layout->shard_numel; e++) {
            int64_t place = layout->rank * layout->shard_numel + e;
            host[e] = place < layout->numel ? given_scale(t) * given_gradient(place) : 0.0f;
        }
        send_to(flat[k]->sharded_grad.data, host, (size_t)layout->shard_numel);
        free(host);
    }
}

// A model with an optimizer of its own, and what it began with.
typedef struct Stepped {
    Sharded s;
    AdamWConfig config;
    int steps, n;
    FlatParam *flat[MAX_FLAT];
    float *start[MAX_FLAT];
} Stepped;

// What opt holds before it is made is nothing; and nobody waits between that and the first step.
static void make_and_step(Stepped *m, const Spec *spec, const Rank *r)
{
    sharded_create(&m->s, spec, &TEST_OPTIONS, NULL, r);
    m->n = flat_params(m->s.model, m->flat, MAX_FLAT);
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < m->n; k++)
        m->start[k] = fetch(m->flat[k]->sharded_param.data, (size_t)m->flat[k]->layout.shard_numel);
    give_step(m->flat, m->n, 1);
    memset(&m->s.adamw, 0x5A, sizeof m->s.adamw);
    uint64_t log = gpulog_length();
    need(fsdp_adamw_create(&m->s.adamw, m->s.model, &m->s.ctx, &m->config));
    check(m->s.adamw.t == 0 && m->s.adamw.n == m->n && m->s.adamw.root == m->s.root &&
              m->s.adamw.ctx == &m->s.ctx,
          "fsdp_adamw_create for a model of %d units: opt has %d units and counts %d steps, or has "
          "another model's root or context",
          m->n, m->s.adamw.n, m->s.adamw.t);
    need(fsdp_adamw_step(&m->s.adamw));
    check_no_race(log);
}

static void check_stepped(const Stepped *m)
{
    check(m->s.adamw.t == m->steps,
          "two optimizers: the one that made %d steps of fsdp_adamw_step counts %d. Each has a "
          "count of its own",
          m->steps, m->s.adamw.t);
    for (int k = 0; k < m->n; k++) {
        const FlatLayout *layout = &m->flat[k]->layout;
        float *got = fetch(m->flat[k]->sharded_param.data, (size_t)layout->shard_numel);
        for (int64_t e = 0; e < layout->shard_numel; e++) {
            int64_t place = layout->rank * layout->shard_numel + e;
            double g = place < layout->numel ? (double)given_gradient(place) : 0.0, out[3];
            follow_formula(&m->config, RIGHT, m->steps, k, m->n, (double)m->start[k][e], g, out);
            check(fabs((double)got[e] - out[0]) <= 2e-6 * (fabs(out[0]) + (double)m->config.lr),
                  "two optimizers: after %d steps of fsdp_adamw_step element %lld of unit %s is "
                  "%.9g, the formula gives %.9g",
                  m->steps, (long long)e, m->flat[k]->name, (double)got[e], out[0]);
        }
        free(got);
        free(m->start[k]);
    }
}

// Two models, each with an optimizer of its own, whose steps are interleaved.
RANK_RULE(each_optimizer_counts_its_steps, 1, 2)
{
    const Spec spec[] = {spec_mlp(3), spec_mlp(4)};
    Stepped m[] = {{.config = {0.01f, 0.8f, 0.9f, 1e-8f, 0.5f}, .steps = 3},
                   {.config = {0.03f, 0.6f, 0.7f, 1e-5f, 0.25f}, .steps = 2}};
    for (int i = 0; i < 2; i++) make_and_step(&m[i], &spec[i], r);
    for (int t = 2; t <= 3; t++)
        for (int i = 0; i < 2; i++) {
            if (t > m[i].steps) continue;
            give_step(m[i].flat, m[i].n, t);
            need(fsdp_adamw_step(&m[i].s.adamw));
        }
    need_cuda(cudaDeviceSynchronize());
    check_figures();
    for (int i = 0; i < 2; i++) check_stepped(&m[i]);
    for (int i = 0; i < 2; i++) {
        FsdpAdamW *opt = &m[i].s.adamw;
        fsdp_adamw_destroy(opt);
        opt->ctx = NULL;
        sharded_destroy(&m[i].s);
    }
}

// ---- Making an optimizer ----

// On a device with room for so many bytes; whether it worked.
static bool create_in(Sharded *s, const Rank *r, size_t room)
{
    void *filler = fill_all_but(room);
    size_t live = gpulog_live_bytes(r->device);
    Status status = fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &TEST_ADAMW);
    size_t after = gpulog_live_bytes(r->device);
    need_cuda(cudaFree(filler));
    if (status == OK) return true;
    check(status == ERR_MEMORY,
          "fsdp_adamw_create on a device with room for %zu bytes of the moments must be ERR_MEMORY",
          room);
    check(after == live, "fsdp_adamw_create ran out of memory and left %zu bytes allocated%s",
          after - live,
          LIKELY "this test fills the device, so running out of memory is right: is what was "
                 "allocated before that freed on the way out?");
    check(s->adamw.m == NULL && s->adamw.v == NULL && s->adamw.ctx == NULL,
          "a failed fsdp_adamw_create leaves pointers to what is gone");
    return false;
}

static void failure_body(const Rank *r, void *arg)
{
    enum { STEP = 512 }; // whichever of the moments it is that finds no room
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    need_cuda(cudaDeviceSynchronize());
    size_t room = 2 * STEP, moments = 8 * (size_t)sharded_padded(&s) / (size_t)r->world;
    void *ballast = fill_all_but(16 * STEP);
    while (room < 15 * STEP && !create_in(&s, r, room)) room += STEP;
    check(room >= moments && s.adamw.n == 3,
          "fsdp_adamw_create needs %zu bytes of moments: it found room in %zu bytes, or it did not "
          "in %d",
          moments, room, 15 * STEP);
    for (int attempt = 0; attempt < 2; attempt++) {
        const FsdpAdamW *opt = &s.adamw;
        fsdp_adamw_destroy(&s.adamw);
        check(opt->ctx == NULL && opt->root == NULL && opt->t == 0 && opt->n == 0 &&
                  opt->m == NULL && opt->v == NULL && opt->config.lr == 0.0f,
              "after fsdp_adamw_destroy *opt is not zero");
        check(!create_in(&s, r, 0), "fsdp_adamw_create found room for the moments where none is");
        check(create_in(&s, r, room), "fsdp_adamw_create failed where it had worked before");
    }
    need_cuda(cudaDeviceSynchronize());
    for (int k = 0; k < 2 * s.adamw.n; k++) {
        int64_t n = s.adamw.root->units[k / 2]->flat.layout.shard_numel;
        float *got = fetch(k % 2 == 0 ? s.adamw.m[k / 2] : s.adamw.v[k / 2], (size_t)n);
        for (int64_t e = 0; e < n; e++)
            check(got[e] == 0.0f, "fsdp_adamw_create: element %lld of a moment of unit %d is %g",
                  (long long)e, k / 2, (double)got[e]);
        free(got);
    }
    fsdp_adamw_destroy(&s.adamw);
    need_cuda(cudaFree(ballast));
    Module *below[] = {s.model->children[0], s.model->children[1],
                       s.model->children[0]->children[0]};
    for (int i = 0; i < 3; i++) { // the last one is not a unit
        memset(&s.adamw, 0x5A, sizeof s.adamw);
        need_refused_whole(s.model, NULL,
                           fsdp_adamw_create(&s.adamw, below[i], &s.ctx, &TEST_ADAMW),
                           below[i]->name);
        fsdp_adamw_destroy(&s.adamw);
    }
    sharded_destroy(&s);
}

// The host's memory, where the device has none: simgpu keeps nothing of an allocation that failed.
static void lists_body(const Rank *r, void *arg)
{
    enum { UNITS = 30, TIMES = 40 };
    Spec spec = spec_mlp(UNITS);
    Sharded s;
    size_t host = 0;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    need_cuda(cudaDeviceSynchronize());
    void *filler = fill_all_but(0);
    for (int i = 0; i < TIMES + 2; i++) {
        if (i == 2) host = host_bytes();
        check(fsdp_adamw_create(&s.adamw, s.model, &s.ctx, &TEST_ADAMW) == ERR_MEMORY,
              "fsdp_adamw_create found room for the moments where none is");
    }
    check(host_bytes() <= host + TIMES * UNITS * sizeof(float *) / 2,
          "fsdp_adamw_create failed %d times for a model of %d units and left %zu bytes of host "
          "memory%s",
          TIMES, UNITS, host_bytes() - host,
          LIKELY "this test fills the device, so running out of memory is right: does "
                 "fsdp_adamw_destroy free both lists of moments?");
    need_cuda(cudaFree(filler));
    s.adamw.ctx = NULL;
    sharded_destroy(&s);
}

// The sum cannot be made: there is no communicator.
static void norm_body(Sharded *s, const Rank *r, void *arg)
{
    float norm;
    int device = 0;
    FsdpContext broken = s->ctx;
    broken.mesh.shard.comm = NULL;
    need_cuda(cudaGetDevice(&device));
    need_cuda(cudaDeviceSynchronize());
    size_t live = gpulog_live_bytes(device);
    backend_ignore_reports();
    check_set_silent(true);
    Status status = fsdp_grad_norm(s->model, &broken, &norm);
    check_set_silent(false);
    backend_listen();
    check(status == ERR_NCCL,
          "the all-reduce of the squares failed: fsdp_grad_norm gives status %d, and must return "
          "that",
          (int)status);
    need_cuda(cudaDeviceSynchronize());
    check(gpulog_live_bytes(device) == live,
          "fsdp_grad_norm_default failed, and left %zu bytes on the device",
          gpulog_live_bytes(device) - live);
}

void rule_failed_norm_keeps_nothing(void)
{
    run_sharded(spec_mlp(2), norm_body, 2);
}

void rule_failed_optimizer_keeps_nothing(void)
{
    run_ranks_small(1, failure_body, NULL);
    run_ranks_small(2, failure_body, NULL);
    run_ranks_small(1, lists_body, NULL);
}
