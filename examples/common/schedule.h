/* schedule.h: the learning rate of a step: up in a line, then down, or not. */
#ifndef EXAMPLES_SCHEDULE_H
#define EXAMPLES_SCHEDULE_H

typedef enum RateKind { RATE_COSINE, RATE_LINEAR, RATE_CONSTANT } RateKind;

typedef struct RateSchedule {
    RateKind kind;
    int warm_up; // steps in which the rate rises; 0: 20, below 0: none
    float least; // at the last step; 0: a tenth of the largest, below 0: none
} RateSchedule;

// The rate of step 1 … steps, of which `most` is the largest.
float rate_of(const RateSchedule *schedule, float most, int step, int steps);

#endif
