/* Lab 3: prefetch. The next units' parameters arrive while this one computes.
 *
 * The six tasks gather one unit ahead. That hides an all-gather behind the compute of one unit, and
 * is enough if all units are alike. If a large unit follows a small one, its all-gather takes
 * longer than the small one computes, and the GPU waits. Two ahead, it begins a unit earlier:
 *
 *     one ahead    compute      | 1 | . . . |   2       | 3 | . . .
 *                  all-gather   |     2     | 3 |       |     4
 *
 *     two ahead    compute      | 1 |   2       | 3 |   4
 *                  all-gather   … 2 | 3 |     4     | 5 |
 *
 * Each unit ahead costs its unsharded parameters. So there is also a limit, in bytes; and if a
 * model's author knows a better order, lists.
 *
 * [Note: after the unit's own hooks] These hooks run after those of the tasks and of lab 1. By then
 * the unit has its parameters, and the buffer that was resharded last is freed: an all-gather that
 * is queued now comes after that free on the all-gather stream, and fewer bytes are unsharded.
 *
 * [Note: one order] Each all-gather is a collective: all ranks must queue the same ones in the same
 * order. So nothing here may depend on time, on the progress of a stream, or on what only one rank
 * knows. Sizes, states and orders are the same on all ranks.
 *
 * Interface:
 *   prefetch_apply, prefetch_remove           the switch
 *   fsdp_set_modules_to_forward_prefetch, _backward_prefetch     lists
 *   prefetch_in_flight, prefetch_unit, prefetch_clear            one unit, all of them
 *   prefetch_pre_forward, _post_forward, _pre_backward, _post_backward    the hooks
 */
// Lab 3. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/3_prefetch/handout.md; `make grade LAB=3` says how far you are.
#include "prefetch.h"

#include <stdlib.h>
#include <string.h>

// ---- The switch, and lists ----

// Whether the root can have a prefetch with these options.
static Status check_options(const FsdpRoot *root, const PrefetchOptions *o)
{
    const char *name = root->units[0]->flat.name;
    if (root->extensions->strategy == NULL)
        return fail(ERR_ARGUMENT, "%s has no strategy: call strategy_apply before prefetch_apply",
                    name);
    if (root->extensions->prefetch != NULL)
        return fail(ERR_ARGUMENT, "%s has a prefetch already", name);
    if (o->forward_depth < 0 || o->backward_depth < 0)
        return fail(ERR_ARGUMENT, "a prefetch of %d units ahead: it is 0 or more",
                    o->forward_depth < 0 ? o->forward_depth : o->backward_depth);
    if (o->limit_bytes < 0)
        return fail(ERR_ARGUMENT, "a limit of %lld bytes in flight: it is positive, or 0 for none",
                    (long long)o->limit_bytes);
    return OK;
}

Status prefetch_apply(Module *module, const PrefetchOptions *options)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_options(root, options));
    return prefetch_create(root, options);
}

Status prefetch_remove(Module *module)
{
    PrefetchState *state;
    TRY(prefetch_find(module, &state));
    TRY(extension_check_last(state->root, EXTENSION_PREFETCH));
    prefetch_destroy(state);
    return OK;
}

// Whether the n modules can be the list of this one.
static Status check_list(const Module *module, Module *const *modules, int n)
{
    const FsdpUnit *unit = fsdp_unit(module);
    if (unit == NULL)
        return fail(ERR_ARGUMENT,
                    "%s is not a unit, and prefetches nothing: call fully_shard on it",
                    module->name);
    if (unit->root->extensions->prefetch == NULL)
        return fail(ERR_ARGUMENT, "%s has no prefetch: call prefetch_apply on it",
                    unit->root->units[0]->flat.name);
    if (n < 0) return fail(ERR_ARGUMENT, "%s: a list of %d modules", module->name, n);
    for (int i = 0; i < n; i++) {
        const FsdpUnit *listed = fsdp_unit(modules[i]);
        if (listed == NULL)
            return fail(ERR_ARGUMENT,
                        "%s is not a unit, and %s cannot prefetch it: list the unit "
                        "that it is in",
                        modules[i]->name, module->name);
        if (listed == unit) return fail(ERR_ARGUMENT, "%s cannot prefetch itself", module->name);
        if (listed->root != unit->root)
            return fail(ERR_ARGUMENT, "%s is a unit of another root, and %s cannot prefetch it",
                        modules[i]->name, module->name);
    }
    return OK;
}

// Makes the modules the list.
static Status set_list(PrefetchList *list, Module *const *modules, int n)
{
    // TODO L3.1: The list has these units, in this order, in its own memory: the caller may change
    // `modules` afterwards. The old list is freed; if there is no memory, it stays.
    // Hint: What does realloc do if n is 0? And who still has the old list if it fails?
    NOT_YET("L3.1");
}

Status fsdp_set_modules_to_forward_prefetch(Module *module, Module *const *modules, int n)
{
    TRY(check_list(module, modules, n));
    const FsdpUnit *unit = fsdp_unit(module);
    return set_list(&unit->root->extensions->prefetch->forward[fsdp_unit_index(unit)], modules, n);
}

Status fsdp_set_modules_to_backward_prefetch(Module *module, Module *const *modules, int n)
{
    TRY(check_list(module, modules, n));
    const FsdpUnit *unit = fsdp_unit(module);
    return set_list(&unit->root->extensions->prefetch->backward[fsdp_unit_index(unit)], modules, n);
}

// ---- One unit, and all units ----

// Bytes that an all-gather of the unit fills; none if the unsharded parameter is the shard.
static int64_t gathered_bytes(const FsdpUnit *unit)
{
    const FlatParam *flat = &unit->flat;
    return flat_param_is_shard(flat) ? 0 : (int64_t)buffer_bytes(&flat->unsharded_param);
}

int64_t prefetch_in_flight(const FsdpRoot *root)
{
    // TODO L3.2: The bytes (gathered_bytes) of the units of the root that are in flight.
    // Hint: A unit has three states. In which one is it in flight, and what ends that?
    NOT_YET("L3.2");
}

Status prefetch_unit(FsdpUnit *unit, bool *fits)
{
    const FsdpRoot *root = unit->root;
    int64_t limit = root->extensions->prefetch->options.limit_bytes;
    // TODO L3.3: As prefetch.h says. A unit that is not sharded fits: it costs nothing more.
    // Hint: What if the limit is 0? And if the unit alone is larger than the limit, who gathers it?
    NOT_YET("L3.3");
}

Status prefetch_clear(FsdpRoot *root)
{
    // TODO L3.4: Nothing is in flight: units that were are resharded, and no buffer is left to
    // free.
    // Hint: What does fsdp_reshard say to a unit that nobody has waited for?
    NOT_YET("L3.4");
}

// Prefetches units[0], units[step] …, n of them, until one does not fit.
static Status prefetch_units(FsdpUnit *const *units, int n, int step)
{
    bool fits = true;
    for (int i = 0; i < n && fits; i++) TRY(prefetch_unit(units[i * step], &fits));
    return OK;
}

// ---- Forward ----

// Begins the unit's forward: appends the unit to state->begun.
static Status record_begin(PrefetchState *state, FsdpUnit *unit)
{
    PrefetchList *begun = &state->begun;
    const PrefetchList *order = &state->order;
    // TODO L3.5: `begun` has the units of this forward, this one last; the outermost forward
    // (root->iter_forward_root) has emptied it first. `follows` says whether these are the first
    // units of `order`.
    // Hint: An error ended the last forward half-way. What is in `begun`?
    NOT_YET("L3.5");
}

Status prefetch_pre_forward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    PrefetchState *state = unit->root->extensions->prefetch;
    const PrefetchList *list = &state->forward[fsdp_unit_index(unit)], *order = &state->order;
    if (unit->root->extensions->recomputes)
        return OK; // within a backward (lab 4), so not a pass of its own
    TRY(record_begin(state, unit));
    // TODO L3.6: The unit's list is prefetched; without a list, the units that begin next: at most
    // forward_depth of them, as far as `order` knows them.
    // Hint: Where in `order` is the unit after this one? And how many units are left from there on?
    NOT_YET("L3.6");
}

Status prefetch_post_forward(Module *module, void *arg)
{
    const FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    PrefetchState *state = root->extensions->prefetch;
    if (root->extensions->recomputes || root->iter_forward_root != NULL)
        return OK; // it was not the outermost
    // TODO L3.7: Nothing is in flight, and `order` has this forward's units in the order in which
    // they began.
    // Hint: To exchange two lists you need a third variable. `max_begun` is the room in `begun`:
    // what is it afterwards?
    NOT_YET("L3.7");
}

// ---- Backward ----

Status prefetch_pre_backward(Module *module, void *arg)
{
    FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    const PrefetchState *state = root->extensions->prefetch;
    const PrefetchList *list = &state->backward[fsdp_unit_index(unit)];
    // TODO L3.8: The unit's list is prefetched; without a list, the units whose forwards ended
    // just before its own (unit->backward_index): the latest first, at most backward_depth of
    // them.
    // Hint: How many forwards ended before the one at index 2? And what if the unit is not in the
    // order?
    NOT_YET("L3.8");
}

Status prefetch_post_backward(Module *module, void *arg)
{
    const FsdpUnit *unit = arg;
    FsdpRoot *root = unit->root;
    // TODO L3.9: After the outermost backward of any micro-batch nothing is in flight.
    // Hint: What clears after the last micro-batch, and what after the others?
    NOT_YET("L3.9");
}
