/* screen.h: what a training looks like while it runs. In a terminal a curve, a progress bar and the
 * time that is left are drawn again in place, within 80 columns and 16 lines; elsewhere (a file, a
 * pipe, TERM=dumb, a smaller window) a line is printed for each score.
 */
#ifndef EXAMPLES_SCREEN_H
#define EXAMPLES_SCREEN_H

#include <stdbool.h>

enum { SCREEN_POINTS = 256 };

typedef struct Screen {
    const char *title; // of the curve
    bool percent;      // its values are shares from 0 to 1; else from 0 to `top`
    double top;
    int steps;             // of the training
    bool drawn, live;      // something stands there already; it is drawn in place
    double started, shown; // seconds; of the start, and of the last drawing
    int step;              // the last one that was shown
    float loss;
    int n; // scores so far
    int at[SCREEN_POINTS];
    double value[SCREEN_POINTS];
    char summary[40], more[104]; // on the last score: "988 of 1053 right", and examples
} Screen;

// Begins on standard output. top: the largest value of the curve; 0: it is a share, in percent.
void screen_open(Screen *screen, const char *title, double top, int steps);
// After a step; draws not more than a few times a second.
void screen_step(Screen *screen, int step, float loss);
// A score after a step (0: before the first), with words about it: short ones, and what there is
// room for in a terminal alone.
void screen_score(Screen *screen, int step, float loss, double value, const char *summary,
                  const char *more);

#endif
