/* fold.h: prints a report that several ranks make once. */
#ifndef SIMGPU_FOLD_H
#define SIMGPU_FOLD_H

#include "report/report_json.h"

// Whether another rank prints this report, and the launcher will say that this rank made it, too.
bool sim_report_folded(const SimgpuReport *report, const char *body, const SimFacts *facts);

#endif
