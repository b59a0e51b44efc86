/* draw.h: what a test draws at random, shapes and world sizes above all, so that nobody can fit a
 * solution to the numbers that stand in the tests.
 *
 * What is drawn depends on the seed and on the name of the test that runs, and on nothing else: a
 * test draws the same alone (--only) as in its suite. The seed is SEED in the environment, a whole
 * number of 64 bits; without it every start of a suite draws one. A test that fails after it has
 * drawn says what (drawn) and how to see the same again; one that drew nothing says nothing.
 *
 * Draw in the test's function, never in a body: every rank would have a generator of its own, and
 * the message would not know what it drew. Hand it to the body by its argument.
 *
 *   TEST(averages)
 *   {
 *       Spec spec = spec_mlp(draw(2, 5));
 *       int world = draw(2, 8);
 *       drawn("%d layers, %d ranks", spec.layers, world);
 *       run_ranks(world, body, &spec);
 *   }
 */
#ifndef SHARDLAB_DRAW_H
#define SHARDLAB_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A whole number from low to high, both included, each as likely as any other.
int draw(int low, int high);
// One of an array's elements.
#define draw_of(list) ((list)[draw(0, (int)(sizeof(list) / sizeof(list)[0]) - 1)])
// True in so many of a hundred cases.
bool draw_chance(int percent);
// 64 bits: a seed for the code under test, say.
uint64_t draw_word(void);

// What the test has drawn, in words, for the message should it fail from here on. A test of several
// rounds says it again in each.
void drawn(const char *format, ...) __attribute__((format(printf, 1, 2)));

// A number that looks random, of any other: the finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t draw_mix(uint64_t x);
// One of a seed, for each two numbers.
uint64_t draw_number(uint64_t seed, uint64_t what, uint64_t which);

// ---- suite.c ----

// Takes the seed from SEED, or draws one. False after a line that says what is wrong with SEED.
bool draw_seed_wanted(const char *program);
// A test begins, and with it a sequence of its own.
void draw_begin(const char *test);
// Whether the test has drawn anything.
bool draw_used(void);
uint64_t draw_seed(void);
// "(drawn: …. The same again: SEED=…)", or "" where the test has drawn nothing.
const char *draw_again(void);

#endif
