// tests.h: what the files of this suite share.
#ifndef LAB_PREFETCH_TESTS_H
#define LAB_PREFETCH_TESTS_H

#include "harness.h"

// rules.c
void rule_prefetch_is_removed(void);
void rule_prefetches_grow_nothing(void);
void rule_lists_are_replaced(void);
void rule_failed_prefetches_are_told(void);
void rule_failed_lists_are_told(void);
void rule_bytes_beyond_32_bits(void);
void rule_prefetch_beyond_32_bits(void);

#endif
