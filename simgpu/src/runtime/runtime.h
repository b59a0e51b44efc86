/* runtime/runtime.h: all that the libraries above the runtime are built on: blas/, nccl/, compat/. */
#ifndef SIMGPU_RUNTIME_H
#define SIMGPU_RUNTIME_H

#include "check/check.h"
#include "memory/memory.h"
#include "memory/shadow.h"
#include "report/report.h"
#include "streams/streams.h"

#endif
