/* tests.h: the tests that the other files of this suite have. tests.c has the list.
 */
#ifndef LAB_PREFETCH_TESTS_H
#define LAB_PREFETCH_TESTS_H

#include "harness.h"
#include "strategies.h"

// tests_same.c: what is as it was without a prefetch.
void one_ahead_is_what_it_was(void **state);
void any_prefetch_trains_the_same(void **state);
void costs_are_those_of_the_tables(void **state);

// tests_clock.c
void two_ahead_hide_what_one_cannot(void **state);

#endif
