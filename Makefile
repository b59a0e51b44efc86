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

ifneq ($(filter-out dnnl openblas,$(BLAS)),)
$(error there is no BLAS=$(BLAS): it is dnnl (oneDNN) or openblas; without it, what this machine has)
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
# BUILD may name a tree anywhere. Its path is one word, relative within the kit (the compiler's
# dependency files hold it), so that the kit's own path may have spaces in it, at which make would
# cut: what comes before `build` is never in a target.
BUILD := build$(if $(filter-out simgpu,$(BACKEND)),/$(BACKEND))$(if $(COMPILED_IN),/sanitize-$(subst $(comma),-,$(COMPILED_IN)))$(if $(filter command environment,$(firstword $(origin BLAS))),/$(BLAS))
within = $(patsubst |%,%,$(subst |$(CURDIR)/,,|$(1)))
override BUILD := $(call within,$(abspath $(call within,$(BUILD))))
ifneq ($(word 2,$(BUILD)),)
$(error BUILD=$(BUILD) has a space in it, which only the path of the kit itself may have)
endif

TASKS := meta_init flat_param forward backward optimizer api

# A text as one word for the shell; lines become words.
define newline


endef
quote = '$(subst $(newline),' ',$(subst ','\'',$(1)))'

# The folder as make can name it, and what it is called in the build tree. `value`, because a '$' in
# a folder's name is none of make's.
IMPL_GIVEN := $(value IMPL)
ifneq ($(findstring $(newline),$(IMPL_GIVEN)),)
$(error the name of the folder that IMPL names has a line break in it: rename it)
endif
ifneq ($(and $(filter 1,$(words $(IMPL_GIVEN))),$(filter reference skeleton,$(IMPL_GIVEN))),)
IMPL_KEY := $(IMPL_GIVEN)
IMPL_DIR := $(IMPL_GIVEN)
else
IMPL_DIR := $(shell sh grader/impl_folder.sh $(call quote,$(IMPL_GIVEN)) '$(BUILD)')
IMPL_KEY := $(firstword $(IMPL_DIR))
IMPL_DIR := $(word 2,$(IMPL_DIR))
ifeq ($(IMPL_DIR),)
$(error the folder that IMPL names cannot be used)
endif
endif
# A folder that make cannot name is linked to in the build tree; a file there has its real name.
IMPL_NAMES := $(patsubst %/src,@%/names,$(filter $(BUILD)/impl/%/src,$(IMPL_DIR)))

# How recipes call make again: as many jobs as there are processors, where whoever called make has not
# said how many. Only for recipes: while make reads this file, its MAKEFLAGS has no -j yet (up to 4.3).
JOBS = --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(or $(shell nproc 2>/dev/null),2))

# V=1 shows whole command lines; `make -s` says nothing.
Q   := $(if $(V),,@)
SAY := @$(if $(or $(V),$(findstring s,$(firstword -$(MAKEFLAGS)))),:,printf '  %-5s %s\n')

# ---- Backends ----
#
# simgpu     the simulated GPUs of simgpu/, and the kernels of lib/kernels/*.c
# cuda       the CUDA toolkit, cuBLAS and NCCL; lib/kernels/cuda/*.cu compiled by nvcc; the interposer of
#            gpulog/interpose in front of every call it has a __wrap_ function for
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

# What this machine has, as grader/setup.sh found it: BLAS, BLAS_DEFS, BLAS_LIBS, COMPILER, PROCESSOR.
# It is made here where it is not there yet, and make starts again; `deps` sees whether it still holds.
SETUP := CONFIG='$(BUILD)/config.mk' BACKEND='$(BACKEND)' sh grader/setup.sh
ifneq ($(filter-out help clean skeleton deps,$(or $(MAKECMDGOALS),help)),)
include $(BUILD)/config.mk
endif
$(BUILD)/config.mk:
	@$(SETUP)

WARN      := -Wall -Wextra -Wno-unused-parameter -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
             -Wpointer-arith -Wformat=2 -Wvla $(if $(WERROR),-Werror)
# -fno-optimize-sibling-calls: a call in tail position keeps its own line in reports.
CFLAGS    ?= -O2
BASE       = -std=gnu11 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -pthread $(WARN) \
             $(if $(COMPILED_IN),-fsanitize=$(COMPILED_IN) -fno-sanitize-recover=all) $(BACKEND_DEFS)
# In a half-written task file much is unused, and that is no mistake yet.
HALF_DONE := -Wno-unused
# Warnings that are mistakes in a task file, whatever else is one: such a program may run, and be
# right, by luck.
MISTAKES  := $(addprefix -Werror=,return-type implicit-function-declaration implicit-int incompatible-pointer-types \
             int-conversion)
INCLUDES  := -Iinclude -Igpulog/include $(if $(filter cuda,$(BACKEND)),$(CUDA_INCLUDES),-Isimgpu/include)
# Vectorised for this machine; no contraction and no fast-math, so that an element's bits do not depend
# on where in a vector loop it falls. sqrtf vectorises only where it need not set errno.
VECTOR    := -O3 -march=native -fopenmp-simd -ffp-contract=off -fno-math-errno
# The interposer's functions, and how the linker is told of them.
WRAPPED   := $(sort $(shell sed -n 's/.*[ *]__wrap_\([A-Za-z0-9_]*\)\x28.*/\1/p' $(wildcard gpulog/interpose/*.c) /dev/null))

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
# A reset of the interposer's books resets simgpu's own too: books_agree.c compares the two. What a
# program calls its code, streams and elements both are told.
WRAPPED      += gpulog_reset_peak gpulog_reset_traffic gpulog_own_code gpulog_name_stream gpulog_name_elements
LINK         := $(CXX) $(filter-out -std=gnu11,$(BASE)) $(WRAPPED:%=-Wl,--wrap=%)
LDLIBS       := $(BLAS_LIBS) -ldw -lgomp -lm -lpthread
KERNELS      += $(BUILD)/obj/tests/emulator/emulator.o
GPU_LIBS     := $(BUILD)/obj/tests/support/rehearsal/books_agree.o $(BUILD)/lib/libgpulog.a $(BUILD)/lib/simgpu.o
FOLDERS      += emulator
endif

# ---- Objects ----

objects     = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)))
SIMGPU_OBJ := $(call objects,simgpu/src/*.c gpulog/log/*.c)
GPULOG_OBJ := $(call objects,gpulog/log/*.c gpulog/interpose/*.c)
LIB_OBJ    := $(call objects,$(filter-out lib/kernels/%,$(wildcard lib/*/*.c)) lib/launch/cuda/*.c) $(KERNELS)
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
EXAMPLES    := $(patsubst examples/%.c,$(BUILD)/impl/$(IMPL_KEY)/bin/%,$(wildcard examples/*.c))
EXAMPLES_LIB:= $(BUILD)/lib/libexamples.a
EXAMPLES_OBJ:= $(call objects,examples/*/*.c)
LAUNCH      := $(BUILD)/bin/launch
DEVICES     := $(BUILD)/bin/devices
SIMGPU_PC   := $(BUILD)/lib/pkgconfig/simgpu.pc

.PHONY: help deps build grade hint watch test test-all demo demo-oom gpt2-medium simgpu release steady mutants different \
        skeleton suites own-suites examples example-programs clean compile_commands.json
.DEFAULT_GOAL := help
.SECONDARY:
.DELETE_ON_ERROR:

# An archive for students (grader/release.py) has the reference as objects alone and only the tests that grade.
KIT_ONLY := $(if $(wildcard reference),,test test-all gpt2-medium release mutants different steady skeleton BACKEND=rehearsal)
$(foreach word,$(filter $(KIT_ONLY),$(MAKECMDGOALS) BACKEND=$(BACKEND)),$(error make $(word) belongs to the full kit, which this archive is not: `make help` lists what works here))

# ---- Targets: a line "## name: text" is what `make help` prints ----

help:
	@awk -v gone=' $(KIT_ONLY) ' '/^## / { if (!/^##    /) skip = index(gone, " " ($$2 == "make" ? $$3 : $$2) " "); \
	    if (!skip) print substr($$0, 4) }' Makefile

## make grade                score skeleton/ (IMPL=DIR for any other folder of the six files;
##                           TASK=2 or TASK=flat_param for one task; LIMIT=60 for seconds a test may take;
##                           NO_INSTALL=1 installs nothing; HTML=1 writes a page with plots to
##                           build/grade/results.html, HTML=FILE elsewhere)
grade: deps
	@$(PYTHON) grader/grade.py --impl $(call quote,$(IMPL_GIVEN)) $(if $(TASK),--task '$(TASK)') $(if $(LIMIT),--limit '$(LIMIT)') \
	    --build '$(BUILD)' --backend $(BACKEND) \
	    $(if $(HTML),--html '$(if $(filter 1,$(HTML)),$(BUILD)/grade/results.html,$(HTML))') \
	    --out '$(BUILD)/grade/results.json'

## make hint                 a hint for the first thing that is missing or wrong; again: one more (TASK=2 for one task,
##                           TEST=name for a test, LEVEL=2 for the hints up to a level)
hint: deps
	@$(PYTHON) grader/hint.py --impl $(call quote,$(IMPL_GIVEN)) $(if $(TASK),--task '$(TASK)') $(if $(TEST),--test '$(TEST)') \
	    $(if $(LEVEL),--level '$(LEVEL)') $(if $(LIMIT),--limit '$(LIMIT)') --build '$(BUILD)' --backend $(BACKEND)

## make watch                grade again whenever a file is saved, and say what has changed; TASK=2 for one task
watch: deps
	@$(PYTHON) grader/watch.py --impl $(call quote,$(IMPL_GIVEN)) $(if $(TASK),--task '$(TASK)') $(if $(LIMIT),--limit '$(LIMIT)') \
	    --build '$(BUILD)' --backend $(BACKEND)

## make test                 build and run every test of the kit itself
test: deps
	@$(MAKE) $(JOBS) IMPL=reference own-suites suites example-programs
	@$(if $(filter simgpu,$(BACKEND)),,$(DEVICES))
	@$(PYTHON) grader/run_tests.py --build '$(BUILD)' $(TEST_FLAGS) $(OWN_SUITES) \
	    $(TASKS:%=$(BUILD)/impl/reference/suite/%) $(BUILD)/impl/reference/suite/together \
	    $(if $(SANITIZE)$(filter-out simgpu,$(BACKEND)),,$(GRADER_TESTS))

## make demo                 your six files train a small GPT-2 to add, on 4 GPUs (a part not written yet is the
##                           reference's); DATA=file for a text of yours, RANKS=2 for another number,
##                           IMPL=reference or IMPL=DIR, DEMO_FLAGS='--steps 100 …' for options of the program
demo: deps
	@$(DEMO) demo

## make demo-oom             a model too large for one GPU of 64 MB: alone it fails, with FSDP it trains
demo-oom: deps
	@$(DEMO) oom

## make gpt2-medium          one step of GPT-2 medium (355 M parameters) on 8 simulated GPUs, in 12 GiB
gpt2-medium: deps
	@$(MAKE) $(JOBS) $(BUILD)/tests/large/gpt2_medium
	@$(BUILD)/tests/large/gpt2_medium

## make build                build everything, run nothing
build: deps
	@$(MAKE) $(JOBS) own-suites suites $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/large/*.c))
	@$(MAKE) $(JOBS) IMPL=reference suites
	@$(MAKE) --no-print-directory examples

## make simgpu               the simulated GPU alone: build/lib/libsimgpu.a and build/lib/pkgconfig/simgpu.pc
simgpu: deps
	@$(MAKE) $(JOBS) $(BUILD)/lib/libsimgpu.a $(SIMGPU_PC)

## make release              the archives for students and course platforms, in build/release (handouts/instructors.md);
##                           OUT=DIR for another folder, AT=COMMIT for the tree of a commit, GAPS=2 as below
release: deps
	@$(PYTHON) -B grader/release.py --out '$(or $(OUT),$(BUILD)/release)' $(if $(AT),--at '$(AT)') $(if $(GAPS),--gaps '$(GAPS)')

## make mutants              grade 193 wrong solutions, each of which must lose the test it is meant to lose (2 minutes;
##                           TASK=2 for one task's)
mutants: deps
	@$(PYTHON) -B grader/mutants.py --build '$(BUILD)' $(if $(TASK),--task '$(TASK)')

## make different            grade right solutions that are unlike the reference: all must score 100
different: deps
	@$(PYTHON) -B grader/mutants.py --different --build '$(BUILD)'

## make steady               grade the reference and a half-done solution 50 times each while the machine is busy
steady: deps
	@$(PYTHON) -B grader/steady.py --build '$(BUILD)'

## make test-all             make test, and then every command that README and handouts print and that takes longer
test-all: test
	@$(PYTHON) -B grader/devtools/documented.py --long

## make skeleton             write skeleton/ anew from reference/; GAPS=2 OUT=DIR leaves function bodies and given
##                           helpers to be written too, in another folder
skeleton:
	@$(PYTHON) -B grader/skeleton.py write $(if $(GAPS),--gaps '$(GAPS)') $(if $(OUT),--skeleton '$(OUT)')

## make deps                 install what is missing, saying what and why (part of every target above)
deps:
	@$(SETUP)

## make compile_commands.json   for clangd
compile_commands.json: deps
	@$(MAKE) --no-print-directory -Bn V=1 own-suites suites example-programs | $(PYTHON) grader/compile_commands.py $@

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
# The programs of examples/ with the files of IMPL that are complete (OWN), and the reference's other ones.
examples: $(LAUNCH) $(DEVICES) $(EXAMPLES_LIB)
	@$(DEMO) examples
example-programs: $(EXAMPLES) $(LAUNCH) $(DEVICES)

# The longest first, so that none is left over at the end.
GRADER_TESTS := $(patsubst %,tests/grader/test_%.py,release attacks grade steady demo real_suites watch hint)
GRADER_TESTS := $(wildcard $(GRADER_TESTS)) $(filter-out $(GRADER_TESTS),$(wildcard tests/grader/test_*.py))

# On real GPUs one suite at a time, because each fills them, and with time; perhaps under a tool.
ifeq ($(BACKEND),cuda)
TEST_FLAGS := --jobs 1 --limit 1800 $(if $(WATCH),--prefix 'compute-sanitizer --tool $(WATCH) --target-processes all --error-exitcode 1 --kill no --print-limit 20')
endif
# Memory that the tests fill with NaNs would count as initialised.
ifeq ($(WATCH),initcheck)
export GPULOG_POISON := 0
endif

RANKS      ?= 4
DEMO_FLAGS ?=
DEMO        = $(PYTHON) grader/demo.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' --backend $(BACKEND) --ranks='$(RANKS)' \
              $(if $(DATA),--data='$(DATA)') --flags='$(DEMO_FLAGS)'

# ---- Rules ----

# What objects, libraries and programs are made with (flags, compiler, BLAS, processor, members) is
# written to files of $(BUILD)/made_with on which they depend, so a change of it makes them anew. A
# file is compared while make reads this Makefile, which costs no process, and written only where it
# differs, so that nothing else is made anew.
MADE_WITH := $(BUILD)/made_with
# What a file holds, as words: make 4.3 sometimes leaves the line break at a file's end.
held = $(strip $(file <$(1)))
same = $(and $(findstring |$(1)|,|$(2)|),$(findstring |$(2)|,|$(1)|))
# $(1): the file, $(2): the variable that it holds.
define holds
$(1): $(if $(call same,$(call held,$(1)),$(strip $($(2)))),,FORCE)
	@mkdir -p $$(@D)
	@printf '%s\n' $$(call quote,$$($(2))) >$$@
endef
.PHONY: FORCE
# The same for flags. Objects that were made with warnings as errors are as good without, so that only
# the way to WERROR=1 makes them anew: a warning that was let pass must show.
without_strict = $(filter-out -Werror all-warnings -Xcompiler=-Werror,$($(1)))
recorded       = $(strip $(without_strict) $(if $(WERROR),warnings-are-errors))
made_so        = $(if $(call same,$(1),$(2)),yes,$(if $(call same,$(1),$(2) warnings-are-errors),yes))
define holds_flags
$(1): $(if $(filter yes,$(call made_so,$(call held,$(1)),$(call recorded,$(2)))),,FORCE)
	@mkdir -p $$(@D)
	@printf '%s\n' $$(call quote,$$(call recorded,$(2))) >$$@
endef

WITH_C       = $(strip $(COMPILER): $(CC) $(BASE) $(CFLAGS) $(INCLUDES) $(SIMGPU_DEFS) $(SUPPORT_DEFS))
WITH_BLAS    = $(strip $(BLAS_DEFS))
WITH_VECTOR  = $(strip $(PROCESSOR): $(VECTOR))
WITH_TASK    = $(strip $(MISTAKES) $(HALF_DONE))
WITH_KERNELS = $(strip $(if $(filter cuda,$(BACKEND)),$(NVCC) $(NVCC_FLAGS),$(CXX) $(EMULATED)) $(INCLUDES))
WITH_LINK    = $(strip $(LINK) $(LDFLAGS) $(LDLIBS))

SIMGPU_DEFS  := -Igpulog/log
SUPPORT_DEFS := -Itests/support
VECTOR_OBJ   := $(call objects,simgpu/src/reduce.c lib/kernels/*.c tests/cuda/host_kernels.c)

$(BUILD)/obj/simgpu/src/%.o $(BUILD)/obj/gpulog/%.o: DEFS = $(SIMGPU_DEFS)
$(BUILD)/obj/simgpu/src/blas.o: DEFS = $(SIMGPU_DEFS) $(BLAS_DEFS)
$(BUILD)/obj/simgpu/src/blas.o: $(MADE_WITH)/blas
$(VECTOR_OBJ): OPT = $(VECTOR)
$(VECTOR_OBJ): $(MADE_WITH)/vector
$(BUILD)/obj/tests/%.o: DEFS = $(SUPPORT_DEFS)
# The CPU's kernels once more, for host memory and under other names: tests/cuda compares the device's with them.
$(BUILD)/obj/tests/cuda/host_kernels.o: DEFS = $(SUPPORT_DEFS) -Itests/cuda/host

$(BUILD)/obj/%.o: %.c $(MADE_WITH)/c
	@mkdir -p $(@D)
	$(SAY) CC $<
	$(Q)$(CC) $(BASE) $(CFLAGS) $(OPT) $(DEFS) $(INCLUDES) -MMD -MP -c $< -o $@

# CUDA C. An element of an elementwise kernel has the same bits in every loop and on every backend: no
# multiply-add is fused. The kernels wait for memory, not for arithmetic, so that costs nothing.
ifeq ($(BACKEND),cuda)
NVCC_FLAGS := -std=c++17 -O3 -lineinfo $(CUDA_ARCH_FLAG) -fmad=false -ccbin $(CXX) \
              -Xcompiler -g,-fPIC,-fno-omit-frame-pointer,-fno-optimize-sibling-calls,-Wall,-Wextra,-Wno-unused-parameter \
              $(if $(WERROR),-Werror all-warnings -Xcompiler=-Werror)
$(BUILD)/obj/%.o: %.cu $(MADE_WITH)/kernels
	@mkdir -p $(@D)
	$(SAY) NVCC $<
	$(Q)$(NVCC) $(NVCC_FLAGS) $(INCLUDES) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
else
# A GPU faults on a misaligned vector load, which this machine's processor may let pass. The threads
# of a block are fibers here, which ThreadSanitizer does not know of.
EMULATED := -std=c++17 -O2 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -pthread \
            $(if $(filter-out thread,$(COMPILED_IN)),-fsanitize=$(COMPILED_IN) -fno-sanitize-recover=all,-fsanitize=alignment -fsanitize-undefined-trap-on-error) \
            -ffp-contract=off -fno-math-errno \
            -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas $(if $(WERROR),-Werror) -DEMULATED -Itests/emulator/include -Itests/emulator
$(BUILD)/obj/%.o: %.cu $(MADE_WITH)/kernels
	@mkdir -p $(@D)
	$(SAY) CXX $<
	$(Q)$(CXX) $(EMULATED) $(INCLUDES) -MMD -MP -x c++ -c $< -o $@
$(BUILD)/obj/%.o: %.cpp $(MADE_WITH)/kernels
	@mkdir -p $(@D)
	$(SAY) CXX $<
	$(Q)$(CXX) $(EMULATED) $(INCLUDES) -MMD -MP -c $< -o $@
endif

$(BUILD)/lib/libsimgpu.a: $(SIMGPU_OBJ) $(MADE_WITH)/libsimgpu
$(BUILD)/lib/libgpulog.a: $(GPULOG_OBJ) $(MADE_WITH)/libgpulog
$(NN_LIB): $(LIB_OBJ) $(MADE_WITH)/libshardlab
$(HARNESS_LIB): $(HARNESS_OBJ) $(MADE_WITH)/libharness
$(EXAMPLES_LIB): $(EXAMPLES_OBJ) $(MADE_WITH)/libexamples
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	@rm -f $@
	$(SAY) AR $@
	$(Q)ar rcs $@ $(filter %.o,$^)

# simgpu in the part of NVIDIA's libraries: one object, whose calls among its own files no interposer
# sees, and whose own books have other names than those that the interposer keeps.
$(BUILD)/lib/simgpu.o: $(SIMGPU_OBJ) $(MADE_WITH)/libsimgpu
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(LD) -r -o $@.all $(filter %.o,$^)
	$(Q)nm -g --defined-only -f posix $(filter $(BUILD)/obj/gpulog/log/%,$^) | awk 'NF > 2 {print $$1, "inner_" $$1}' >$@.names
	$(Q)objcopy --redefine-syms=$@.names $@.all $@
	@rm -f $@.all

# What a program from elsewhere needs: cc -g prog.c $(pkg-config --cflags --libs simgpu). pkg-config
# writes a path with spaces in it for a shell that reads it once more: eval "cc -g prog.c $(…)".
backslashed = $(subst $(1),\$(1),$(2))
PC_ROOT := $(call backslashed,\,$(CURDIR))
$(foreach odd,' " ( ) & ; < > | * ? [ ] `,$(eval PC_ROOT := $$(call backslashed,$$(odd),$$(PC_ROOT))))
PC_ROOT := $(subst $$,$$$$,$(subst $() ,\ ,$(subst \#,\\\#,$(PC_ROOT))))
define PC_TEXT
Name: simgpu
Description: CUDA runtime, NCCL and cuBLAS, simulated on the CPU
Version: 0.1
Cflags: -I$(PC_ROOT)/simgpu/include -I$(PC_ROOT)/gpulog/include
Libs: -L$(if $(filter /%,$(BUILD)),,$(PC_ROOT)/)$(BUILD)/lib -lsimgpu $(LDLIBS)
endef

# The path in the object's debug information is what a student sees in a message: folder/file.c.
define impl_rule
$(BUILD)/impl/$(1)/%.o: $(2)/%.c $(MADE_WITH)/c $(MADE_WITH)/task
	@mkdir -p $$(@D)
	$$(SAY) CC $$<
	$$(Q)$$(CC) $$(BASE) $$(MISTAKES) $(3) $$(CFLAGS) $$(INCLUDES) -MMD -MP -c $$< -o $$@
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
$(eval $(call impl_rule,$(IMPL_KEY),$(IMPL_DIR),$(HALF_DONE) $(IMPL_NAMES)))
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
$(BUILD)/impl/$(IMPL_KEY)/$(1)/together: $(BUILD)/obj/tests/$(2)/together.o $(IMPL_OBJ) $(HARNESS_LIB) $(LIBS) $(MADE_WITH)/link
	$$(call link,$$(call objects_of,$$^),-lcmocka)
$(BUILD)/impl/$(IMPL_KEY)/$(1)/%: $(BUILD)/obj/tests/$(2)/%.o $(BUILD)/impl/$(IMPL_KEY)/%.o $(REFERENCE_OBJ) $(HARNESS_LIB) $(LIBS) $(MADE_WITH)/link
	$$(call link,$$(filter-out $(BUILD)/impl/reference/$$*.o,$$(call objects_of,$$^)) $(if $(filter reference,$(IMPL_KEY)),$(BUILD)/impl/reference/$$*.o),-lcmocka)
endef
$(eval $(call suite_rules,suite,tasks))
$(eval $(call suite_rules,hidden,hidden))

# What the results page draws: three steps of training, with the student's files of the tasks in OWN
# and the reference's other files. grader/trace.py removes the program first: OWN has no time stamp.
OWN ?=
$(BUILD)/impl/$(IMPL_KEY)/trace/steps: $(BUILD)/obj/tests/trace/steps.o $(OWN:%=$(BUILD)/impl/$(IMPL_KEY)/%.o) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(OWN),$(TASKS))) $(HARNESS_LIB) $(LIBS) $(MADE_WITH)/link
	$(call link,$(call objects_of,$^),-lcmocka)

# Of the kit's own suites these know of FSDP.
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fsdp/*.c tests/harness/*.c tests/large/*.c)): $(REFERENCE_OBJ)
# And this one has the CPU's kernels to compare the device's with.
$(BUILD)/tests/cuda/kernels: $(BUILD)/obj/tests/cuda/host_kernels.o
$(BUILD)/tests/emulator/mistakes: $(BUILD)/obj/tests/emulator/wrong.o
# The random tester of the race checker is cut into several files.
$(BUILD)/tests/simgpu/random: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/simgpu/random/*.c))
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(HARNESS_LIB) $(LIBS) $(MADE_WITH)/link
	$(call link,$(call objects_of,$^),-lcmocka)

$(LAUNCH) $(DEVICES): $(BUILD)/bin/%: $(BUILD)/obj/lib/launch/main/%.o $(LIBS) $(MADE_WITH)/link
	$(call link,$(call objects_of,$^))
# Programs of examples/, each with the student's files of the tasks in OWN. Which those are has no
# time stamp: a file remembers them.
OWN_LIST := $(BUILD)/impl/$(IMPL_KEY)/bin/own.txt
$(EXAMPLES): $(BUILD)/impl/$(IMPL_KEY)/bin/%: $(BUILD)/obj/examples/%.o $(OWN:%=$(BUILD)/impl/$(IMPL_KEY)/%.o) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(OWN),$(TASKS))) $(OWN_LIST) $(EXAMPLES_LIB) $(LIBS) $(MADE_WITH)/link
	$(call link,$(call objects_of,$^))

$(eval $(call holds_flags,$(MADE_WITH)/c,WITH_C))
$(eval $(call holds_flags,$(MADE_WITH)/blas,WITH_BLAS))
$(eval $(call holds_flags,$(MADE_WITH)/vector,WITH_VECTOR))
$(eval $(call holds_flags,$(MADE_WITH)/task,WITH_TASK))
$(eval $(call holds_flags,$(MADE_WITH)/kernels,WITH_KERNELS))
$(eval $(call holds_flags,$(MADE_WITH)/link,WITH_LINK))
$(eval $(call holds,$(MADE_WITH)/libsimgpu,SIMGPU_OBJ))
$(eval $(call holds,$(MADE_WITH)/libgpulog,GPULOG_OBJ))
$(eval $(call holds,$(MADE_WITH)/libshardlab,LIB_OBJ))
$(eval $(call holds,$(MADE_WITH)/libharness,HARNESS_OBJ))
$(eval $(call holds,$(MADE_WITH)/libexamples,EXAMPLES_OBJ))
$(eval $(call holds,$(OWN_LIST),OWN))
$(eval $(call holds,$(SIMGPU_PC),PC_TEXT))

-include $(shell find $(BUILD)/obj $(BUILD)/impl/reference $(BUILD)/impl/$(IMPL_KEY) -name '*.d' 2>/dev/null)
