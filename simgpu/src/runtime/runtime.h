/* runtime/runtime.h: for the libraries above the runtime: blas/, nccl/, compat/. */
#ifndef SIMGPU_RUNTIME_H
#define SIMGPU_RUNTIME_H

#include "check/check.h"
#include "core/config.h"
#include "core/error.h"
#include "core/leak.h"
#include "core/threads.h"
#include "log_writer.h"
#include "memory/allocation.h"
#include "memory/contents.h"
#include "memory/dry.h"
#include "memory/place.h"
#include "report/hooks.h"
#include "report/report.h"
#include "runtime/noted.h"
#include "runtime/operation.h"
#include "streams/capture.h"
#include "streams/streams.h"
#include "time/time.h"

#endif
