/* rotary.c: the frequencies of rotary positions, with Llama 3.1's scaling for long sequences.
 *
 * Both are computed in double and rounded once.
 */
#include <math.h>

#include "internal.h"

// Llama 3.1's: `periods` of the frequency fit into the length that the model was trained with.
static double scaled(const RotaryConfig *c, double frequency)
{
    double periods = c->trained_T * frequency / (2.0 * M_PI);
    if (periods < (double)c->low) return frequency / c->factor;
    if (periods > (double)c->high) return frequency;
    double part = (periods - c->low) / (c->high - c->low);
    return (1.0 - part) * frequency / c->factor + part * frequency;
}

RotaryFrequencies rotary_frequencies(const RotaryConfig *config, int hs)
{
    RotaryFrequencies f = {{0.0f}};
    double theta = config->theta > 0.0f ? config->theta : 500000.0;
    for (int i = 0; i < hs / 2; i++) {
        double frequency = pow(theta, -2.0 * i / hs);
        f.of_pair[i] = (float)(config->factor > 0.0f ? scaled(config, frequency) : frequency);
    }
    return f;
}
