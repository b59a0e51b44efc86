/* rules_refusals.c: sentences of fsdp.h on flat_param.c about what is refused and what fails. See
 * rules.h.
 */
#include "rules.h"

#include "backend.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "snapshot.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A parameter of ones.
static Param make_param(const char *name, int64_t numel)
{
    Param p = {.ndim = 1, .shape = {numel}, .init = INIT_ONE};
    snprintf(p.name, sizeof p.name, "%s", name);
    return p;
}

// ---- Refusals ----

// What is before a list of parameters and after it is nobody's to read. Twice: a refusal is not the
// first one's alone.
RANK_RULE(layout_reads_its_own_list, 1)
{
    Param *const wild = (Param *)16;
    Param a = make_param("first", 3), b = make_param("second", 4);
    Param *list[] = {wild, &a, &b, wild}, *none[] = {wild}, **two = list + 1;
    const Module module = {.name = "module", .n_params = 2, .params = two};
    FlatLayout made;
#define REFUSED(list, n, rank, world)                                                              \
    need_refused_whole(&module, NULL, flat_layout(&made, "a.unit", list, n, rank, world, false),   \
                       "a.unit")
    for (int round = 0; round < 2; round++) {
        REFUSED(none, 0, 0, 2);
        REFUSED(none, -1, 0, 2);
        REFUSED(two, 2, 0, 0);
        REFUSED(two, 2, 0, -1);
        REFUSED(two, 2, 2, 2);
        REFUSED(two, 2, -1, 2);
        for (int i = 0; i < 2; i++) {
            Param **has_bf16 = two, **has_one_of_another_unit = two;
            two[i]->dtype = DTYPE_BF16;
            REFUSED(has_bf16, 2, 0, 2);
            two[i]->dtype = DTYPE_F32;
            two[i]->owner = &list;
            REFUSED(has_one_of_another_unit, 2, 0, 2);
            two[i]->owner = NULL;
        }
    }
#undef REFUSED
    need(flat_layout(&made, "unit", two, 2, 0, 2, false));
    check(made.offset[1] == 3, "flat_layout: parameter 1 begins at %lld, want 3",
          (long long)made.offset[1]);
    check(made.n == 2 && made.params[1] == &b && made.numel == 7,
          "flat_layout has refused bad input, and the good layout after it has n = %d and numel = "
          "%lld, want 2 and 7",
          made.n, (long long)made.numel);
    flat_layout_destroy(&made);
}

// ---- Failure ----

// Tables of 8 MiB each where the host may take less than one, and less than both.
static void tables_body(const Rank *r, void *arg)
{
    enum { N = 1 << 20 };
    Param p = make_param("one", 1);
    Param **list = malloc(N * sizeof(Param *));
    FlatLayout made;
    check(list != NULL, "no memory");
    for (int i = 0; i < N; i++) list[i] = &p;
    size_t host = host_bytes();
    for (int mib = 4; mib <= 12; mib += 8) {
        host_limit((size_t)mib << 20);
        Status status = flat_layout(&made, "unit", list, N, 0, 2, false);
        host_limit(0);
        if (status == OK) { // there are other ways to keep tables
            check(made.n == N && made.params != NULL && made.params[N - 1] == &p &&
                      made.offset != NULL && made.offset[N - 1] == N - 1,
                  "flat_layout with little host memory is OK, and the layout is not filled in");
            flat_layout_destroy(&made);
        } else {
            check(status == ERR_MEMORY && made.params == NULL && made.offset == NULL,
                  "flat_layout ran out of host memory: it must be ERR_MEMORY, and leave no tables");
            check(host_bytes() <= host + 4096,
                  "flat_layout ran out of host memory and left %zu bytes of it",
                  host_bytes() - host);
        }
    }
    free(list);
}

// Too little host memory for a buffer: the values are right all the same, or nothing is left.
static void buffer_body(const Rank *r, void *arg)
{
    enum { N = 1 << 19 };
    Param p = make_param("ones", N), *list[] = {&p};
    FlatLayout made;
    FlatParam flat;
    check_leaks();
    need(flat_layout(&made, "unit", list, 1, r->rank, r->world, false));
    need(flat_create(&flat, "unit", &made, 42, r->stream)); // the libraries take what they need
    flat_destroy(&flat);
    size_t live = gpulog_live_bytes(r->device);
    need(flat_layout(&made, "unit", list, 1, r->rank, r->world, false));
    host_limit((size_t)256 << 10);
    Status status = flat_create(&flat, "unit", &made, 42, r->stream);
    host_limit(0);
    if (status == OK) {
        need_cuda(cudaDeviceSynchronize());
        float *got = fetch(flat.sharded_param.data, (size_t)made.shard_numel);
        for (int64_t i = 0; i < made.shard_numel; i++)
            check(got[i] == 1.0f,
                  "flat_create with little host memory is OK, and element %lld is %g, want 1",
                  (long long)i, (double)got[i]);
        free(got);
        flat_destroy(&flat);
    }
    check((status == OK || status == ERR_MEMORY) && p.owner == NULL &&
              gpulog_live_bytes(r->device) == live,
          "flat_create ran out of host memory: status %d, and %zu bytes on the device or an owner "
          "are left",
          (int)status, gpulog_live_bytes(r->device) - live);
}

// A device with room for one shard of the two.
static void failure_body(const Rank *r, void *arg)
{
    enum { N = 1 << 18 };
    Param param[2] = {make_param("first", N), make_param("second", 3)};
    Param *list[] = {&param[0], &param[1]};
    FlatLayout made;
    FlatParam flat;
    check_leaks();
    for (int shards = 1; shards >= 0; shards--) { // as many have room
        void *ballast = fill_all_but((size_t)N * (2 + 4 * (size_t)shards));
        size_t live = gpulog_live_bytes(r->device);
        need(flat_layout(&made, "unit", list, 2, r->rank, r->world, false));
        check(flat_create(&flat, "unit", &made, 42, r->stream) == ERR_MEMORY,
              "flat_create on a device with room for %d of its two shards must be ERR_MEMORY",
              shards);
        check(gpulog_live_bytes(r->device) == live,
              "flat_create ran out of memory and left %zu bytes allocated%s",
              gpulog_live_bytes(r->device) - live,
              LIKELY "this test fills the device, so running out of memory is right: is what was "
                     "allocated before that freed on the way out?");
        check(param[0].owner == NULL && param[1].owner == NULL,
              "flat_create failed, and the parameters have an owner all the same");
        need_cuda(cudaFree(ballast));
    }
}

// A parameter that has storage, and one that is another's by now.
static void storage_body(const Rank *r, void *arg)
{
    enum { N = 1 << 18 };
    Param param[2] = {make_param("first", N), make_param("second", 3)};
    Param *list[] = {&param[0], &param[1]};
    const Module module = {.name = "module", .n_params = 2, .params = list};
    FlatLayout made;
    FlatParam flat;
    check_leaks();
    size_t live = gpulog_live_bytes(r->device);
    need(flat_layout(&made, "unit", list, 2, r->rank, r->world, false));
    need(flat_create(&flat, "unit", &made, 42, r->stream));
    check(param[0].owner == &flat && param[1].owner == &flat,
          "flat_create did not become the owner of every parameter");
    Param *other = &param[1];
    other->owner = &other; // another's by now
    other->data.data = &flat;
    flat_destroy(&flat);
    check(param[0].owner == NULL && other->owner == &other && other->data.data == &flat,
          "flat_destroy must give up its own parameters, owner and data, and leave another's");
    *other = make_param("second", 3);
    for (int i = 1; i >= 0; i--) {
        param[i].data.data = &flat;
        need(flat_layout(&made, "unit", list, 2, r->rank, r->world, false));
        need_refused_whole(&module, NULL, flat_create(&flat, "unit", &made, 42, r->stream),
                           param[i].name);
        param[i].data.data = NULL;
    }
    check(gpulog_live_bytes(r->device) == live, "flat_destroy left %zu bytes",
          gpulog_live_bytes(r->device) - live);
}

void rule_failed_create_keeps_nothing(void)
{
    run_ranks_small(1, failure_body, NULL);
    run_ranks(1, storage_body, NULL);
    run_ranks(1, tables_body, NULL);
    run_ranks(1, buffer_body, NULL);
}

#ifndef BACKEND_CUDA
// Work that cannot be queued: no lack of memory, and no table, shard or event is left.
static void dead_body(const Rank *r, void *arg)
{
    enum { N = 500, TIMES = 12, FIRST = 4 };
    static Param small[N];
    static Param *list[N];
    FlatLayout made;
    FlatParam flat;
    size_t live = gpulog_live_bytes(r->device), host = 0;
    cudaStream_t dead = dead_stream();
    check_leaks();
    for (int i = 0; i < N; i++) {
        small[i] = make_param("small", 1);
        list[i] = &small[i];
    }
    backend_ignore_reports();
    for (int i = 0; i < TIMES; i++) {
        if (i == FIRST) host = host_bytes();
        need(flat_layout(&made, "unit", list, N, 0, 2, false));
        need_failure(flat_create(&flat, "unit", &made, 42, dead), ERR_CUDA, "");
        check(gpulog_live_bytes(r->device) == live && small[0].owner == NULL &&
                  small[N - 1].owner == NULL,
              "flat_create failed, and left %zu bytes on the device or an owner",
              gpulog_live_bytes(r->device) - live);
    }
    check(host_bytes() <= host + (TIMES - FIRST) * 4096,
          "%d calls of flat_create that failed left %zu bytes of host memory", TIMES - FIRST,
          host_bytes() - host);
    need(flat_layout(&flat.layout, "unit", list, 3, 1, 2, false));
    const Buffer nowhere = {small, DTYPE_F32, 2};
    need_failure(flat_zero_padding(&flat, &nowhere, dead), ERR_CUDA, "");
    flat_layout_destroy(&flat.layout);
    cudaGetLastError();
    backend_listen();
}
#endif

void rule_failed_calls_of_create_are_told(void)
{
#ifndef BACKEND_CUDA
    run_ranks(1, dead_body, NULL);
#endif
}

// ---- States, and views of padding ----

RANK_RULE(states_follow_each_other, 1)
{
    static const char *const NAME[] = {"sharded", "unsharding", "unsharded"};
    static const FlatState AFTER[] = {[FLAT_SHARDED] = FLAT_UNSHARDING,
                                      [FLAT_UNSHARDING] = FLAT_UNSHARDED,
                                      [FLAT_UNSHARDED] = FLAT_SHARDED};
    FlatParam flat = {.name = "h.7"};
    for (FlatState from = FLAT_SHARDED; from <= FLAT_UNSHARDED; from++)
        for (FlatState to = FLAT_SHARDED; to <= FLAT_UNSHARDED; to++) {
            flat.state = from;
            if (to == AFTER[from]) {
                check(flat_set_state(&flat, to) == OK && flat.state == to,
                      "flat_set_state from %s to %s is legal and must be made", NAME[from],
                      NAME[to]);
                continue;
            }
            need_refused(flat_set_state(&flat, to), "h.7");
            check(flat.state == from,
                  "flat_set_state from %s to %s was refused, and must leave the state", NAME[from],
                  NAME[to]);
            check(strstr(last_error(), NAME[from]) != NULL &&
                      strstr(last_error(), NAME[to]) != NULL,
                  "flat_set_state from %s to %s: the line must name the unit, its state and the "
                  "wish: %s",
                  NAME[from], NAME[to], last_error());
        }
}
