/* snapshot.c: a list of everything that can be seen, each with its name, compared with a second
 * such list. See snapshot.h.
 */
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Item {
    char name[112];
    size_t bytes;
    void *data;
} Item;

struct Snapshot {
    int n, max;
    Item *item;
};

static void note(Snapshot *s, const char *of, const char *what, const void *data, size_t bytes)
{
    if (s->n == s->max) {
        s->max = s->max == 0 ? 64 : 2 * s->max;
        s->item = realloc(s->item, (size_t)s->max * sizeof *s->item);
        check(s->item != NULL, "no memory");
    }
    Item *item = &s->item[s->n++];
    snprintf(item->name, sizeof item->name, "%s of %s", what, of);
    item->bytes = bytes;
    item->data = malloc(bytes + 1);
    check(item->data != NULL, "no memory");
    if (bytes > 0) memcpy(item->data, data, bytes);
}

#define NOTE(of, field) note(s, of, #field, &(field), sizeof(field))
#define NOTE_LIST(of, list, n) note(s, of, #list, list, (size_t)(n) * sizeof *(list))

static void note_device(Snapshot *s, const char *of, const char *what, const void *device,
                        size_t bytes)
{
    if (device == NULL || bytes == 0) return;
    void *host = malloc(bytes);
    check(host != NULL, "no memory");
    need_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDefault)); // offloaded, it is on the host
    note(s, of, what, host, bytes);
    free(host);
}

static void note_buffer(Snapshot *s, const char *of, const char *what, const Buffer *buffer,
                        bool elements)
{
    char name[64];
    snprintf(name, sizeof name, "%s.data", what);
    note(s, of, name, &buffer->data, sizeof buffer->data);
    if (buffer->data == NULL && !elements) return; // of a view of nothing that is all
    snprintf(name, sizeof name, "%s.dtype", what);
    note(s, of, name, &buffer->dtype, sizeof buffer->dtype);
    snprintf(name, sizeof name, "%s.numel", what);
    note(s, of, name, &buffer->numel, sizeof buffer->numel);
    snprintf(name, sizeof name, "what is in %s", what);
    if (elements) note_device(s, of, name, buffer->data, buffer_bytes(buffer));
}

static void note_root(Snapshot *s, const FsdpRoot *root, const char *of)
{
    NOTE(of, root->ctx);
    NOTE(of, root->n_units);
    NOTE_LIST(of, root->units, root->n_units);
    NOTE(of, root->iter_forward_root);
    NOTE(of, root->iter_backward_root);
    NOTE(of, root->n_post_forward);
    NOTE_LIST(of, root->post_forward_order, root->n_post_forward);
    NOTE(of, root->all_gather_state.buffer);
    NOTE(of, root->reduce_scatter_state.buffer);
    NOTE(of, root->ops);
}

static void note_flat(Snapshot *s, const FlatParam *flat)
{
    const FlatLayout *layout = &flat->layout;
    const char *of = flat->name;
    NOTE(of, layout->n);
    NOTE_LIST(of, layout->params, layout->n);
    NOTE_LIST(of, layout->offset, layout->n);
    NOTE(of, layout->numel);
    NOTE(of, layout->padded);
    NOTE(of, layout->shard_numel);
    NOTE(of, layout->grad_numel);
    NOTE(of, layout->rank);
    NOTE(of, layout->world);
    NOTE(of, layout->ops);
    NOTE(of, flat->state);
    NOTE(of, flat->gathers_alone);
    note_buffer(s, of, "flat->sharded_param", &flat->sharded_param, true);
    note_buffer(s, of, "flat->sharded_grad", &flat->sharded_grad, true);
    note_buffer(s, of, "flat->unsharded_param", &flat->unsharded_param, true);
    note_buffer(s, of, "flat->unsharded_grad", &flat->unsharded_grad, true);
}

static void note_unit(Snapshot *s, const FsdpUnit *unit)
{
    const char *of = unit->flat.name;
    NOTE(of, unit->module);
    NOTE(of, unit->ctx);
    NOTE(of, unit->root);
    NOTE(of, unit->reshard_after_forward);
    NOTE(of, unit->phase);
    NOTE(of, unit->n_indices);
    NOTE_LIST(of, unit->post_forward_indices, unit->n_indices);
    NOTE(of, unit->backward_index);
    NOTE(of, unit->all_gather);
    NOTE(of, unit->gather_shards);
    NOTE(of, unit->reduce_scatter);
    NOTE(of, unit->hooks);
    note_flat(s, &unit->flat);
    if (unit->root != NULL && unit->root->units[0] == unit) note_root(s, unit->root, of);
}

static void note_module(Snapshot *s, const Module *m)
{
    for (int i = 0; i < m->n_params; i++) {
        const Param *param = m->params[i];
        NOTE(param->name, param->owner);
        note_buffer(s, param->name, "param->data", &param->data, false);
        note_buffer(s, param->name, "param->grad", &param->grad, false);
    }
    int n_hooks = 0;
    for (int point = 0; point < HOOK_POINTS; point++)
        for (const Hook *hook = m->hooks[point]; hook != NULL; hook = hook->next) n_hooks++;
    note(s, m->name, "the number of hooks", &n_hooks, sizeof n_hooks);
    for (int point = 0; point < HOOK_POINTS; point++)
        for (const Hook *hook = m->hooks[point]; hook != NULL; hook = hook->next) {
            NOTE(m->name, hook);
            NOTE(m->name, hook->fn);
            NOTE(m->name, hook->arg);
        }
    NOTE(m->name, m->forward);
    NOTE(m->name, m->backward);
    NOTE(m->name, m->around);
    NOTE(m->name, m->unit);
    if (m->unit != NULL) note_unit(s, m->unit);
    for (int i = 0; i < m->n_children; i++) note_module(s, m->children[i]);
}

static void note_optimizer(Snapshot *s, const FsdpAdamW *opt)
{
    static const char of[] = "the optimizer";
    NOTE(of, opt->ctx);
    NOTE(of, opt->root);
    NOTE(of, opt->config);
    NOTE(of, opt->t);
    NOTE(of, opt->n);
    for (int i = 0; i < opt->n; i++) {
        size_t bytes = buffer_bytes(&opt->root->units[i]->flat.sharded_grad);
        NOTE(of, opt->m[i]);
        NOTE(of, opt->v[i]);
        note_device(s, of, "what is in opt->m[i]", opt->m[i], bytes);
        note_device(s, of, "what is in opt->v[i]", opt->v[i], bytes);
    }
}

Snapshot *snapshot_take(const Module *model, const FsdpAdamW *opt)
{
    Snapshot *s = calloc(1, sizeof *s);
    int device = 0;
    check(s != NULL, "no memory");
    need_cuda(cudaGetDevice(&device));
    need_cuda(cudaDeviceSynchronize());
    const size_t live = gpulog_live_bytes(device);
    note_module(s, model);
    if (opt != NULL && opt->ctx != NULL) note_optimizer(s, opt);
    note(s, "the device", "the number of allocated bytes", &live, sizeof live);
    return s;
}

static void destroy(Snapshot *s)
{
    for (int i = 0; i < s->n; i++) free(s->item[i].data);
    free(s->item);
    free(s);
}

// ": was 0, is 1" of what is one number.
static void say_numbers(const Item *a, const Item *b, char *text, size_t size)
{
    int was, is;
    if (a->bytes != sizeof was) return;
    memcpy(&was, a->data, sizeof was);
    memcpy(&is, b->data, sizeof is);
    snprintf(text, size, ": it was %d, and is %d", was, is);
}

void snapshot_check_at(const char *file, int line, Snapshot *before, const Module *model,
                       const FsdpAdamW *opt, const char *call)
{
    Snapshot *after = snapshot_take(model, opt);
    for (int i = 0; i < before->n || i < after->n; i++) {
        const Item *a = &before->item[i], *b = &after->item[i];
        char numbers[80] = "";
        bool gone = i >= after->n || i >= before->n || strcmp(a->name, b->name) != 0;
        if (gone)
            rank_fails(file, line,
                       "%s must leave everything that can be seen as it was: a unit, or a buffer, "
                       "is there that was not, or is there no more, at %s",
                       call, i < before->n ? a->name : b->name);
        if (a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0) continue;
        if (a->bytes == b->bytes) say_numbers(a, b, numbers, sizeof numbers);
        rank_fails(file, line,
                   "%s must leave everything that can be seen as it was, and has changed %s%s",
                   call, a->name, numbers);
    }
    destroy(before);
    destroy(after);
}
