/* exposed.h: how much of a pass's communication is exposed: runs while no kernel does.
 *
 * A right schedule is judged by that and not by the order of its calls. The ranks' logs are played
 * again outside of them (times.h), on a machine of the test's choice.
 */
#ifndef EXPOSED_H
#define EXPOSED_H

void rule_forward_is_hidden(void);
void rule_backward_is_hidden(void);

#endif
