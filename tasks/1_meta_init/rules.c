/* rules.c: sentences of fsdp.h on meta_init.c that no other body of its suite reads. See rules.h.
 */
#include "rules.h"

#include "draw.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "oracle.h"
#include "training.h"

#include <stdlib.h>
#include <string.h>

// ---- Philox ----

typedef struct Words {
    uint32_t counter[4], key[2];
} Words;

static void philox_body(const Rank *r, void *arg)
{
    const Words *words = arg;
    for (int i = 0; i < 8; i++) {
        uint32_t got[4] = {0}, want[4];
        Words mine = words[i];
        oracle_philox(words[i].counter, words[i].key, want);
        philox4x32_10(mine.counter, mine.key, got);
        for (int j = 0; j < 4; j++)
            check(got[j] == want[j],
                  "philox4x32_10 of counter %08x %08x %08x %08x, key %08x %08x, word %d: got %08x, "
                  "want %08x%s",
                  words[i].counter[0], words[i].counter[1], words[i].counter[2],
                  words[i].counter[3], words[i].key[0], words[i].key[1], j, got[j], want[j],
                  philox_cause(words[i].counter, words[i].key, got));
        check(memcmp(&mine, &words[i], sizeof mine) == 0,
              "philox4x32_10 changed the counter or the key, which it only reads");
    }
}

void rule_philox_of_any_words(void)
{
    Words words[8];
    for (int i = 0; i < 8; i++) {
        uint64_t drawn[3] = {draw_word(), draw_word(), draw_word()};
        memcpy(&words[i], drawn, sizeof words[i]);
    }
    drawn("eight counters and keys");
    run_ranks(1, philox_body, words);
}

// ---- Counting ----

// A module with a child: parameters of more than 2³¹ elements, some of two bytes, one frozen.
RANK_RULE(counts_large_and_small_types, 1)
{
    Param huge = {.name = "huge", .ndim = 3, .shape = {4096, 4096, 1000}};
    Param half = {.name = "half", .dtype = DTYPE_BF16, .ndim = 2, .shape = {65536, 65537}};
    half.frozen = true;
    Param third = {.name = "third", .dtype = DTYPE_F16, .ndim = 1, .shape = {3}};
    Param *own[] = {&huge, &half}, *below[] = {&third, &huge};
    Module child = {.name = "child", .n_params = 2, .params = below}, *children[] = {&child};
    Module root = {.name = "root", .n_params = 2, .params = own, .n_children = 1};
    root.children = children;
    int64_t f32 = 16777216000, b16 = 4295032832 + 3;
    check(meta_count(&root) == f32 + b16, "meta_count of %lld elements gives %lld",
          (long long)(f32 + b16), (long long)meta_count(&root));
    check(meta_bytes(&root) == 4 * f32 + 2 * b16,
          "meta_bytes of %lld float elements and %lld of two bytes gives %lld, want %lld",
          (long long)f32, (long long)b16, (long long)meta_bytes(&root),
          (long long)(4 * f32 + 2 * b16));
    Module empty = {.name = "empty"};
    check(meta_count(&empty) == 0 && meta_bytes(&empty) == 0,
          "a module without parameters has %lld elements in %lld bytes",
          (long long)meta_count(&empty), (long long)meta_bytes(&empty));

    size_t before = host_bytes();
    for (int i = 0; i < 100; i++) meta_count(&root);
    check(host_bytes() <= before + 1024, "100 calls of meta_count left %zu bytes of host memory",
          host_bytes() - before);
}

// Ties that a walk can miss: twice in one module, and in modules two levels below two others.
static void ties_body(const Rank *r, void *arg)
{
    Param p[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    Param *of_deep[] = {&p[1]}, *of_other[] = {&p[1], &p[2], &p[2], &p[0]}, *of_root[] = {&p[0]};
    Module deep = {.name = "deep", .n_params = 1, .params = of_deep}, *below_left[] = {&deep};
    Module other = {.name = "other", .n_params = 4, .params = of_other}, *below_right[] = {&other};
    Module left = {.name = "left", .n_children = 1, .children = below_left};
    Module right = {.name = "right", .n_children = 1, .children = below_right};
    Module *below_root[] = {&left, &right};
    Module root = {.name = "root", .n_params = 1, .params = of_root, .n_children = 2};
    root.children = below_root;
    Param *got[6] = {NULL};
    int n = meta_params(&root, got, 6);
    check(n == 3 && got[0] == &p[0] && got[1] == &p[1] && got[2] == &p[2] && got[3] == NULL,
          "three parameters, one of them twice in a module and one tied between two modules that "
          "are two levels below the root: meta_params finds %d, want a b c",
          n);
    n = meta_params(&right, got, 6);
    check(n == 3 && got[0] == &p[1] && got[1] == &p[2] && got[2] == &p[0],
          "the right half of that model alone: meta_params finds %d, want b c a", n);
    // With fewer places than parameters a tied one may be met again that out does not hold.
    for (int max = 0; max < 3; max++) {
        memset(got, 0, sizeof got);
        n = meta_params(&root, got, max);
        check(n == 3, "with places for %d of three parameters meta_params finds %d of them", max,
              n);
        check(got[max] == NULL, "meta_params with places for %d wrote to the place behind them",
              max);
    }
}

// More parameters than anybody's table of those that were met has places; the last of them is tied.
static void many_ties_body(const Rank *r, void *arg)
{
    enum { N = 3000 };
    Param *params = calloc(N, sizeof *params), **list = calloc(N, sizeof *list);
    check(params != NULL && list != NULL, "no memory");
    for (int i = 0; i < N; i++) list[i] = &params[i];
    Module embed = {.name = "embed", .n_params = N, .params = list};
    Module head = {.name = "head", .n_params = 1, .params = list + N - 1};
    Module *below[] = {&embed, &head};
    Module root = {.name = "root", .n_children = 2, .children = below};
    int n = meta_params(&root, NULL, 0);
    check(n == N,
          "a model of %d parameters, the last of which is tied: meta_params finds %d. A model may "
          "have any number of parameters",
          N, n);
    free(list);
    free(params);
}

void rule_walks_every_tie_once(void)
{
    run_ranks(1, ties_body, NULL);
    run_ranks(1, many_ties_body, NULL);
}

// ---- Slices on the host ----

// Eight elements from `begin` on: bitwise init_std times what box_muller4, which is given code,
// makes of the words of the tests' own generator.
static void check_eight(const Param *p, uint64_t seed, int64_t begin, const char *what)
{
    float got[8], made[2][8], normals[4];
    uint32_t counter[4], key[2], words[4];
    for (int one_high = 0; one_high < 2; one_high++) {
        for (int k = 0; k < 8; k++) {
            const uint64_t i = (uint64_t)(begin + k), numbers[2] = {i / 4, p->id};
            memcpy(counter, numbers, sizeof counter); // the low word is in front
            memcpy(key, &seed, sizeof key);
            if (one_high) counter[1] = (uint32_t)((uint64_t)begin / 4 >> 32);
            oracle_philox(counter, key, words);
            box_muller4(words, normals, 1);
            made[one_high][k] = p->init_std * normals[i % 4];
        }
    }
    meta_init_slice(p, seed, begin, begin + 8, got);
    check_equal_in(&((Clues){.n = 1,
                             .clue = {{made[1], "normal_blocks gives all blocks of a call the high "
                                                "word of the first one's number"}}}),
                   what, got, made[0], 8);
}

// What an element depends on, with all its bits; and that it depends on nothing else: not on what
// was made before it, in the same call or in an earlier one.
RANK_RULE(elements_depend_on_nothing_else, 1)
{
    static const uint64_t seeds[] = {42, 43, 42 + (1ull << 32), 42};
    static const uint32_t ids[] = {3, 4, 3 + (1u << 16), 3 + (1u << 31)};
    Param p = {.name = "alone", .ndim = 1, .init = INIT_NORMAL, .init_std = 0.5f};
    p.shape[0] = (int64_t)1 << 40;
    for (int i = 0; i < 4; i++) {
        p.id = ids[i];
        for (int k = 0; k < 4; k++)
            check_eight(&p, seeds[k], 0,
                        "one parameter's elements [0, 8), for one seed and id after the other");
    }
    static const float stds[] = {3.0f, 0.0f, 0.25f}; // 0: all of them are zero
    for (int i = 0; i < 3; i++) {
        p.init_std = stds[i];
        check_eight(&p, 42, 0, "the same elements for another init_std (3, then 0, then 0.25)");
    }
    check_eight(
        &p, 42, ((int64_t)1 << 34) - 3,
        "elements [2^34 - 3, 2^34 + 5), whose blocks' numbers go beyond 32 bits on the way");
}

// ---- Slices on the device ----

typedef struct Far {
    int64_t begin, n;
    uint64_t seed;
} Far;

// A slice far out, longer than any host buffer ought to be, by the task's own host function.
static void device_body(const Rank *r, void *arg)
{
    const Far *far = arg;
    Param p = {.name = "far.weight", .id = 9, .ndim = 1, .init = INIT_NORMAL, .init_std = 0.5f};
    float *dst = NULL, *want = malloc((size_t)far->n * sizeof *want);
    p.shape[0] = (int64_t)1 << 40;
    check(want != NULL, "no memory");
    need_cuda(cudaMalloc((void **)&dst, (size_t)(far->n + 2) * sizeof *dst));
    need_cuda(cudaMemset(dst, 0xFF, (size_t)(far->n + 2) * sizeof *dst));
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    size_t host = host_bytes();
    need(meta_init_device(&p, far->seed, far->begin, far->begin + far->n, dst + 1, r->stream));
    // What simgpu remembers of pinned buffers and events is less.
    check(host_bytes() <= host + 16384, "meta_init_device left %zu bytes of host memory",
          host_bytes() - host);
    check_on_stream(log, r->stream, "meta_init_device's copies", "the stream that was given");
    GpuLogEntry entry;
    bool done = false; // the host has waited after the last copy
    for (uint64_t i = log; i < gpulog_length(); i++) {
        if (!gpulog_get(i, &entry)) continue;
        if (entry.op == GPU_COPY || entry.op == GPU_KERNEL) done = entry.host_waits;
        done |= entry.op >= GPU_STREAM_SYNC && entry.op <= GPU_DEVICE_SYNC;
    }
    check(done, "meta_init_device returned before the values were on the device: who waits for the "
                "last copy?");
    float *got = fetch(dst, (size_t)far->n + 2);
    meta_init_slice(&p, far->seed, far->begin, far->begin + far->n, want);
    check_equal("a long slice of meta_init_device, against the same on the host", got + 1, want,
                (size_t)far->n);
    check(got[0] != got[0] && got[far->n + 1] != got[far->n + 1],
          "meta_init_device wrote outside of the slice");
    need_cuda(cudaFree(dst));
    free(got);
    free(want);
}

// Lengths next to those that a host buffer may have.
static void lengths_body(const Rank *r, void *arg)
{
    for (int bits = 1; bits <= 19; bits++)
        for (int more = -1; more <= 1; more += 2) {
            Far far = {5, ((int64_t)1 << bits) + more, 42};
            device_body(r, &far);
        }
}

void rule_device_slice_of_any_length(void)
{
    Far far = {((int64_t)1 << 33) + 7, 600001, 42};
    run_ranks(1, device_body, &far);
    run_ranks(1, lengths_body, NULL);
    far = (Far){((int64_t)1 << 33) + draw(0, 1 << 20), 600000 + draw(0, 9999), draw_word()};
    drawn("elements from %lld on, %lld of them", (long long)far.begin, (long long)far.n);
    run_ranks(1, device_body, &far);
}

// 12 MiB of ones, where the host may take 4.
static void fixed_body(const Rank *r, void *arg)
{
    enum { N = 3 << 20 };
    Param p = {.name = "ones", .ndim = 1, .shape = {N}, .init = INIT_ONE};
    float *dst = NULL;
    need_cuda(cudaMalloc((void **)&dst, N * sizeof *dst));
    need(meta_init_device(&p, 1, 0, 1, dst, r->stream)); // the libraries take what they need first
    host_limit((size_t)4 << 20);
    Status status = meta_init_device(&p, 1, 0, N, dst, r->stream);
    host_limit(0);
    check(status == OK,
          "meta_init_device of a parameter of 12 MiB failed where the host may take 4 MiB for it "
          "(%s): its buffer must have a fixed size",
          last_error());
    need_cuda(cudaFree(dst));
}

// INIT_NONE: storage without values. Twice: not the first one alone.
static void none_body(const Rank *r, void *arg)
{
    enum { N = 5 };
    Param p = {.name = "none", .ndim = 1, .shape = {N}, .init = INIT_NONE};
    float sevens[N] = {7, 7, 7, 7, 7}, *dst = NULL;
    need_cuda(cudaMalloc((void **)&dst, sizeof sevens));
    send_to(dst, sevens, N);
    for (int round = 0; round < 2; round++) need(meta_init_device(&p, 1, 0, N, dst, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *got = fetch(dst, N);
    for (int i = 0; i < N; i++)
        check(got[i] == 7.0f,
              "meta_init_device of INIT_NONE writes nothing: element %d, a seven before, is %g", i,
              (double)got[i]);
    free(got);
    need_cuda(cudaFree(dst));
}

void rule_host_buffer_has_fixed_size(void)
{
    run_ranks(1, fixed_body, NULL);
    run_ranks(1, none_body, NULL);
}

// ---- The whole model ----

// A larger model than the one before.
static void release_another(const Rank *r)
{
    Spec spec = spec_mlp(5);
    Module *model = spec_create(&spec);
    Param *params[16];
    int n = meta_params(model, params, 16);
    need(meta_materialize(model, 7, r->stream));
    for (int i = 0; i < n; i++)
        check(params[i]->data.data != NULL && params[i]->grad.data != NULL,
              "the second model that meta_materialize got has more parameters than the first: it "
              "left out %s",
              params[i]->name);
    meta_release(model);
    for (int i = 0; i < n; i++)
        check(params[i]->data.data == NULL && params[i]->grad.data == NULL,
              "the second model that meta_release got has more parameters than the first: it left "
              "out %s",
              params[i]->name);
    module_destroy(model);
}

// What meta_release leaves.
RANK_RULE(release_frees_what_is_its_own, 1)
{
    Spec spec = spec_mlp(3);
    check_leaks();
    Module *model = spec_create(&spec);
    Param *params[16];
    int made = 0;
    meta_params(model, params, 16);
    size_t host = 0, live = gpulog_live_bytes(r->device);
    for (int round = 0; round < 3; round++) {
        need(meta_materialize(model, 7, r->stream));
        // A view of a flat parameter's is not meta_materialize's to free.
        void *own = params[0]->data.data;
        params[0]->owner = model;
        meta_release(model);
        check(params[0]->data.data == own && gpulog_live_bytes(r->device) > live,
              "meta_release took away what belongs to a flat parameter");
        params[0]->owner = NULL;
        meta_release(model);
        check(gpulog_live_bytes(r->device) == live, "meta_release left %zu bytes on the device",
              gpulog_live_bytes(r->device) - live);
        if (round == 0) host = host_bytes();
        made = round;
    }
    check(host_bytes() <= host + 65536,
          "%d rounds of materialising a model and releasing it left %zu "
          "bytes of host memory",
          made, host_bytes() - host);
    release_another(r);
    module_destroy(model);
}

// Whichever allocation it is that finds no room; and then a host without any.
static void room_body(const Rank *r, void *arg)
{
    // A step is less than the last parameter's 20 bytes: in one round its data has room, and its
    // gradient none. (simgpu's devices are full by the byte.)
    enum { STEP = 16, MOST = 31 * 256 };
    Spec spec = spec_mlp(2);
    Module *model = spec_create(&spec);
    Param *params[16];
    int n = meta_params(model, params, 16);
    size_t live = gpulog_live_bytes(r->device), room = 0;
    check_leaks();
    void *ballast = fill_all_but(MOST + 256);
    for (Status status = ERR_MEMORY; status != OK && room < MOST; room += STEP) {
        void *filler = fill_all_but(room);
        size_t before = gpulog_live_bytes(r->device);
        status = meta_materialize(model, 7, r->stream);
        size_t after = gpulog_live_bytes(r->device);
        need_cuda(cudaFree(filler));
        if (status == OK) break;
        bool on_meta = true;
        for (int i = 0; i < n; i++)
            on_meta = on_meta && params[i]->data.data == NULL && params[i]->grad.data == NULL;
        check(
            after == before || !on_meta,
            "materialize_param ran out of memory and left %zu bytes to which no parameter points: "
            "its data must be in the parameter before its gradient is allocated, so that it is "
            "found and freed",
            after - before);
        check(status == ERR_MEMORY && after == before,
              "meta_materialize with room for %zu bytes gives status %d and leaves %zu bytes", room,
              (int)status, after - before);
        for (int i = 0; i < n; i++)
            check(params[i]->data.data == NULL && params[i]->grad.data == NULL,
                  "meta_materialize ran out of memory, and %s is not on meta", params[i]->name);
    }
    check(room >= 8 * (size_t)model_numel(model) && room < MOST,
          "meta_materialize of a model that needs %zu bytes found room in %zu, or not in %d",
          8 * (size_t)model_numel(model), room, MOST);
    need_cuda(cudaFree(ballast));
    meta_release(model);

    host_exhaust(8192); // the libraries have what they need by now
    Status status = meta_materialize(model, 7, r->stream);
    host_exhaust(0);
    for (int i = 0; i < n; i++) {
        int64_t numel = oracle_numel(params[i]);
        check((params[i]->data.data != NULL) == (status == OK),
              "meta_materialize ran out of host memory: status %d, and %s %s storage", (int)status,
              params[i]->name, status == OK ? "has no" : "has");
        if (status != OK) continue;
        float *got = fetch(params[i]->data.data, (size_t)numel);
        float *want = malloc((size_t)numel * sizeof *want);
        oracle_init(params[i], 7, 0, numel, want);
        check_near("a parameter that was made with little host memory", got, want, (size_t)numel,
                   2e-6);
        free(want);
        free(got);
    }
    check(status == OK || status == ERR_MEMORY, "meta_materialize: status %d", (int)status);
    meta_release(model);
    check(gpulog_live_bytes(r->device) == live, "meta_release left %zu bytes on the device",
          gpulog_live_bytes(r->device) - live);
    module_destroy(model);
}

// So many parameters that a list of them needs more memory than the host has for a while.
static void list_body(const Rank *r, void *arg)
{
    enum { N = 2500 };
    Param *params = calloc(N, sizeof *params), **list = calloc(N, sizeof *list);
    Module model = {.name = "many", .n_params = N, .params = list};
    check(params != NULL && list != NULL, "no memory");
    for (int i = 0; i < N; i++) {
        list[i] = &params[i];
        params[i] = (Param){.id = (uint32_t)i, .ndim = 1, .shape = {1}, .init = INIT_ONE};
    }
    size_t live = gpulog_live_bytes(r->device);
    for (int round = 0; round < 2; round++) {
        host_exhaust(8192);
        Status status = meta_materialize(&model, 7, r->stream);
        host_exhaust(0);
        check(status == OK || (status == ERR_MEMORY && gpulog_live_bytes(r->device) == live &&
                               params[0].data.data == NULL && params[N - 1].data.data == NULL),
              "meta_materialize of %d parameters without host memory gives status %d: it must be "
              "ERR_MEMORY and leave the model on meta, or work all the same",
              N, (int)status);
        if (status != OK) need(meta_materialize(&model, 7, r->stream));
        host_exhaust(8192);
        meta_release(&model); // it may have no memory for what it needs
        host_exhaust(0);
        meta_release(&model);
        check(gpulog_live_bytes(r->device) == live, "meta_release of %d parameters left %zu bytes",
              N, gpulog_live_bytes(r->device) - live);
    }
    free(list);
    free(params);
}

void rule_failed_materialize_keeps_nothing(void)
{
    run_ranks(1, list_body, NULL);
    run_ranks_small(1, room_body, NULL);
}
