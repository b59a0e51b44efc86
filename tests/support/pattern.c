/* pattern.c: what kind of wrong an array is. See pattern.h.
 *
 * A pattern is a function that looks at the whole array and writes its sentence, or leaves it to
 * the next; they stand in the order of how much they claim. "Explains" means every element: those
 * that are right must be what the pattern makes of them, too.
 */
#include "pattern.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ROUNDING 2e-6 // relative: what a few sums and products in float may be off by

typedef struct Case {
    const float *got, *want;
    size_t n;
    const Clues *clues;
    size_t bad, first, last; // elements that are wrong: how many, the first, the last
    char *text;
    size_t size;
} Case;

static bool says(const Case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool says(const Case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, c->size, format, args);
    va_end(args);
    return true;
}

// Equal but for rounding.
static bool close_to(const Case *c, double got, double value)
{
    return fabs(got - value) <= c->clues->slack + ROUNDING * fabs(value);
}

// Where a test lets something pass, what is off by rounding alone is no pattern's business.
static bool is_wrong(const Case *c, size_t i)
{
    if (c->clues->slack == 0.0) return !(c->got[i] == c->want[i]);
    return !close_to(c, (double)c->got[i], (double)c->want[i]);
}

// Whether `few` or more different values are among the wanted ones of [begin, end).
static bool varied(const float *want, size_t begin, size_t end, size_t few)
{
    float seen[WRONG_FEW];
    size_t n = 0;
    for (size_t i = begin; i < end && n < few; i++) {
        bool old = false;
        for (size_t j = 0; j < n; j++) old |= seen[j] == fabsf(want[i]);
        if (!old) seen[n++] = fabsf(want[i]);
    }
    return n >= few;
}

// Fresh device memory is filled with bytes of 0xff (simgpu/src/memory/owed.h,
// gpulog/interpose/memory.c).
static bool is_poison(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == UINT32_MAX;
}

// ---- What a test suspects ----

// Whether the array is `values`, and these say more than the wanted ones do.
static bool is_array(const Case *c, const float *values)
{
    size_t strong = 0;
    for (size_t i = 0; i < c->n; i++) {
        double got = (double)c->got[i], value = (double)values[i], want = (double)c->want[i];
        if (isnan(got) && isnan(value)) {
            strong += !isnan(want);
            continue;
        }
        if (!close_to(c, got, value)) return false;
        double apart = fabs(value - want), room = c->clues->slack + ROUNDING * fabs(want);
        if (is_wrong(c, i) && apart > 8 * room) strong++;
    }
    return strong >= WRONG_FEW && 2 * strong >= c->bad;
}

static bool is_clue(const Case *c)
{
    if (c->clues->known) return says(c, "%s", c->clues->known);
    for (int k = 0; k < c->clues->n; k++)
        if (is_array(c, c->clues->clue[k].values)) return says(c, "%s", c->clues->clue[k].cause);
    return false;
}

// ---- Padding ----

static bool wrong_in_padding(const Case *c)
{
    for (size_t i = c->first; i <= c->last; i++)
        if (is_wrong(c, i) && !layout_is_padding(c->clues->layout, c->n, i)) return false;
    bool all = true, stays = c->clues->before != NULL;
    for (size_t i = c->first; i <= c->last; i++) {
        all &= is_poison(c->got[i]);
        stays = stays && (!is_wrong(c, i) || c->got[i] == c->clues->before[i]);
    }
    return says(c, "the padding alone is wrong, every parameter is right. %s",
                all     ? "It was never written: does anything zero it?"
                : stays ? "It is what it was before the call: how many elements does that set?"
                        : "Is flat_zero_padding called after what wrote there?");
}

// ---- One thing everywhere ----

static bool all_nan(const Case *c)
{
    size_t poison = 0;
    if (c->bad < WRONG_FEW) return false;
    for (size_t i = c->first; i <= c->last; i++) {
        if (is_wrong(c, i) && !isnan(c->got[i])) return false;
        poison += is_poison(c->got[i]);
    }
    const char *where = c->bad == c->n ? "every element" : "every wrong element";
    if (poison == c->bad)
        return says(c,
                    "%s is the NaN that fresh device memory is filled with: was this ever written, "
                    "or made from what nobody had written?",
                    where);
    if (poison > 0) return false;
    return says(c,
                "%s is a NaN that arithmetic made: what is 0/0 here, or the root of a negative "
                "number? In AdamW: does the step count begin at 1, and is eps passed on?",
                where);
}

static bool all_unchanged(const Case *c)
{
    return c->clues->before && is_array(c, c->clues->before) &&
           says(c, "every element is what it was before the call: does anything write here?");
}

static bool all_zero(const Case *c)
{
    if (c->bad < WRONG_FEW) return false;
    for (size_t i = 0; i < c->n; i++)
        if (c->got[i] != 0.0f) return false;
    return says(c, "every element is zero: did the values never arrive, or was the buffer zeroed "
                   "after them?");
}

static bool is_factor(double factor, double value)
{
    return fabs(factor - value) <= 1e-5 * fabs(value);
}

static bool say_factor(const Case *c, double f)
{
    double w = c->clues->world;
    int W = c->clues->world;
    if (c->clues->average && W > 1) {
        if (is_factor(f, w))
            return says(c,
                        "every element is %d times what it must be, and there are %d ranks: is the "
                        "sum over the ranks never divided by their number%s?",
                        W, W, W == 2 ? ", or added twice" : "");
        if (is_factor(f, 1 / w))
            return says(c,
                        "every element is 1/%d of what it must be, and there are %d ranks: is the "
                        "sum divided by their number twice? (ncclAvg divides, too.)",
                        W, W);
        if (is_factor(f, w * w) || is_factor(f, 1 / (w * w)))
            return says(c,
                        "every element is %s%d %s what it must be, and there are %d ranks: does "
                        "your code %s by their number where it must %s?",
                        f > 1 ? "" : "1/", W * W, f > 1 ? "times" : "of", W,
                        f > 1 ? "multiply" : "divide twice", f > 1 ? "divide" : "divide once");
        if (is_factor(f, -w))
            return says(c,
                        "every element is -%d times what it must be: neither the sign nor the "
                        "division by the number of ranks is right?",
                        W);
    }
    if (is_factor(f, -1.0))
        return says(c, "every element has the other sign: is something added that must be "
                       "subtracted, or the other way round?");
    if (is_factor(f, 2.0))
        return says(c, "every element is twice what it must be: is it added to itself, added a "
                       "second time, or is a factor of 1/2 left out?");
    return says(c,
                "every element is %.6g times what it must be: where does this one factor come "
                "from?",
                f);
}

static bool one_factor(const Case *c)
{
    double dot = 0.0, squares = 0.0;
    if (c->bad < WRONG_FEW || !varied(c->want, c->first, c->last + 1, 3)) return false;
    for (size_t i = 0; i < c->n; i++) {
        dot += (double)c->got[i] * (double)c->want[i];
        squares += (double)c->want[i] * (double)c->want[i];
    }
    double f = dot / squares;
    if (!isfinite(f) || fabs(f) < 1e-6 || fabs(f - 1.0) < 1e-4) return false;
    for (size_t i = 0; i < c->n; i++)
        if (!close_to(c, (double)c->got[i], f * (double)c->want[i])) return false;
    return say_factor(c, f);
}

// ---- The right values in the wrong place ----

// Whether got[i] is want[i - by] wherever both are there, and that says something.
static bool is_shifted(const Case *c, long by)
{
    size_t from = by > 0 ? (size_t)by : 0, to = by > 0 ? c->n : c->n - (size_t)-by, moved = 0;
    if (to - from < WRONG_FEW) return false;
    for (size_t i = from; i < to; i++) {
        float source = c->want[(size_t)((long)i - by)];
        if (!close_to(c, (double)c->got[i], (double)source)) return false;
        moved += is_wrong(c, i);
    }
    return moved >= WRONG_FEW && 2 * moved >= to - from && varied(c->want, from, to, WRONG_FEW);
}

static bool shifted(const Case *c)
{
    const Layout *layout = c->clues->layout;
    size_t padding = layout_fits(layout, c->n) && layout->rank == LAYOUT_WHOLE
                         ? c->n - layout->begin[layout->n]
                         : 0;
    if (padding > 0 && padding < c->n && is_shifted(c, (long)padding))
        return says(c,
                    "every element lies %zu places late, which is as much as there is padding: is "
                    "the padding in front, and not after the last parameter?",
                    padding);
    for (long by = 1; by <= 4; by++) {
        if ((size_t)by + WRONG_FEW > c->n) break;
        bool late = is_shifted(c, by);
        if (late || is_shifted(c, -by))
            return says(c, "every element lies %ld place%s %s: where is an offset too %s by %ld?",
                        by, by == 1 ? "" : "s", late ? "late" : "early", late ? "large" : "small",
                        by);
    }
    return false;
}

static bool repeats(const Case *c)
{
    static const size_t periods[] = {1, 2, 4};
    for (int k = 0; k < 3; k++) {
        size_t period = periods[k], i = period;
        if (c->bad < WRONG_FEW || !varied(c->want, 0, c->n, WRONG_FEW)) return false;
        if (!varied(c->want, 0, period, period)) continue;
        while (i < c->n && close_to(c, (double)c->got[i], (double)c->want[i % period])) i++;
        if (i == c->n && c->first >= period)
            return says(c,
                        "from element %zu on the first %s again: is something counted from the "
                        "beginning of a part that must be counted from that of the whole?",
                        period,
                        period == 1   ? "comes"
                        : period == 2 ? "two come"
                                      : "four come");
    }
    return false;
}

// Whether the part of rank `at` holds what belongs to rank `of`. Padding may be zero anywhere.
static bool holds_part(const Case *c, size_t part, int at, int of)
{
    for (size_t i = 0; i < part; i++) {
        size_t here = (size_t)at * part + i, there = (size_t)of * part + i;
        if (layout_is_padding(c->clues->layout, c->n, here) && c->got[here] == 0.0f) continue;
        if (!close_to(c, (double)c->got[here], (double)c->want[there])) return false;
    }
    return true;
}

// The rank whose part lies at `at`: its own where that fits; -1: nobody's.
static int whose_part(const Case *c, size_t part, int at)
{
    if (holds_part(c, part, at, at)) return at;
    for (int of = 0; of < c->clues->layout->world; of++)
        if (holds_part(c, part, at, of)) return of;
    return -1;
}

static bool say_parts(const Case *c, const int *of, int world)
{
    char list[128] = "";
    bool same = true, next = true;
    int moved = 0;
    for (int r = 0; r < world; r++) {
        same &= of[r] == of[0];
        next &= (of[r] - r + world) % world == (of[0] + world) % world;
        moved += of[r] != r;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%d", r > 0 ? " " : "", of[r]);
    }
    if (same)
        return says(c,
                    "every rank's part is that of rank %d: is the rank of this process in the "
                    "arithmetic, or always %d?",
                    of[0], of[0]);
    if (next && moved == world)
        return says(c,
                    "every part lies in the place of another rank, all by the same number of "
                    "ranks (the parts lie as %s): whose rank is in the offset?",
                    list);
    return says(c,
                "the parts of the ranks are in another order (they lie as %s): which rank's "
                "place is written?",
                list);
}

// A whole buffer whose equal parts belong to the ranks.
static bool parts_moved(const Case *c)
{
    const Layout *layout = c->clues->layout;
    int of[64];
    if (!layout_fits(layout, c->n) || layout->rank != LAYOUT_WHOLE) return false;
    if (layout->world < 2 || layout->world > 64 || c->n % (size_t)layout->world != 0) return false;
    size_t part = c->n / (size_t)layout->world;
    if (part < 2 || c->bad < WRONG_FEW) return false;
    for (int r = 0; r < layout->world; r++) {
        of[r] = whose_part(c, part, r);
        if (of[r] < 0) return false;
        if (of[r] != r && !varied(c->want, (size_t)of[r] * part, ((size_t)of[r] + 1) * part, 2))
            return false; // constant parts look alike
    }
    return say_parts(c, of, layout->world);
}

// ---- Right in one region, wrong in another ----

// The elements [cut, n) are wrong in one way, those before are right; cut may be anything in
// [low, high], because the elements between are both.
typedef struct Tail {
    size_t low, high;
    const char *is;
} Tail;

static bool tail_is(const Case *c, Tail *tail, bool (*one)(const Case *, size_t), const char *is)
{
    size_t low = c->n;
    while (low > 0 && one(c, low - 1)) low--;
    tail->low = low;
    tail->high = c->first;
    tail->is = is;
    return low <= c->first && c->first > 0 && c->bad >= WRONG_FEW;
}

static bool is_zero(const Case *c, size_t i)
{
    return c->got[i] == 0.0f;
}

static bool is_nan(const Case *c, size_t i)
{
    return is_poison(c->got[i]);
}

static bool is_before(const Case *c, size_t i)
{
    return c->clues->before && c->got[i] == c->clues->before[i];
}

static bool cut_off(const Case *c)
{
    const Layout *layout = c->clues->layout;
    Tail tail;
    if (!tail_is(c, &tail, is_before, "as it was before") && !tail_is(c, &tail, is_zero, "zero") &&
        !tail_is(c, &tail, is_nan, "the NaN of uninitialised memory"))
        return false;
    for (size_t cut = c->n / 4; cut <= (c->n + 3) / 4 && c->n >= 3 * WRONG_FEW; cut++)
        if (tail.low <= cut && cut <= tail.high)
            return says(c,
                        "the first quarter of the array, %zu of %zu elements, is right, the rest "
                        "is %s: is a number of elements given where bytes are wanted?",
                        cut, c->n, tail.is);
    if (layout_fits(layout, c->n) && layout->rank == LAYOUT_WHOLE && layout->world > 1) {
        size_t part = c->n / (size_t)layout->world;
        size_t parts = tail.high / part;
        if (parts > 0 && tail.low <= parts * part)
            return says(c,
                        "the parts of the first %zu of %d ranks are right, the rest is %s: is the "
                        "count that of fewer ranks?",
                        parts, layout->world, tail.is);
    }
    return says(
        c, "right up to element %zu, and from there to the end %s: which count ends too early?",
        tail.high - 1, tail.is);
}

// The parts of a whole buffer in which something is wrong.
static bool one_part(const Case *c)
{
    const Layout *layout = c->clues->layout;
    int wrong = 0, which_wrong = -1, which_right = -1;
    if (!layout_fits(layout, c->n) || layout->rank != LAYOUT_WHOLE || layout->world < 2)
        return false;
    size_t part = c->n / (size_t)layout->world;
    if (part < WRONG_FEW || c->n % (size_t)layout->world != 0) return false;
    for (int r = 0; r < layout->world; r++) {
        size_t bad = 0, real = 0;
        for (size_t i = (size_t)r * part; i < ((size_t)r + 1) * part; i++) {
            bad += is_wrong(c, i);
            real += !layout_is_padding(layout, c->n, i);
        }
        if (real < WRONG_FEW) return false; // padding is right without anybody's doing
        if (bad > 0 && 10 * bad < 9 * real) return false; // the border means nothing
        wrong += bad > 0;
        if (bad > 0)
            which_wrong = r;
        else
            which_right = r;
    }
    if (wrong == 1 && layout->world > 2)
        return says(c,
                    "the part of rank %d alone is wrong, those of the others are right: what "
                    "does that rank do differently?",
                    which_wrong);
    if (wrong == layout->world - 1 && wrong > 0)
        return says(c,
                    "the part of rank %d alone is right: what do the other ranks do that "
                    "depends on their number, or do their values not arrive?",
                    which_right);
    return false;
}

// Everything but the first parameter, which is where a forgotten offset is right.
static bool all_but_first(const Case *c)
{
    const Layout *layout = c->clues->layout;
    if (!layout_fits(layout, c->n) || layout->n < 2 || c->bad < WRONG_FEW) return false;
    size_t at = layout->begin[1], of_it = 0;
    if (layout_place(layout, c->n, 0) != 0 || at < WRONG_FEW || c->n <= at) return false;
    if (layout_place(layout, c->n, c->first) < at) return false;
    for (int k = 1; k < layout->n && layout->begin[k] < c->n; k++) {
        size_t end = layout->begin[k + 1] < c->n ? layout->begin[k + 1] : c->n;
        of_it = 0;
        for (size_t i = layout->begin[k]; i < end; i++) of_it += is_wrong(c, i);
        if (2 * of_it < end - layout->begin[k]) return false;
    }
    return says(c,
                "%.79s, the first parameter, is right, and all after it are wrong: is anything "
                "counted from the beginning of the buffer that must be counted from the "
                "parameter's, or the other way round?",
                layout->param[0]->name);
}

static bool one_parameter(const Case *c)
{
    const Layout *layout = c->clues->layout;
    const Param *param = layout_param(layout, c->n, c->first);
    size_t right = 0, of_it = 0;
    if (!param || c->bad < WRONG_FEW) return false;
    for (size_t i = 0; i < c->n; i++) {
        bool its = layout_param(layout, c->n, i) == param;
        if (is_wrong(c, i) && !its) return false;
        of_it += its;
        right += !its;
    }
    if (2 * c->bad < of_it || right < WRONG_FEW) return false;
    return says(c,
                "%.79s alone is wrong, every other parameter here is right: what is done to it, "
                "or left out, that is not for the others?",
                param->name);
}

// ---- Nothing but rounding ----

static bool rounding(const Case *c)
{
    if (c->clues->trained || c->bad < WRONG_FEW) return false;
    for (size_t i = 0; i < c->n; i++)
        if (is_wrong(c, i) &&
            !(fabs((double)c->got[i] - (double)c->want[i]) <= 1e-5 * fabs((double)c->want[i])))
            return false;
    return says(c,
                "no element is off by more than 1/100000 of its size, which is rounding: are "
                "the same numbers added or multiplied in another order%s?",
                c->clues->average ? ", and not first the sum, then one division by W" : "");
}

bool likely_cause(char *text, size_t size, const float *got, const float *want, size_t n,
                  const Clues *clues)
{
    static const Clues none;
    static bool (*const patterns[])(const Case *) = {
        is_clue, wrong_in_padding, all_unchanged, all_zero, one_factor,    parts_moved,   shifted,
        repeats, cut_off,          all_nan,       one_part, all_but_first, one_parameter, rounding,
    };
    Case c = {.got = got,
              .want = want,
              .n = n,
              .clues = clues ? clues : &none,
              .text = text,
              .size = size};

    for (size_t i = 0; i < n; i++) {
        if (!is_wrong(&c, i)) continue;
        if (c.bad++ == 0) c.first = i;
        c.last = i;
    }
    for (size_t k = 0; c.bad > 0 && k < sizeof patterns / sizeof patterns[0]; k++)
        if (patterns[k](&c)) return true;
    if (c.bad > 0 && c.clues->otherwise) return says(&c, "%s", c.clues->otherwise);
    if (size > 0) text[0] = '\0';
    return false;
}

const char *number_cause(double got, double want, const NumberClue *clues, int n)
{
    static char text[600];
    const char *found = NULL;

    for (int i = 0; i < n; i++) {
        double value = clues[i].value;
        if (fabs(value - want) <= 1e-6 * fabs(want)) continue; // as good as right
        if (!(got == value || fabs(got - value) <= 3e-7 * fabs(value))) continue;
        if (found) return ""; // two causes give this value
        found = clues[i].cause;
    }
    snprintf(text, sizeof text, "%s%s", found ? LIKELY : "", found ? found : "");
    return text;
}
