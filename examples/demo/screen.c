/* screen.c: what a training looks like while it runs. See screen.h. */
#include "screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 9, COLUMNS = 64, BAR = 24, LINES = ROWS + 5, WIDTH = 79 };
#define REFRESH 0.25 // seconds

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Whether standard output is a terminal with room for the drawing.
static bool can_draw(void)
{
    struct winsize size;
    const char *term = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || term == NULL || strcmp(term, "dumb") == 0) return false;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return true;
    return size.ws_row > LINES && size.ws_col > WIDTH;
}

void screen_open(Screen *s, const char *title, double top, int steps)
{
    memset(s, 0, sizeof *s);
    s->title = title;
    s->percent = top == 0.0;
    s->top = s->percent ? 1.0 : top;
    s->steps = steps;
    s->live = can_draw();
    s->started = seconds_now();
}

// "12 s left", from how long the steps have taken so far.
static void time_left(const Screen *s, char *text, size_t size)
{
    double spent = seconds_now() - s->started;
    if (s->step == 0)
        text[0] = '\0';
    else if (s->step == s->steps)
        snprintf(text, size, "%.0f s", spent);
    else
        snprintf(text, size, "%.0f s left", spent * (s->steps - s->step) / s->step);
}

// ---- The curve ----

// The curve's value at a step, on the line between two scores; -1 past the last.
static double value_at(const Screen *s, double step)
{
    for (int i = 0; i < s->n; i++) {
        if (step > s->at[i]) continue;
        if (i == 0 || s->at[i] == s->at[i - 1]) return s->value[i];
        double part = (step - s->at[i - 1]) / (s->at[i] - s->at[i - 1]);
        return s->value[i - 1] + part * (s->value[i] - s->value[i - 1]);
    }
    return -1.0;
}

// Which row of the plot a value is in, the lowest is 0; none is below or above it.
static int row_of(const Screen *s, double value)
{
    int row = (int)(value / s->top * (ROWS - 1) + 0.5);
    return row < 0 ? 0 : row < ROWS ? row : ROWS - 1;
}

static void draw_row(const Screen *s, int row)
{
    char line[COLUMNS + 1];
    for (int column = 0; column < COLUMNS; column++) {
        double value = value_at(s, (double)column * s->steps / (COLUMNS - 1));
        line[column] = value >= 0.0 && row_of(s, value) == row ? '*' : ' ';
    }
    line[COLUMNS] = '\0';
    double mark = s->top * row / (ROWS - 1);
    if (row % 4 != 0)
        printf("         |%s\033[K\n", line);
    else if (s->percent)
        printf("  %4.0f %% |%s\033[K\n", 100.0 * mark, line);
    else
        printf("  %6.2f |%s\033[K\n", mark, line);
}

static void draw_bar(const Screen *s)
{
    char bar[BAR + 1], left[32];
    int full = BAR * s->step / s->steps;
    for (int i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    time_left(s, left, sizeof left);
    printf("  [%s] %3d %%   step %d of %d   loss %.4f   %s\033[K\n", bar, 100 * s->step / s->steps,
           s->step, s->steps, (double)s->loss, left);
}

static void draw(Screen *s)
{
    char axis[COLUMNS + 1];
    memset(axis, '-', COLUMNS);
    axis[COLUMNS] = '\0';
    if (s->drawn) printf("\033[%dA", LINES);
    printf("  %s\033[K\n", s->title);
    for (int row = ROWS - 1; row >= 0; row--) draw_row(s, row);
    printf("         +%s\033[K\n", axis);
    printf("          step 0%*d\033[K\n", COLUMNS - 6, s->steps);
    draw_bar(s);
    printf("  %s   %.*s\033[K\n", s->summary, WIDTH - 5 - (int)strlen(s->summary), s->more);
    fflush(stdout);
    s->drawn = true;
    s->shown = seconds_now();
}

// ---- What is shown ----

void screen_step(Screen *s, int step, float loss)
{
    s->step = step;
    s->loss = loss;
    if (s->live && seconds_now() - s->shown > REFRESH) draw(s);
}

static void print_line(const Screen *s)
{
    char left[32];
    time_left(s, left, sizeof left);
    printf("  step %3d of %d   loss %.4f   %s   %s\n", s->step, s->steps, (double)s->loss,
           s->summary, left);
    fflush(stdout);
}

void screen_score(Screen *s, int step, float loss, double value, const char *summary,
                  const char *more)
{
    if (s->n < SCREEN_POINTS) {
        s->at[s->n] = step;
        s->value[s->n++] = value;
    }
    s->step = step;
    s->loss = loss;
    snprintf(s->summary, sizeof s->summary, "%s", summary);
    snprintf(s->more, sizeof s->more, "%s", more);
    if (s->live)
        draw(s);
    else if (step > 0)
        print_line(s);
}
