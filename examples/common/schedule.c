/* schedule.c: the learning rate of a step. See schedule.h. */
#include "schedule.h"

#include <math.h>

enum { WARM_UP = 20 };

// Half a cosine is usual for GPT models.
float rate_of(const RateSchedule *s, float most, int step, int steps)
{
    int warm_up = s->warm_up == 0 ? WARM_UP : s->warm_up < 0 ? 0 : s->warm_up;
    float least = s->least == 0.0f ? 0.1f * most : s->least < 0.0f ? 0.0f : s->least;
    if (step < warm_up) return most * (float)step / (float)warm_up;
    float done = (float)(step - warm_up) / (float)(steps > warm_up ? steps - warm_up : 1);
    switch (s->kind) {
    case RATE_COSINE: return least + 0.5f * (most - least) * (1.0f + cosf(3.14159265f * done));
    case RATE_LINEAR: return most + (least - most) * done;
    case RATE_CONSTANT: break;
    }
    return most;
}
