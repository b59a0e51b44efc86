# What there is to build: objects, libraries, suites and programs, by name.

objects     = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)))
MACHINES   := $(sort $(wildcard simgpu/machines/*.machine))
MACHINES_OBJ := $(BUILD)/obj/gen/machines.o
SIMGPU_OBJ := $(call objects,simgpu/src/*/*.c gpulog/log/*.c) $(MACHINES_OBJ)
GPULOG_OBJ := $(call objects,gpulog/log/*.c gpulog/interpose/*.c)
LIB_OBJ    := $(call objects,$(filter-out lib/kernels/%,$(wildcard lib/*/*.c)) \
    lib/launch/cuda/*.c) $(KERNELS)
# What plays a log again on a modelled machine, without the rest of simgpu: for logs of real GPUs.
REPLAY     := $(wildcard simgpu/src/machine/*.c) \
    $(filter-out $(addprefix simgpu/src/time/,clock% resolve% trace%),$(wildcard \
    simgpu/src/time/*.c))
HALVES     := $(HALF)/*.c
HALVES-cuda := cuda/*.c simgpu/times.c
HALVES-emulated-cuda := cuda/backend.c simgpu/reports.c simgpu/times.c
HARNESS_OBJ:= $(call objects,tests/support/*.c \
              $(addprefix tests/support/,$(or $(HALVES-$(BACKEND)),$(HALVES)))) \
              $(if $(filter cuda,$(BACKEND)),$(call objects,$(REPLAY)) $(MACHINES_OBJ))

NN_LIB     := $(BUILD)/lib/libshardlab.a
HARNESS_LIB:= $(BUILD)/lib/libharness.a
LIBS       := $(NN_LIB) $(GPU_LIBS)
# What the suites of the six tasks are linked with: the above in one library, without what none of
# them calls, so that the first `make grade` does not wait for it. A task file that calls some of it
# is linked with all (builder.py sets ALL_LIBS). Elsewhere than on simgpu it is all anyway.
NOT_FOR_TASKS := $(call objects,lib/checkpoint/*.c lib/text/*.c lib/kernels/e4m3.c \
              $(foreach name,llama pass token_embedding rmsnorm swiglu, \
                  lib/nn/$(name).c lib/kernels/$(name).c) \
              $(patsubst %,lib/fsdp/%.c,layout_memory tokens pipeline_* offload_* \
                  prefetch_lists precision_units recompute_switch fp8_tables regroup step_*) \
              $(patsubst %,simgpu/src/blas/%.c,batched factor matrices transfer vectors) \
              simgpu/src/compat/*.c $(patsubst %,tests/support/%.c,bubble checkpoints disk \
              example_programs failing files narrow prefetch_plan random_model shrink strategies* \
              training_llama))
TASKS_OBJ  := $(filter-out $(NOT_FOR_TASKS),$(HARNESS_OBJ) $(LIB_OBJ) $(SIMGPU_OBJ))
TASKS_LIB  := $(if $(filter simgpu,$(BACKEND)),$(BUILD)/lib/libtasks.a,$(HARNESS_LIB) $(LIBS))
ALL_LIBS   ?=
SUITE_LIBS := $(if $(ALL_LIBS),$(HARNESS_LIB) $(LIBS),$(TASKS_LIB))

# Suites of the kit's own (tests/<folder>/<name>.c, and simgpu's and gpulog's), each a program
# linked with the harness.
NO_SUITE   := tests/cuda/cpu_kernels.c
# It has functions where the log of another backend has its own.
NO_SUITE += $(if $(filter simgpu,$(BACKEND)),,tests/fsdp/failing_calls.c)
OWN_SUITES := $(patsubst %.c,$(BUILD)/%,$(filter-out $(NO_SUITE),$(wildcard $(FOLDERS:%=%/*.c))))
EXAMPLES    := $(patsubst examples/%.c,$(BUILD)/impl/$(IMPL_KEY)/bin/%,$(wildcard examples/*.c))
PLAN        := $(BUILD)/impl/$(IMPL_KEY)/bin/plan
EXAMPLES_LIB:= $(BUILD)/lib/libexamples.a
EXAMPLES_OBJ:= $(call objects,examples/*/*.c)
LAUNCH      := $(BUILD)/bin/launch
DEVICES     := $(BUILD)/bin/devices
# What keeps a submission in (grader/confine.c).
CONFINE     := $(BUILD)/bin/confine
SIMGPU_PC   := $(BUILD)/lib/pkgconfig/simgpu.pc
