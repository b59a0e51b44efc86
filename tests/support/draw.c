/* draw.c: the generator of draw.h. A counter run through SplitMix64's mixer (Steele, Lea and Flood
 * 2014), which begins where the seed and the test's name say.
 */
#include "draw.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "run.h"

#define MOST_WANTED 1000000000u    // a seed of its own has nine digits: people type it
#define STRIDE 0x9e3779b97f4a7c15u // of splitmix64's counter

static struct Drawing {
    uint64_t seed, state;
    bool begun, used;
    char words[400];
    char again[480];
} drawing;

uint64_t draw_mix(uint64_t x)
{
    x += STRIDE;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t draw_number(uint64_t seed, uint64_t what, uint64_t which)
{
    return draw_mix(draw_mix(draw_mix(seed) + what) + which);
}

// FNV-1a.
static uint64_t sum_of(const char *text)
{
    uint64_t sum = 0xcbf29ce484222325u;

    for (; *text; text++) sum = (sum ^ (unsigned char)*text) * 0x100000001b3u;
    return sum;
}

// ---- For tests ----

uint64_t draw_word(void)
{
    if (rank_run)
        rank_fails(__FILE__, __LINE__,
                   "a body has drawn: draw in the test's function, where the message knows of it");
    if (!drawing.begun) {
        fprintf(stderr, "draw: no test of a suite runs\n");
        abort();
    }
    drawing.used = true;
    uint64_t word = draw_mix(drawing.state);
    drawing.state += STRIDE;
    return word;
}

int draw(int low, int high)
{
    uint64_t count = (uint64_t)((int64_t)high - low) + 1;

    if (low > high) {
        fprintf(stderr, "draw: there is no number from %d to %d\n", low, high);
        abort();
    }
    // The upper half of a product with at most 2³² numbers: none is likelier than another by more
    // than one in 2³².
    return (int)(low + (int64_t)(((unsigned __int128)draw_word() * count) >> 64));
}

bool draw_chance(int percent)
{
    return draw(1, 100) <= percent;
}

void drawn(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(drawing.words, sizeof drawing.words, format, args);
    va_end(args);
}

// ---- For suite.c ----

// 0: text is no whole number of 64 bits.
static bool read_seed(const char *text, uint64_t *seed)
{
    char *end;

    errno = 0;
    *seed = strtoull(text, &end, 10);
    // strtoull takes blanks and a sign in front as well.
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static uint64_t any_seed(void)
{
    uint64_t word;

    if (getrandom(&word, sizeof word, 0) != sizeof word) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        word = draw_mix((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    }
    return word % MOST_WANTED;
}

bool draw_seed_wanted(const char *program)
{
    const char *text = getenv("SEED");

    if (!text || !*text) {
        drawing.seed = any_seed();
        return true;
    }
    if (read_seed(text, &drawing.seed)) return true;
    char shown[41];
    snprintf(shown, sizeof shown, "%s", text);
    for (char *c = shown; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?'; // one line, and nothing that a terminal obeys
    fprintf(stderr, "%s: SEED is \"%s\": must be a whole number from 0 to %" PRIu64 "\n", program,
            shown, UINT64_MAX);
    return false;
}

void draw_begin(const char *test)
{
    drawing.state = draw_mix(drawing.seed) ^ sum_of(test);
    drawing.begun = true;
    drawing.used = false;
    drawing.words[0] = '\0';
}

bool draw_used(void)
{
    return drawing.used;
}

uint64_t draw_seed(void)
{
    return drawing.seed;
}

const char *draw_again(void)
{
    if (!drawing.used) return "";
    snprintf(drawing.again, sizeof drawing.again, "(drawn%s%s. The same again: SEED=%" PRIu64 ")",
             drawing.words[0] ? ": " : "", drawing.words, drawing.seed);
    return drawing.again;
}
