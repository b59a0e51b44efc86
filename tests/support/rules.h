/* rules.h: sentences of fsdp.h that nobody would write a test of when writing the tests of a task:
 * sizes beyond 2³¹, what stays allocated after a failure, the seventeenth unit, the second
 * iteration. Each is a function that runs ranks and fails the cmocka test; the tasks' suites call
 * them after their own bodies. What serves one task is in its folder (rules.c, rules_NAME.c), what
 * serves several is here. tests/claims.txt says which rule is whose.
 */
#ifndef SHARDLAB_RULES_H
#define SHARDLAB_RULES_H

#include "harness.h"

// RANK_RULE(any_number_of_units, 1, 2) { … }: a rule whose body runs on one rank, then on two, as a
// RANK_TEST's does.
#define RANK_RULE(name, ...)                                                                       \
    static void name##_body(const Rank *r, void *arg);                                             \
    void rule_##name(void)                                                                         \
    {                                                                                              \
        run_worlds(name##_body, NULL, __VA_ARGS__);                                                \
    }                                                                                              \
    static void name##_body(const Rank *r, void *arg)

// ---- Tasks 3 to 6: rules_apart.c ----
typedef enum Apart {
    APART_FORWARD,  // a forward alone
    APART_BACKWARD, // a forward and a backward
    APART_NORM,     // one call of the optimizer's, or of the full state
    APART_CLIP,
    APART_ADAMW,
    APART_SGD,
    APART_ZERO_GRAD,
    APART_STATE,
} Apart;
void rule_contexts_are_apart(Apart part);
// rules_growth.c
void rule_nothing_grows(Apart part);

// ---- Tasks 2 to 4: rules_tables.c ----
void rule_create_asks_its_layout(void); // task 2
// From now on tables of the test's are what the model's units and their root ask; they count, and
// pass on. Then: fails the rank where one was asked fewer times since by what `caller` names; the
// count begins again.
typedef enum Entry {
    ASKED_WAIT,
    ASKED_RESHARD,
    ASKED_REDUCE,
    ASKED_PADDING,
    ASKED_RECORD,
    ASKED_ENTRIES,
} Entry;
struct Sharded;
void count_entries(struct Sharded *s);
void check_entry_asked(Entry entry, int times, const char *caller);

// ---- Task 1 ----
void rule_philox_of_any_words(void);
void rule_counts_large_and_small_types(void);
void rule_walks_every_tie_once(void);
void rule_elements_depend_on_nothing_else(void);
void rule_device_slice_of_any_length(void);
void rule_host_buffer_has_fixed_size(void);
void rule_release_frees_what_is_its_own(void);
void rule_failed_materialize_keeps_nothing(void);
void rule_refused_model_is_as_it_was(void);
void rule_failed_copy_keeps_its_status(void);
void rule_failed_model_keeps_its_status(void);
void rule_frozen_and_empty_parameters(void);
void rule_materializes_any_number(void);
void rule_materializes_beyond_32_bits(void);

// ---- Task 2 ----
void rule_layout_beyond_32_bits(void);
void rule_padding_of_any_size_and_type(void);
void rule_views_have_their_buffers_type(void);
void rule_layout_reads_its_own_list(void);
void rule_flat_keeps_within_its_places(void);
void rule_failed_create_keeps_nothing(void);
void rule_failed_calls_of_create_are_told(void);
void rule_states_follow_each_other(void);
void rule_any_number_of_parameters(void);
void rule_flat_beyond_32_bits(void);

// ---- Task 3 ----
void rule_unshard_is_one_gather_ahead(void);
void rule_gathers_by_the_units_own_function(void);
void rule_waits_where_one_rank_gathers(void);
void rule_gathers_in_the_shards_own_type(void);
void rule_unshards_within_its_group(void);
void rule_refuses_before_it_queues(void);
void rule_each_unit_has_its_own_option(void);
void rule_order_is_of_this_iteration(void);
void rule_reshard_all_reaches_every_unit(void);
void rule_failed_unshard_keeps_its_status(void);
void rule_failed_calls_are_told(void);
void rule_each_buffer_is_freed_after_its_use(void);
void rule_options_change_between_forwards(void);
void rule_a_failed_model_fails_alone(void);
void rule_gathers_any_size_and_type(void);

// ---- Task 4 ----
void rule_micro_batches_with_kept_parameters(void);
void rule_order_of_each_backward(void);
void rule_reduces_by_the_units_own_function(int world);
void rule_shards_within_its_group(void);
void rule_gradient_refusals(void);
void rule_gradient_of_any_size_and_type(void);

// ---- Task 5 ----
void rule_clips_at_any_norm(void);
void rule_norm_has_the_same_bits_everywhere(void);
void rule_adamw_steps_all_or_nothing(void);
void rule_sgd_steps_all_or_nothing(void);
void rule_zero_grad_reaches_every_unit(void);
void rule_each_optimizer_counts_its_steps(void);
void rule_failed_optimizer_keeps_nothing(void);
void rule_failed_norm_keeps_nothing(void);
void rule_norm_refuses_what_is_no_root(void);
void rule_clip_refuses_what_is_no_root(void);
void rule_moments_beyond_32_bits(void);
void rule_counts_beyond_32_bits(Apart part);

// ---- Task 6 ----
void rule_options_are_the_units_own(void);
void rule_unwrap_leaves_what_is_not_its_own(void);
void rule_any_number_of_units(void);
void rule_a_refused_module_is_as_it_was(void);
void rule_full_state_leaves_units_as_they_were(void);
void rule_refuses_each_time(void);
void rule_lists_no_more_than_its_places(void);
void rule_unwraps_below_a_root(void);
void rule_full_state_says_what_failed(void);
void rule_full_state_is_shown_to_one(void);
void rule_full_state_of_what_is_below(void);

// ---- Frozen parameters: rules_frozen.c ----
void rule_flat_layout_refuses_a_frozen_parameter(void); // task 2
void rule_a_unit_may_have_no_gradient(void);            // task 4
void rule_gradients_alone_are_reduced(void);            // task 4
void rule_gradients_alone_are_counted(Apart part);      // task 5

#endif
