/* passes.c: what must hold of units before a pass of a model runs, and once it is over.
 *
 * A mistake in one of these otherwise shows far from where it was made: a hook that gets the module
 * for its unit crashes in given code, and a buffer that nobody frees is a race in the next step.
 */
#include "extensions.h"
#include "training.h"

static const char *const POINT[HOOK_POINTS] = {"HOOK_PRE_FORWARD", "HOOK_POST_FORWARD",
                                               "HOOK_PRE_BACKWARD", "HOOK_POST_BACKWARD"};

// A hook that is a function of a student's own is judged by what it does; one of the four known
// ones must be at its own point.
static void check_hook(const Module *m, const FsdpUnit *unit, HookPoint at)
{
    static const HookFn known[HOOK_POINTS] = {fsdp_pre_forward, fsdp_post_forward,
                                              fsdp_pre_backward, fsdp_post_backward};
    check(module_has_hooks(m),
          "%s is a unit, and has no hook: does fully_shard call install_hooks, and does that add "
          "them?",
          m->name);
    check(m->hooks[at] != NULL, "%s: install_hooks leaves out the hook at %s", m->name, POINT[at]);
    for (const Hook *hook = m->hooks[at]; hook != NULL; hook = hook->next)
        for (int k = 0; k < HOOK_POINTS; k++) {
            if (hook->fn != known[k]) continue;
            check(k == (int)at, "%s: install_hooks must not put the function for %s at %s", m->name,
                  POINT[k], POINT[at]);
            check(hook->arg == unit,
                  "%s: install_hooks must give the hook at %s its unit, and gives something else",
                  m->name, POINT[at]);
        }
}

void check_hooks(const Module *model, HookPoint last)
{
    const FsdpUnit *unit = fsdp_unit(model);
    // What a lab puts on may have hooks of its own.
    for (int at = 0; at <= (int)last; at++)
        if (unit != NULL && unit->root != NULL && unit->root->extensions->top == NULL)
            check_hook(model, unit, at);
    for (int i = 0; i < model->n_children; i++) check_hooks(model->children[i], last);
}

void check_forward_over(const FsdpRoot *root)
{
    check(root->iter_forward_root == NULL,
          "after a forward the outermost forward is not over: does fsdp_post_forward set "
          "root->iter_forward_root to NULL where it is its unit, whichever unit that is?");
    check(root->all_gather_state.buffer == NULL,
          "after a forward root->all_gather_state still holds the buffer that was resharded last: "
          "does fsdp_post_forward free it (fsdp_free_all_gather) where the outermost forward "
          "ends?");
}

// Where the iteration goes on, the function that ends it shows whether it was called.
void check_backward_over(FsdpRoot *root)
{
    bool over = root->iter_backward_root == NULL;
    if (!over) {
        need(fsdp_finish_backward(root));
        check(root->iter_backward_root == NULL,
              "after fsdp_finish_backward root->iter_backward_root is still set: does it end the "
              "iteration, as fsdp_reshard_all does?");
    }
    check(over, "after a backward root->iter_backward_root is still set: does fsdp_post_backward "
                "finish the backward where its unit is the outermost, whichever unit that is?");
    check(root->reduce_scatter_state.buffer == NULL,
          "after a backward root->reduce_scatter_state still holds the gradient that was reduced "
          "last, and nothing waits for its reduce-scatter: does fsdp_post_backward finish the "
          "backward, after it has reduced the gradient, where its unit is "
          "root->iter_backward_root, and does fsdp_pre_backward set that once, where it is NULL?");
}
