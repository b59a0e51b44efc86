# How C is compiled, whatever the backend.

WARN      := -Wall -Wextra -Wno-unused-parameter -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
             -Wpointer-arith -Wformat=2 -Wvla $(if $(WERROR),-Werror)
# -fno-optimize-sibling-calls: a call in tail position keeps its own line in reports.
CFLAGS    ?= -O2
BASE       = -std=gnu11 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -pthread \
             $(WARN) $(if $(COMPILED_IN),-fsanitize=$(COMPILED_IN) -fno-sanitize-recover=all) \
             $(BACKEND_DEFS)
# Of the kit's own code a report or a backtrace names file, line and function, and nobody asks for
# its variables: -g1, which gcc knows to keep artificial functions (cuda_runtime.h) in; clang's does
# not. Code that does not show in a step's time (all but kernels, lib/fsdp and what is graded:
# COLD_OBJ) is compiled with -O1. Where CFLAGS is given, all is compiled as it says.
LEAN       = $(if $(filter file,$(origin CFLAGS)),$(if $(findstring clang,$(COMPILER)),,-g1))
COLD      := $(if $(filter file,$(origin CFLAGS)),-O1)
# The tasks' tests and what tests share are compiled with -O0: that takes two thirds of the time,
# and to run them takes as long. Other backends, which .ci/run builds too, and sanitizers keep -O1:
# some warnings only an optimising compiler gives.
TESTS_OPT := $(if $(COLD),$(if $(SANITIZE)$(filter-out simgpu,$(BACKEND)),$(COLD),-O0))
# In a half-written task file much is unused, and that is no mistake yet. Results that are dropped
# the grader names (grader/dropped.py). A write past a local array ends in the function that has the
# array, not in one that it returns to.
HALF_DONE := -Wno-unused -Wno-unused-result -fstack-protector-strong
# Warnings that are mistakes in a task file, whatever else is one: such a program may run, and be
# right, by luck.
MISTAKES  := $(addprefix -Werror=,return-type implicit-function-declaration implicit-int \
             incompatible-pointer-types int-conversion)
# LIBRARY_INCLUDES, LIBRARY_FOLDERS: folders of one's own that libraries are in (grader/setup.sh).
INCLUDES  := -Iinclude -Igpulog/include \
    $(if $(filter cuda,$(BACKEND)),$(CUDA_INCLUDES),-Isimgpu/include)
ALL_INCLUDES := $(INCLUDES) $(LIBRARY_INCLUDES)
# Vectorised for this machine; no contraction and no fast-math, so that an element's bits do not
# depend on where in a vector loop it falls. sqrtf vectorises only where it need not set errno; and
# where operations may trap, each one in front of a choice between two floats has a mask. -O3 takes
# twice as long to compile and makes nothing faster that a step would show. VECTOR_FLAGS: what of
# only this gcc knows.
VECTOR    := -O2 -ftree-vectorize $(VECTOR_FLAGS) -march=native -fopenmp-simd \
             -ffp-contract=off -fno-math-errno -fno-trapping-math
# The interposer's functions, of which the linker is told: what its sources define as __wrap_NAME,
# and the tables of the calls of NCCL that move data, and of cuBLAS's.
WRAPPED   := $(if $(filter-out simgpu,$(BACKEND)),$(sort \
             $(shell sed -n 's/.*[ *]__wrap_\([A-Za-z0-9_]*\)\x28.*/\1/p' \
             $(wildcard gpulog/interpose/*.c) /dev/null) $(shell $(CC) -E -P -xc \
             -DSIMGPU_NAMES simgpu/include/simgpu_cublas/calls.h \
             -DGPULOG_NAMES gpulog/include/gpulog_collectives.h | \
             grep -o '@[A-Za-z0-9_]*' | tr -d @)))
# What lib/ itself calls, whatever the backend: JSON, for lib/checkpoint. simgpu does without.
KIT_LIBS  := -ljansson
