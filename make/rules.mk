# From sources to objects, from objects to libraries.

SIMGPU_DEFS  := -Isimgpu/src -Igpulog/log
SUPPORT_DEFS := -Itests/support
BLAS_OBJ     := $(call objects,simgpu/src/blas/*.c)
COSTS_OBJ    := $(call objects,simgpu/src/machine/*.c)
VECTOR_OBJ   := $(call objects,simgpu/src/nccl/reduce.c simgpu/src/blas/multiply.c \
                simgpu/src/blas/halves.c lib/kernels/*.c lib/host/*.c lib/fsdp/box_muller.c \
                tests/cuda/cpu_kernels.c)

# -O1 takes a third less to compile, and a step takes no longer: of its time the kernels are nearly
# all.
COLD_OBJ     := $(filter-out $(VECTOR_OBJ),$(SIMGPU_OBJ) $(GPULOG_OBJ) \
                $(call objects,lib/nn/*.c lib/checkpoint/*.c lib/check/*.c lib/launch/*.c \
                lib/launch/*/*.c))

# What these take from malloc is counted (simgpu/src/core/own_memory.c).
COUNTED      := $(if $(filter simgpu,$(BACKEND)),$(foreach name,malloc calloc realloc free, \
                    -D$(name)=sim_own_$(name)))
$(BUILD)/obj/simgpu/src/%.o $(BUILD)/obj/gpulog/log/%.o: DEFS = $(SIMGPU_DEFS) $(BLAS_OF) $(COUNTED)
$(BLAS_OBJ): BLAS_OF = $(BLAS_DEFS)
$(BUILD)/obj/gpulog/tests/%.o $(BUILD)/obj/gpulog/interpose/%.o: DEFS = $(SIMGPU_DEFS)
$(BLAS_OBJ): $(MADE_WITH)/blas
OWN_TESTS    := $(addprefix $(BUILD)/obj/,tests/%.o simgpu/tests/%.o gpulog/tests/%.o)
$(COLD_OBJ) $(OWN_TESTS) $(BUILD)/obj/labs/%.o: OPT = $(COLD)
$(BUILD)/obj/tests/support/%.o $(BUILD)/obj/tasks/%.o: OPT = $(TESTS_OPT)
# Students debug their tests and programs.
$(call objects,tasks/*/tests*.c tasks/*/together.c) $(BUILD)/obj/labs/%.o \
    $(BUILD)/obj/examples/%.o: LEAN =
$(VECTOR_OBJ): OPT = $(VECTOR)
$(VECTOR_OBJ): $(MADE_WITH)/vector
# The same picoseconds from every compiler and on every processor.
$(COSTS_OBJ): OPT = $(COLD) -ffp-contract=off
$(OWN_TESTS) $(BUILD)/obj/tasks/%.o $(BUILD)/obj/labs/%.o: DEFS = $(SUPPORT_DEFS)
$(BUILD)/obj/simgpu/tests/time/play.o $(BUILD)/obj/simgpu/tests/aarch64.o \
    $(BUILD)/obj/simgpu/tests/processors.o: DEFS = $(SUPPORT_DEFS) $(SIMGPU_DEFS)
# It rounds twice on purpose, which clang would do once.
$(BUILD)/obj/tests/nn/elementwise.o: DEFS = $(SUPPORT_DEFS) -ffp-contract=off
# Of the kit's own suites these look into the clock.
$(BUILD)/obj/simgpu/tests/clock/%.o: DEFS = $(SUPPORT_DEFS) $(SIMGPU_DEFS)
$(BUILD)/obj/bench/%.o: DEFS = $(SIMGPU_DEFS) $(BLAS_DEFS)
$(BUILD)/obj/bench/products.o: $(MADE_WITH)/blas
$(BUILD)/obj/plan/%.o: DEFS = -Iexamples $(SIMGPU_DEFS)
$(BUILD)/obj/tests/support/simgpu/times.o: DEFS = $(SUPPORT_DEFS) $(SIMGPU_DEFS)
ifeq ($(BACKEND),cuda)
$(BUILD)/obj/tests/support/cuda/replay.o $(call objects,$(REPLAY)): DEFS = -Itests/support/cuda \
    $(SIMGPU_DEFS)
endif
# The CPU's kernels once more, for host memory and under other names: tests/cuda compares the
# device's with them.
$(BUILD)/obj/tests/cuda/cpu_kernels.o: DEFS = $(SUPPORT_DEFS) -Itests/cuda/host

$(BUILD)/obj/%.o: %.c $(MADE_WITH)/c
	$(FOLDER)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE) $(LEAN) $(CFLAGS) $(OPT) $(DEFS) $(ALL_INCLUDES) -MMD -MP -c $< -o $@

$(BUILD)/lib/libsimgpu.a: $(SIMGPU_OBJ) $(MADE_WITH)/libsimgpu
$(BUILD)/lib/libgpulog.a: $(GPULOG_OBJ) $(MADE_WITH)/libgpulog
$(NN_LIB): $(LIB_OBJ) $(MADE_WITH)/libshardlab
$(HARNESS_LIB): $(HARNESS_OBJ) $(MADE_WITH)/libharness
$(BUILD)/lib/libtasks.a: $(TASKS_OBJ) $(MADE_WITH)/libtasks
$(EXAMPLES_LIB): $(EXAMPLES_OBJ) $(MADE_WITH)/libexamples
$(BUILD)/lib/%.a:
	$(FOLDER)
	$(call say,AR,$@)
	$(Q)ar rcs $@.$$$$ $(filter %.o,$^) && mv -f $@.$$$$ $@

# simgpu in the part of NVIDIA's libraries (emulated_cuda.mk): one object, whose calls among its own
# files no interposer sees, and whose own log has other names than the one that the interposer
# keeps.
$(BUILD)/lib/simgpu.o: $(SIMGPU_OBJ) $(MADE_WITH)/libsimgpu
	$(FOLDER)
	$(call say,LD,$@)
	$(Q)$(LD) -r -o $@.all $(filter %.o,$^)
	$(Q)nm -g --defined-only -f posix $(filter $(BUILD)/obj/gpulog/log/%,$^) | \
	    awk 'NF > 2 {print $$1, "inner_" $$1}' >$@.names
	$(Q)objcopy --redefine-syms=$@.names $@.all $@
	@rm -f $@.all

# The texts of simgpu/machines as C, for machine.c.
$(MACHINES_OBJ): $(BUILD)/gen/machines.c $(MADE_WITH)/c
	$(FOLDER)
	$(Q)$(CC) $(BASE) $(CFLAGS) $(SIMGPU_DEFS) $(INCLUDES) -c $< -o $@
$(BUILD)/gen/machines.c: $(MACHINES) simgpu/machines/texts.sh $(MADE_WITH)/machines
	$(FOLDER)
	$(call say,GEN,$@)
	$(Q)sh simgpu/machines/texts.sh $(MACHINES) >$@

# A task file's preprocessed text is checked, and compiled as it is (grader/expand.py, which needs
# nothing but Python's own library: without site, -S, Python starts sooner).
# The path in the object's debug information is what a student sees in a message: folder/file.c.
# Both times the compiler reads what is the student's and the system's, and nothing else.
define impl_rule
$(BUILD)/impl/$(1)/%.i: $(2)/%.c $(MADE_WITH)/c $(MADE_WITH)/task $(CONFINE)
	$$(FOLDER)
	$$(Q)$$(PYTHON) -S grader/expand.py $$@ $(CONFINE) -- $$(CC) $$(BASE) $$(MISTAKES) $(3) \
	    $$(CFLAGS) $$(INCLUDES) -c $$< -o $$(@:.i=.o)
$(BUILD)/impl/$(1)/%.o: $(BUILD)/impl/$(1)/%.i $(MADE_WITH)/c $(MADE_WITH)/task
	$$(call say,CC,$(subst $(comma),$$(comma),$(2))/$$*.c)
	$$(Q)CCACHE_DISABLE=1 $(CONFINE) --tool --without . \
	    $(if $(CONDA_PREFIX),--read $(call quote,$(CONDA_PREFIX))) \
	    --read $$(if $$(OWN_SOURCE),$$(OWN_SOURCE),$(2)) --write $$(@D) -- \
	    $$(CC) $$(filter-out -D%,$$(BASE) $$(MISTAKES) $(3) $$(CFLAGS)) \
	    -c $$< -o $$@
endef
# An archive for students has the reference as objects alone (grader/course/release.py).
ifneq ($(wildcard reference),)
$(eval $(call impl_rule,reference,reference,))
else
GIVEN := given/reference-$(shell uname -m)
$(BUILD)/impl/reference/%.o: $(GIVEN)/%.o
	$(FOLDER)
	$(call say,CP,$<)
	$(Q)cp $< $@
$(GIVEN)/%.o:
	@echo 'there is no $@: this archive was made for' \
	    '$(patsubst given/reference-%,%,$(wildcard given/*)); ask course staff' >&2
	@false
endif
ifneq ($(IMPL_KEY),reference)
$(eval $(call impl_rule,$(IMPL_KEY),$(IMPL_DIR),$(HALF_DONE) $(IMPL_NAMES)))
endif
