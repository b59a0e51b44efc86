# ShardLab. `make help` lists the targets; README.md says what they are for.
#
# IMPL names the folder whose six task files are built and graded: skeleton (default), reference, or
# any other. Objects of a folder live in build/impl/<name>, so that grading one leaves the others alone.

IMPL      ?= skeleton
TASK      ?=
BACKEND   ?= simgpu
DATA      ?=
HTML      ?=
WERROR    ?=
SANITIZE  ?=
CC        ?= cc
PYTHON    ?= python3

ifeq ($(origin CC),default)
CC := cc
endif

ifeq ($(filter simgpu cuda rehearsal,$(BACKEND)),)
$(error there is no BACKEND=$(BACKEND): it is simgpu (the default), cuda or rehearsal)
endif

# compute-sanitizer's tools watch a program as it is; the compiler's sanitizers need one of their own.
WATCHERS := memcheck racecheck initcheck synccheck
WATCH    := $(filter $(WATCHERS),$(SANITIZE))
ifneq ($(WATCH),)
ifneq ($(BACKEND),cuda)
$(error SANITIZE=$(SANITIZE) is a tool of CUDA's compute-sanitizer: it needs BACKEND=cuda)
endif
endif
COMPILED_IN := $(filter-out $(WATCHERS),$(SANITIZE))

# A build against another backend lives in a tree of its own. So does a sanitized one (make
# SANITIZE=address,undefined test), and one with a BLAS that was asked for (make BLAS=openblas test).
comma := ,
BUILD := build$(if $(filter-out simgpu,$(BACKEND)),/$(BACKEND))$(if $(COMPILED_IN),/sanitize-$(subst $(comma),-,$(COMPILED_IN)))$(if $(filter command environment,$(firstword $(origin BLAS))),/$(BLAS))

# One spelling of the folder, however it was named: the compiler's dependency files hold it.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))

TASKS := meta_init flat_param forward backward optimizer api

# A folder elsewhere gets a build name that is its own: its last part and a sum of its path.
IMPL_PATH := $(abspath $(IMPL))
IMPL_KEY  := $(if $(filter $(CURDIR)/reference $(CURDIR)/skeleton,$(IMPL_PATH)),$(notdir $(IMPL_PATH)),$(notdir $(IMPL_PATH))-$(firstword $(shell printf '%s' '$(IMPL_PATH)' | cksum)))

# V=1 shows whole command lines; `make -s` says nothing.
Q   := $(if $(V),,@)
SAY := @$(if $(or $(V),$(findstring s,$(firstword -$(MAKEFLAGS)))),:,printf '  %-5s %s\n')

# ---- Backends ----
#
# simgpu     the simulated GPUs of simgpu/, and the kernels of lib/kernels/*.c
# cuda       the CUDA toolkit, cuBLAS and NCCL; lib/kernels/cuda/*.cu compiled by nvcc; the interposer of
#            gpulog/wrap in front of every call it has a __wrap_ function for
# rehearsal  the same as cuda, with simgpu in place of NVIDIA's libraries and every thread of a CUDA
#            kernel run on the CPU (tests/emulator): for changing the cuda part without a GPU

ifeq ($(BACKEND),cuda)
ifneq ($(filter-out help clean skeleton deps,$(or $(MAKECMDGOALS),help)),)
CUDA_MISSING := $(shell sh grader/find_cuda.sh '$(BUILD)/cuda.mk')
ifneq ($(CUDA_MISSING),)
$(error $(CUDA_MISSING))
endif
include $(BUILD)/cuda.mk
endif
endif

# ---- Libraries ----

ifneq ($(wildcard /usr/include/dnnl.h /usr/include/oneapi/dnnl/dnnl.h /usr/local/include/dnnl.h),)
BLAS      ?= dnnl
else
BLAS      ?= openblas
endif
ifeq ($(BLAS),dnnl)
BLAS_DEFS := -DSIMGPU_DNNL
BLAS_LIBS := -ldnnl
else
BLAS_DEFS := $(shell pkg-config --cflags openblas 2>/dev/null)
BLAS_LIBS := $(or $(shell pkg-config --libs openblas 2>/dev/null),-lopenblas)
endif

WARN      := -Wall -Wextra -Wno-unused-parameter -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
             -Wpointer-arith -Wformat=2 -Wvla $(if $(WERROR),-Werror)
# -fno-optimize-sibling-calls: a call in tail position keeps its own line in reports.
CFLAGS    ?= -O2
BASE       = -std=gnu11 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -pthread $(WARN) \
             $(if $(COMPILED_IN),-fsanitize=$(COMPILED_IN) -fno-sanitize-recover=all) $(BACKEND_DEFS)
# In a half-written task file much is unused, and that is no mistake yet.
HALF_DONE := -Wno-unused
INCLUDES  := -Iinclude -Igpulog/include $(if $(filter cuda,$(BACKEND)),$(CUDA_INCLUDES),-Isimgpu/include)
# Vectorised for this machine; no contraction and no fast-math, so that an element's bits do not depend
# on where in a vector loop it falls. sqrtf vectorises only where it need not set errno.
VECTOR    := -O3 -march=native -fopenmp-simd -ffp-contract=off -fno-math-errno
# The interposer's functions, and how the linker is told of them.
WRAPPED   := $(sort $(shell sed -n 's/.*[ *]__wrap_\([A-Za-z0-9_]*\)\x28.*/\1/p' $(wildcard gpulog/wrap/*.c) /dev/null))

ifeq ($(BACKEND),simgpu)
BACKEND_DEFS :=
LINK         := $(CC) $(BASE)
LDLIBS       := $(BLAS_LIBS) -ldw -lgomp -lm -lpthread
KERNELS      := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard lib/kernels/*.c))
GPU_LIBS     := $(BUILD)/lib/libsimgpu.a
HALF         := simgpu
FOLDERS      := simgpu gpulog nn launch fsdp harness
else
# What a test file may ask for: BACKEND_CUDA, the code is that of real GPUs; REHEARSAL, and yet it runs on simgpu.
BACKEND_DEFS := -DBACKEND_CUDA $(if $(filter rehearsal,$(BACKEND)),-DREHEARSAL)
KERNELS      := $(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard lib/kernels/cuda/*.cu))
HALF         := cuda
FOLDERS      := gpulog cuda nn launch fsdp harness
endif
ifeq ($(BACKEND),cuda)
# nvcc hands the objects to the host's linker; its own copy of the CUDA runtime is left out, because
# calls from inside of a static copy would pass through the interposer too.
LINK         := $(NVCC) -ccbin $(CXX) -cudart none $(CUDA_ARCH_FLAG) -Xcompiler -pthread \
                $(if $(COMPILED_IN),-Xcompiler -fsanitize=$(subst $(comma),\$(comma),$(COMPILED_IN))) \
                $(WRAPPED:%=-Xlinker --wrap=%)
LDLIBS       := $(CUDA_LIB_FILES:%=-Xlinker %) $(CUDA_LIB_FOLDERS:%=-Xlinker -rpath=%) -ldw -lm -lpthread
GPU_LIBS     := $(BUILD)/lib/libgpulog.a
endif
ifeq ($(BACKEND),rehearsal)
# A reset of the interposer's books resets simgpu's own too: books_agree.c compares the two.
WRAPPED      += gpulog_reset_peak gpulog_reset_traffic
LINK         := $(CXX) $(filter-out -std=gnu11,$(BASE)) $(WRAPPED:%=-Wl,--wrap=%)
LDLIBS       := $(BLAS_LIBS) -ldw -lgomp -lm -lpthread
KERNELS      += $(BUILD)/obj/tests/emulator/emulator.o
GPU_LIBS     := $(BUILD)/obj/tests/support/rehearsal/books_agree.o $(BUILD)/lib/libgpulog.a $(BUILD)/lib/simgpu.o
FOLDERS      += emulator
endif

# ---- Objects ----

objects     = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)))
SIMGPU_OBJ := $(call objects,simgpu/src/*.c gpulog/src/*.c)
GPULOG_OBJ := $(call objects,gpulog/src/*.c gpulog/wrap/*.c)
LIB_OBJ    := $(call objects,$(filter-out lib/kernels/%,$(wildcard lib/*/*.c))) $(KERNELS)
HARNESS_OBJ:= $(call objects,tests/support/*.c tests/support/$(HALF)/*.c $(if $(filter rehearsal,$(BACKEND)),tests/support/simgpu/reports.c))

NN_LIB     := $(BUILD)/lib/libshardlab.a
HARNESS_LIB:= $(BUILD)/lib/libharness.a
LIBS       := $(NN_LIB) $(GPU_LIBS)

REFERENCE_OBJ := $(TASKS:%=$(BUILD)/impl/reference/%.o)
IMPL_OBJ      := $(TASKS:%=$(BUILD)/impl/$(IMPL_KEY)/%.o)

# Suites of the kit's own (tests/<folder>/<name>.c), each a program linked with the harness.
NO_SUITE   := tests/cuda/host_kernels.c
OWN_SUITES := $(patsubst tests/%.c,$(BUILD)/tests/%,$(filter-out $(NO_SUITE),$(wildcard $(FOLDERS:%=tests/%/*.c))))
# Suites of the tasks: each is linked with the student's file and the reference's other five, so that a
# mistake costs its own task; `together` is linked with the student's six.
TASK_SUITES := $(TASKS:%=$(BUILD)/impl/$(IMPL_KEY)/suite/%)
TOGETHER    := $(BUILD)/impl/$(IMPL_KEY)/suite/together
EXAMPLES    := $(patsubst examples/%.c,$(BUILD)/bin/%,$(wildcard examples/*.c))
LAUNCH      := $(BUILD)/bin/launch
DEVICES     := $(BUILD)/bin/devices
SIMGPU_PC   := $(BUILD)/lib/pkgconfig/simgpu.pc

.PHONY: help deps build grade hint watch test demo demo-oom gpt2-medium simgpu release steady mutants different skeleton \
        suites own-suites examples clean compile_commands.json
.DEFAULT_GOAL := help
.SECONDARY:
.DELETE_ON_ERROR:

# ---- Targets: a line "## name: text" is what `make help` prints ----

help:
	@sed -n 's/^## //p' Makefile

## make grade                score skeleton/ (IMPL=reference, or IMPL=DIR for any folder of the six files;
##                           TASK=2 or TASK=flat_param for one task; LIMIT=60 for seconds a test may take;
##                           NO_INSTALL=1 installs nothing; HTML=1 writes a page with plots to
##                           build/grade/results.html, HTML=FILE elsewhere)
grade: deps
	@$(PYTHON) grader/grade.py --impl '$(IMPL)' $(if $(TASK),--task '$(TASK)') $(if $(LIMIT),--limit '$(LIMIT)') \
	    --build '$(BUILD)' --backend $(BACKEND) \
	    $(if $(HTML),--html '$(if $(filter 1,$(HTML)),$(BUILD)/grade/results.html,$(HTML))') \
	    --out '$(BUILD)/grade/results.json'

## make hint                 a hint for the first thing that is missing or wrong; again: one more (TASK=2 for one task,
##                           TEST=name for a test, LEVEL=2 for the hints up to a level)
hint: deps
	@$(PYTHON) grader/hint.py --impl '$(IMPL)' $(if $(TASK),--task '$(TASK)') $(if $(TEST),--test '$(TEST)') \
	    $(if $(LEVEL),--level '$(LEVEL)') $(if $(LIMIT),--limit '$(LIMIT)') --build '$(BUILD)' --backend $(BACKEND)

## make watch                grade again whenever a file is saved, and say what has changed; TASK=2 for one task
watch: deps
	@$(PYTHON) grader/watch.py --impl '$(IMPL)' $(if $(TASK),--task '$(TASK)') $(if $(LIMIT),--limit '$(LIMIT)') \
	    --build '$(BUILD)' --backend $(BACKEND)

## make test                 build and run every test of the kit itself
test: deps
	@$(MAKE) --no-print-directory -j2 IMPL=reference own-suites suites examples
	@$(if $(filter simgpu,$(BACKEND)),,$(DEVICES))
	@$(PYTHON) grader/run_tests.py --build '$(BUILD)' $(TEST_FLAGS) $(OWN_SUITES) \
	    $(TASKS:%=$(BUILD)/impl/reference/suite/%) $(BUILD)/impl/reference/suite/together \
	    $(if $(SANITIZE)$(filter-out simgpu,$(BACKEND)),,$(GRADER_TESTS))

## make demo                 train GPT-2 (5 M parameters) on 4 GPUs; DATA=file for a text of yours, RANKS=2 for
##                           another number, DEMO_FLAGS='--steps 100 …' for options (build/bin/train_gpt2 --help)
demo: deps
	@$(MAKE) --no-print-directory -s -j2 examples
	@$(LAUNCH) -n $(RANKS) $(BUILD)/bin/train_gpt2 $(DEMO_FLAGS) $(DEMO_TEXT)

## make demo-oom             a model too large for one GPU of 64 MB: alone it fails, with FSDP it trains
demo-oom: deps
	@$(MAKE) --no-print-directory -s -j2 examples
	@sh examples/demo_oom.sh '$(BUILD)' $(DEMO_TEXT)

## make gpt2-medium          one step of GPT-2 medium (355 M parameters) on 8 simulated GPUs, in 12 GiB
gpt2-medium: deps
	@$(MAKE) --no-print-directory -j2 $(BUILD)/tests/large/gpt2_medium
	@$(BUILD)/tests/large/gpt2_medium

## make build                build everything, run nothing
build: deps
	@$(MAKE) --no-print-directory -j2 own-suites suites examples $(BUILD)/tests/large/gpt2_medium
	@$(MAKE) --no-print-directory -j2 IMPL=reference suites

## make simgpu               the simulated GPU alone: build/lib/libsimgpu.a and build/lib/pkgconfig/simgpu.pc
simgpu: deps
	@$(MAKE) --no-print-directory -j2 $(BUILD)/lib/libsimgpu.a $(SIMGPU_PC)

## make release              the archives for students and course platforms, in build/release (handouts/instructors.md);
##                           OUT=DIR for another folder, AT=COMMIT for the tree of a commit, GAPS=2 as below
release: deps
	@$(PYTHON) -B grader/release.py --out '$(or $(OUT),$(BUILD)/release)' $(if $(AT),--at '$(AT)') $(if $(GAPS),--gaps '$(GAPS)')

## make mutants              grade 180 wrong solutions, each of which must lose the test it is meant to lose (2 minutes;
##                           TASK=2 for one task's)
mutants: deps
	@$(PYTHON) -B grader/mutants.py --build '$(BUILD)' $(if $(TASK),--task '$(TASK)')

## make different            grade right solutions that are unlike the reference: all must score 100
different: deps
	@$(PYTHON) -B grader/mutants.py --different --build '$(BUILD)'

## make steady               grade the reference and a half-done solution 50 times each while the machine is busy
steady: deps
	@$(PYTHON) -B grader/steady.py --build '$(BUILD)'

## make skeleton             write skeleton/ anew from reference/; GAPS=2 OUT=DIR leaves function bodies and given
##                           helpers to be written too, in another folder
skeleton:
	@$(PYTHON) -B grader/skeleton.py write $(if $(GAPS),--gaps '$(GAPS)') $(if $(OUT),--skeleton '$(OUT)')

## make deps                 install what is missing, saying what and why (part of every target above)
deps:
	@BACKEND='$(BACKEND)' sh grader/setup.sh

## make compile_commands.json   for clangd
compile_commands.json: deps
	@$(MAKE) --no-print-directory -Bn V=1 own-suites suites examples | grep -e '^[^ ]* .* -c ' | sort -u | sed -e 's/["\\]/\\&/g' \
	    -e 's|^\(.* -c \([^ ]*\) .*\)$$|{"directory": "$(CURDIR)", "file": "\2", "command": "\1"},|' \
	    -e '1s/^/[/' -e '$$s/,$$/]/' > $@.new
	@mv $@.new $@

## make clean                remove build/
clean:
	rm -rf build compile_commands.json

## make help                 this list
##
## Variables, for every target:
##   BACKEND=cuda         real GPUs, in build/cuda; finds the toolkit by CUDA_HOME, NCCL by NCCL_HOME; CUDA_ARCH=90
##                        for another machine's GPU; SHARE_GPU=1 lets ranks share one; TF32=1 for faster products
##   BACKEND=rehearsal    the code of BACKEND=cuda on simulated GPUs, in build/rehearsal
##   SANITIZE=address,undefined or thread, in a tree of its own; with BACKEND=cuda memcheck, racecheck, initcheck
##                        or synccheck, which are compute-sanitizer's
##   SEED=8812            what tests draw their shapes and worlds from, as a failed one says (else drawn anew)
##   V=1 shows the commands; WERROR=1 makes warnings errors; BLAS=openblas takes OpenBLAS where oneDNN is there too

# Parts of the above.
own-suites: $(OWN_SUITES)
suites: $(TASK_SUITES) $(TOGETHER)
examples: $(EXAMPLES) $(LAUNCH) $(DEVICES)

# The longest first, so that none is left over at the end.
GRADER_TESTS := $(patsubst %,tests/grader/test_%.py,release attacks grade steady real_suites watch hint)
GRADER_TESTS := $(wildcard $(GRADER_TESTS)) $(filter-out $(GRADER_TESTS),$(wildcard tests/grader/test_*.py))

# On real GPUs one suite at a time, because each fills them, and with time; perhaps under a tool.
ifeq ($(BACKEND),cuda)
TEST_FLAGS := --jobs 1 --limit 1800 $(if $(WATCH),--prefix 'compute-sanitizer --tool $(WATCH) --target-processes all --error-exitcode 1 --kill no --print-limit 20')
endif
# Memory that the tests fill with NaNs would count as initialised.
ifeq ($(WATCH),initcheck)
export GPULOG_POISON := 0
endif

DEMO_TEXT  = $(if $(DATA),'$(DATA)',$(wildcard handouts/*.md))
DEMO_FLAGS ?=
RANKS      ?= 4

# ---- Rules ----

$(BUILD)/obj/simgpu/src/%.o $(BUILD)/obj/gpulog/%.o: DEFS = -Igpulog/src
$(BUILD)/obj/simgpu/src/blas.o: DEFS = -Igpulog/src $(BLAS_DEFS)
$(BUILD)/obj/simgpu/src/reduce.o $(BUILD)/obj/lib/kernels/%.o $(BUILD)/obj/tests/cuda/host_kernels.o: OPT = $(VECTOR)
# The CPU's kernels once more, for host memory and under other names: tests/cuda compares the device's with them.
$(BUILD)/obj/tests/cuda/host_kernels.o: DEFS = -Itests/cuda/host

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(SAY) CC $<
	$(Q)$(CC) $(BASE) $(CFLAGS) $(OPT) $(DEFS) $(INCLUDES) $(if $(filter tests/%,$<),-Itests/support) -MMD -MP -c $< -o $@

# CUDA C. An element of an elementwise kernel has the same bits in every loop and on every backend: no
# multiply-add is fused. The kernels wait for memory, not for arithmetic, so that costs nothing.
ifeq ($(BACKEND),cuda)
$(BUILD)/obj/%.o: %.cu $(BUILD)/cuda.mk
	@mkdir -p $(@D)
	$(SAY) NVCC $<
	$(Q)$(NVCC) -std=c++17 -O3 -lineinfo $(CUDA_ARCH_FLAG) -fmad=false -ccbin $(CXX) \
	    -Xcompiler -g,-fPIC,-fno-omit-frame-pointer,-fno-optimize-sibling-calls,-Wall,-Wextra,-Wno-unused-parameter \
	    $(if $(WERROR),-Werror all-warnings -Xcompiler -Werror) -Iinclude -Igpulog/include $(CUDA_INCLUDES) \
	    -MMD -MP -MF $(@:.o=.d) -c $< -o $@
else
# A GPU faults on a misaligned vector load, which this machine's processor may let pass. The threads
# of a block are fibers here, which ThreadSanitizer does not know of.
EMULATED := -std=c++17 -O2 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -pthread \
            $(if $(filter-out thread,$(COMPILED_IN)),-fsanitize=$(COMPILED_IN) -fno-sanitize-recover=all,-fsanitize=alignment -fsanitize-undefined-trap-on-error) \
            -ffp-contract=off -fno-math-errno \
            -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas $(if $(WERROR),-Werror) -DEMULATED -Itests/emulator/include -Itests/emulator
$(BUILD)/obj/%.o: %.cu
	@mkdir -p $(@D)
	$(SAY) CXX $<
	$(Q)$(CXX) $(EMULATED) $(INCLUDES) -MMD -MP -x c++ -c $< -o $@
$(BUILD)/obj/%.o: %.cpp
	@mkdir -p $(@D)
	$(SAY) CXX $<
	$(Q)$(CXX) $(EMULATED) $(INCLUDES) -MMD -MP -c $< -o $@
endif

$(BUILD)/lib/libsimgpu.a: $(SIMGPU_OBJ)
$(BUILD)/lib/libgpulog.a: $(GPULOG_OBJ)
$(NN_LIB): $(LIB_OBJ)
$(HARNESS_LIB): $(HARNESS_OBJ)
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	@rm -f $@
	$(SAY) AR $@
	$(Q)ar rcs $@ $^

# simgpu in the part of NVIDIA's libraries: one object, whose calls among its own files no interposer
# sees, and whose own books have other names than those that the interposer keeps.
$(BUILD)/lib/simgpu.o: $(SIMGPU_OBJ)
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(LD) -r -o $@.all $^
	$(Q)nm -g --defined-only -f posix $(filter $(BUILD)/obj/gpulog/src/%,$^) | awk 'NF > 2 {print $$1, "inner_" $$1}' >$@.names
	$(Q)objcopy --redefine-syms=$@.names $@.all $@
	@rm -f $@.all

# What a program from elsewhere needs: cc -g prog.c $(pkg-config --cflags --libs simgpu)
$(SIMGPU_PC): Makefile
	@mkdir -p $(@D)
	@printf '%s\n' 'Name: simgpu' 'Description: CUDA runtime, NCCL and cuBLAS, simulated on the CPU' \
	    'Version: 0.1' 'Cflags: -I$(CURDIR)/simgpu/include -I$(CURDIR)/gpulog/include' \
	    'Libs: -L$(abspath $(BUILD))/lib -lsimgpu $(LDLIBS)' > $@

# The path in the object's debug information is what a student sees in a message: folder/file.c.
define impl_rule
$(BUILD)/impl/$(1)/%.o: $(2)/%.c
	@mkdir -p $$(@D)
	$$(SAY) CC $$<
	$$(Q)$$(CC) $$(BASE) $(3) $$(CFLAGS) $$(INCLUDES) -MMD -MP -c $$< -o $$@
endef
# An archive for students has the reference as objects alone (grader/release.py).
ifneq ($(wildcard reference),)
$(eval $(call impl_rule,reference,reference,))
else
GIVEN := given/reference-$(shell uname -m)
$(BUILD)/impl/reference/%.o: $(GIVEN)/%.o
	@mkdir -p $(@D)
	$(SAY) CP $<
	$(Q)cp $< $@
$(GIVEN)/%.o:
	@echo 'there is no $@: this archive was made for $(patsubst given/reference-%,%,$(wildcard given/*)); ask course staff' >&2
	@false
endif
ifneq ($(IMPL_KEY),reference)
$(eval $(call impl_rule,$(IMPL_KEY),$(IMPL),$(HALF_DONE)))
endif

# Programs: objects, then libraries, each once.
define link
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(LINK) $(LDFLAGS) $(1) $(filter-out $(GPU_LIBS),$(filter %.a,$^)) $(GPU_LIBS) $(2) $(LDLIBS) -o $@
endef
objects_of = $(filter-out $(GPU_LIBS),$(filter %.o,$(1)))

# $(1): the folder in the build tree, $(2): of the tests. The hidden suites (grader/hidden.py) are
# linked as the task's own are.
define suite_rules
$(BUILD)/impl/$(IMPL_KEY)/$(1)/together: $(BUILD)/obj/tests/$(2)/together.o $(IMPL_OBJ) $(HARNESS_LIB) $(LIBS)
	$$(call link,$$(call objects_of,$$^),-lcmocka)
$(BUILD)/impl/$(IMPL_KEY)/$(1)/%: $(BUILD)/obj/tests/$(2)/%.o $(BUILD)/impl/$(IMPL_KEY)/%.o $(REFERENCE_OBJ) $(HARNESS_LIB) $(LIBS)
	$$(call link,$$(filter-out $(BUILD)/impl/reference/$$*.o,$$(call objects_of,$$^)) $(if $(filter reference,$(IMPL_KEY)),$(BUILD)/impl/reference/$$*.o),-lcmocka)
endef
$(eval $(call suite_rules,suite,tasks))
$(eval $(call suite_rules,hidden,hidden))

# What the results page draws: three steps of training, with the student's files of the tasks in OWN
# and the reference's other files. grader/trace.py removes the program first: OWN has no time stamp.
OWN ?=
$(BUILD)/impl/$(IMPL_KEY)/trace/steps: $(BUILD)/obj/tests/trace/steps.o $(OWN:%=$(BUILD)/impl/$(IMPL_KEY)/%.o) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(OWN),$(TASKS))) $(HARNESS_LIB) $(LIBS)
	$(call link,$(call objects_of,$^),-lcmocka)

# Of the kit's own suites these know of FSDP.
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fsdp/*.c tests/harness/*.c tests/large/*.c)): $(REFERENCE_OBJ)
# And this one has the CPU's kernels to compare the device's with.
$(BUILD)/tests/cuda/kernels: $(BUILD)/obj/tests/cuda/host_kernels.o
$(BUILD)/tests/emulator/mistakes: $(BUILD)/obj/tests/emulator/wrong.o
# The random tester of the race checker is cut into several files.
$(BUILD)/tests/simgpu/random: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/simgpu/random/*.c))
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(HARNESS_LIB) $(LIBS)
	$(call link,$(call objects_of,$^),-lcmocka)

$(LAUNCH) $(DEVICES): $(BUILD)/bin/%: $(BUILD)/obj/lib/launch/main/%.o $(LIBS)
	$(call link,$(call objects_of,$^))
$(BUILD)/bin/%: $(BUILD)/obj/examples/%.o $(REFERENCE_OBJ) $(LIBS)
	$(call link,$(call objects_of,$^))

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
