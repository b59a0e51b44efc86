# From objects and libraries to suites and programs.

# Objects, then libraries, each once. The program is linked under another name, the shell's own as
# two makes may link it at once, and then renamed, so that nobody starts one that is half written.
# If it cannot be linked, none is left.
define link
	$(FOLDER)
	$(call say,LD,$@)
	$(Q)$(LINK) $(LDFLAGS) $(1) $(filter-out $(GPU_LIBS),$(filter %.a,$^)) $(filter $(GPU_LIBS),$^) \
	    $(2) $(KIT_LIBS) $(LDLIBS) -o $@.$$$$ && \
	    mv -f $@.$$$$ $@ || { rm -f $@.$$$$ $@; exit 1; }
endef
objects_of = $(filter-out $(GPU_LIBS),$(filter %.o,$(1)))

# What the results page draws and what a step costs: with the student's files of the tasks in OWN
# and the reference's other files. grader/trace.py removes a program first: OWN has no time stamp.
OWN ?=
$(BUILD)/impl/$(IMPL_KEY)/trace/%: $(BUILD)/obj/tests/trace/%.o \
        $(OWN:%=$(BUILD)/impl/$(IMPL_KEY)/%.o) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(OWN),$(TASKS))) $(SUITE_LIBS) \
        $(MADE_WITH)/link
	$(call link,$(call objects_of,$^),-lcmocka)

# Of the kit's own suites these know of FSDP.
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/checkpoint/*.c tests/fsdp/*.c \
    tests/harness/*.c tests/labs/*.c tests/large/*.c)): $(REFERENCE_OBJ)
# And these of the labs.
$(patsubst %,$(BUILD)/tests/checkpoint/%,worlds kills strategies precision layouts) \
    $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/labs/*.c)): $(LAB_OBJ)
# These are linked with functions of their own in front of these (tests/support/failing.c).
FAILING := cudaMalloc cudaMallocAsync cudaMallocHost cudaMemcpyAsync cudaMemcpy2DAsync \
    cudaMemsetAsync cudaEventCreateWithFlags cudaEventRecord cudaEventSynchronize \
    cudaStreamWaitEvent cudaStreamCreateWithFlags cudaStreamCreateWithPriority \
    cudaStreamSynchronize kernel_add_divided kernel_add_divided_ex kernel_add_ex kernel_cast \
    kernel_adamw kernel_check_finite kernel_scale_ex kernel_scale kernel_sum_squares kernel_amax \
    kernel_quantize_e4m3 kernel_dequantize_e4m3 ncclAllGather ncclReduceScatter ncclAllReduce \
    ncclReduce ncclBroadcast ncclCommSplit ncclSend ncclRecv cudaGraphInstantiate cudaGraphLaunch
FAILING := $(if $(filter simgpu,$(BACKEND)),$(FAILING:%=-Xlinker --wrap=%))
$(BUILD)/tests/fsdp/failing_calls $(foreach folder,$(LAB_FOLDERS), \
    $(BUILD)/impl/$(IMPL_KEY)/suite/$(call name_of,$(folder))): LDFLAGS += $(FAILING)
# And this one has the CPU's kernels to compare the device's with.
$(BUILD)/tests/cuda/kernels: $(BUILD)/obj/tests/cuda/cpu_kernels.o
$(BUILD)/tests/emulator/mistakes: $(BUILD)/obj/tests/emulator/wrong.o
# The random tester of the race checker is cut into several files; and what draws NCCL calls. The
# soak uses both.
RANDOM_OBJ := $(call objects,simgpu/tests/random/*.c)
PLAN_OBJ   := $(call objects,simgpu/tests/stress/*.c)
$(BUILD)/simgpu/tests/random: $(RANDOM_OBJ)
$(BUILD)/simgpu/tests/stress: $(PLAN_OBJ)
$(BUILD)/tests/large/soak: $(RANDOM_OBJ) $(PLAN_OBJ)
# What the clock is compared with.
$(BUILD)/simgpu/tests/time $(BUILD)/simgpu/tests/time_by_hand: $(call objects,simgpu/tests/time/*.c)
# The code that reads files from elsewhere, with the address sanitizer, whatever the rest is built
# with (a tree that is sanitized as a whole, or built for another backend, links it as any other).
ifeq ($(BACKEND)$(COMPILED_IN),simgpu)
FUZZED := tests/checkpoint/fuzz.c $(wildcard lib/checkpoint/safetensors*.c) lib/checkpoint/bytes.c
$(BUILD)/tests/checkpoint/fuzz: $(FUZZED) include/safetensors.h lib/checkpoint/internal.h \
    $(HARNESS_LIB) $(LIBS) $(MADE_WITH)/link
	$(FOLDER)
	$(call say,LD,$@)
	$(Q)$(LINK) -fsanitize=address,undefined -fno-sanitize-recover=all $(CFLAGS) $(LDFLAGS) \
	    $(SUPPORT_DEFS) $(ALL_INCLUDES) $(FUZZED) \
	    $(filter-out $(GPU_LIBS),$(filter %.a,$^)) $(GPU_LIBS) -lcmocka $(KIT_LIBS) $(LDLIBS) -o $@
endif
define own_suite
$(BUILD)/$(1)/%: $(BUILD)/obj/$(1)/%.o $(HARNESS_LIB) $(LIBS) $(MADE_WITH)/link
	$$(call link,$$(call objects_of,$$^),-lcmocka)
endef
$(foreach folder,tests simgpu/tests gpulog/tests,$(eval $(call own_suite,$(folder))))

# In no sanitizer: it only starts what is sanitized.
$(CONFINE): grader/confine.c grader/confine_calls.h $(MADE_WITH)/c
	$(FOLDER)
	$(Q)$(CC) -std=gnu11 -O1 $(WARN) $(LIBRARY_INCLUDES) $< -o $@.$$$$ \
	    $(LIBRARY_FOLDERS) -lseccomp && mv -f $@.$$$$ $@

$(LAUNCH): $(LIBS)
$(DEVICES): $(TASKS_LIB)
$(LAUNCH) $(DEVICES): $(BUILD)/bin/%: $(BUILD)/obj/lib/launch/main/%.o $(MADE_WITH)/link
	$(call link,$(call objects_of,$^))
# Programs of examples/, each with the student's files of the tasks and labs in OWN. Which those are
# has no time stamp: a file remembers them.
OWN_LIST := $(BUILD)/impl/$(IMPL_KEY)/bin/own.txt
$(EXAMPLES): $(BUILD)/impl/$(IMPL_KEY)/bin/%: $(BUILD)/obj/examples/%.o \
        $(OWN:%=$(BUILD)/impl/$(IMPL_KEY)/%.o) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(OWN),$(TASKS) $(LABS))) \
        $(OWN_LIST) $(EXAMPLES_LIB) $(LIBS) $(MADE_WITH)/link
	$(call link,$(call objects_of,$^))
# The planner, with the files in OWN likewise. Its dry runs leave out what the host does
# (plan/host_dry.c).
PLAN_WRAPS := $(addprefix -Wl$(comma)--wrap=,cudaMallocHost cudaFreeHost memset host_adamw \
              host_sgd host_scale host_sum_squares host_all_finite)
$(PLAN): $(call objects,plan/*.c) $(OWN:%=$(BUILD)/impl/$(IMPL_KEY)/%.o) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(OWN),$(TASKS) $(LABS))) \
        $(OWN_LIST) $(EXAMPLES_LIB) $(LIBS) $(MADE_WITH)/link
	$(call link,$(call objects_of,$^) $(PLAN_WRAPS))
# What `make bench` runs: the examples' trainer, the BLAS alone, collectives.
$(BUILD)/bench/train_step $(BUILD)/bench/collectives: $(REFERENCE_OBJ) $(LAB_OBJ) $(EXAMPLES_LIB) \
    $(LIBS)
# Programs of bench/, some of which look into the clock.
$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(GPU_LIBS) $(MADE_WITH)/link
	$(call link,$(call objects_of,$^))
