/* fold.h: a report that several ranks make is printed once. */
#ifndef SIMGPU_FOLD_H
#define SIMGPU_FOLD_H

#include "report/report_json.h"

// Whether another rank prints this report, and the launcher says that this one made it too.
bool sim_report_folded(const SimgpuReport *report, const char *body, const SimFacts *facts);

#endif
