# ShardLab. `make help` lists the targets; README.md says what they are for.
#
# IMPL names the folder whose six task files are built and graded: skeleton (default), reference, or
# any other. Objects of a folder live in build/impl/<name>, so that grading one leaves the others alone.

IMPL      ?= skeleton
TASK      ?=
DATA      ?=
WERROR    ?=
SANITIZE  ?=
CC        ?= cc
PYTHON    ?= python3

ifeq ($(origin CC),default)
CC := cc
endif

# A sanitized build lives in a tree of its own: make SANITIZE=address,undefined test. So does one with
# a BLAS that was asked for: make BLAS=openblas test.
comma := ,
BUILD := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))$(if $(filter command environment,$(firstword $(origin BLAS))),/$(BLAS))

# One spelling of the folder, however it was named: the compiler's dependency files hold it.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))

TASKS := meta_init flat_param forward backward optimizer api

# A folder elsewhere gets a build name that is its own: its last part and a sum of its path.
IMPL_PATH := $(abspath $(IMPL))
IMPL_KEY  := $(if $(filter $(CURDIR)/reference $(CURDIR)/skeleton,$(IMPL_PATH)),$(notdir $(IMPL_PATH)),$(notdir $(IMPL_PATH))-$(firstword $(shell printf '%s' '$(IMPL_PATH)' | cksum)))

# V=1 shows whole command lines; `make -s` says nothing.
Q   := $(if $(V),,@)
SAY := @$(if $(or $(V),$(findstring s,$(firstword -$(MAKEFLAGS)))),:,printf '  %-5s %s\n')

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
BASE      := -std=gnu11 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -pthread $(WARN) \
             $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all)
# In a half-written task file much is unused, and that is no mistake yet.
HALF_DONE := -Wno-unused
INCLUDES  := -Iinclude -Igpulog/include -Isimgpu/include
# Vectorised for this machine; no contraction and no fast-math, so that an element's bits do not depend
# on where in a vector loop it falls. sqrtf vectorises only where it need not set errno.
VECTOR    := -O3 -march=native -fopenmp-simd -ffp-contract=off -fno-math-errno
LDLIBS    := $(BLAS_LIBS) -ldw -lgomp -lm -lpthread

# ---- Objects ----

SIMGPU_SRC := $(wildcard simgpu/src/*.c gpulog/src/*.c)
LIB_SRC    := $(wildcard lib/*/*.c)
HARNESS_SRC:= $(wildcard tests/support/*.c)
SIMGPU_OBJ := $(SIMGPU_SRC:%.c=$(BUILD)/obj/%.o)
LIB_OBJ    := $(LIB_SRC:%.c=$(BUILD)/obj/%.o)
HARNESS_OBJ:= $(HARNESS_SRC:%.c=$(BUILD)/obj/%.o)

SIMGPU_LIB := $(BUILD)/lib/libsimgpu.a
NN_LIB     := $(BUILD)/lib/libshardlab.a
HARNESS_LIB:= $(BUILD)/lib/libharness.a
LIBS       := $(NN_LIB) $(SIMGPU_LIB)

REFERENCE_OBJ := $(TASKS:%=$(BUILD)/impl/reference/%.o)
IMPL_OBJ      := $(TASKS:%=$(BUILD)/impl/$(IMPL_KEY)/%.o)

# Suites of the kit's own (tests/<folder>/<name>.c), each a program linked with the reference.
OWN_SUITES := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/simgpu/*.c tests/nn/*.c tests/launch/*.c tests/fsdp/*.c tests/harness/*.c))
# Suites of the tasks: each is linked with the student's file and the reference's other five, so that a
# mistake costs its own task; `together` is linked with the student's six.
TASK_SUITES := $(TASKS:%=$(BUILD)/impl/$(IMPL_KEY)/suite/%)
TOGETHER    := $(BUILD)/impl/$(IMPL_KEY)/suite/together
EXAMPLES    := $(patsubst examples/%.c,$(BUILD)/bin/%,$(wildcard examples/*.c))
LAUNCH      := $(BUILD)/bin/launch
SIMGPU_PC   := $(BUILD)/lib/pkgconfig/simgpu.pc

.PHONY: help deps build grade test demo demo-oom gpt2-medium simgpu skeleton suites own-suites \
        examples clean compile_commands.json
.DEFAULT_GOAL := help
.SECONDARY:
.DELETE_ON_ERROR:

# ---- Targets: a line "## name: text" is what `make help` prints ----

help:
	@sed -n 's/^## //p' Makefile

## make grade                score skeleton/ (IMPL=reference, or IMPL=DIR for any folder of the six files;
##                           TASK=2 or TASK=flat_param for one task; NO_INSTALL=1 installs nothing)
grade: deps
	@$(PYTHON) grader/grade.py --impl '$(IMPL)' $(if $(TASK),--task '$(TASK)') --build '$(BUILD)' \
	    --out '$(BUILD)/grade/results.json'

## make test                 build and run every test of the kit itself
test: deps
	@$(MAKE) --no-print-directory -j2 IMPL=reference own-suites suites examples
	@$(PYTHON) grader/run_tests.py --build '$(BUILD)' $(OWN_SUITES) \
	    $(TASKS:%=$(BUILD)/impl/reference/suite/%) $(BUILD)/impl/reference/suite/together \
	    $(if $(SANITIZE),,$(wildcard tests/grader/test_*.py))

## make demo                 train GPT-2 (5 M parameters) on 4 simulated GPUs; DATA=file for a text of yours,
##                           DEMO_FLAGS='--steps 100 …' for options (build/bin/train_gpt2 --help)
demo: deps
	@$(MAKE) --no-print-directory -s -j2 examples
	@$(LAUNCH) -n 4 $(BUILD)/bin/train_gpt2 $(DEMO_FLAGS) $(DEMO_TEXT)

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
	@$(MAKE) --no-print-directory -j2 $(SIMGPU_LIB) $(SIMGPU_PC)

## make skeleton             write skeleton/ anew from reference/
skeleton:
	@$(PYTHON) grader/skeleton.py write

## make deps                 install what is missing, saying what and why (part of every target above)
deps:
	@sh grader/setup.sh

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
## Variables: SANITIZE=address,undefined or SANITIZE=thread builds and tests in a tree of its own;
## V=1 shows the commands; WERROR=1 makes warnings errors; BLAS=openblas takes OpenBLAS where oneDNN is there too.

# Parts of the above.
own-suites: $(OWN_SUITES)
suites: $(TASK_SUITES) $(TOGETHER)
examples: $(EXAMPLES) $(LAUNCH)

DEMO_TEXT  = $(if $(DATA),'$(DATA)',$(wildcard handouts/*.md))
DEMO_FLAGS ?=

# ---- Rules ----

$(SIMGPU_OBJ): DEFS = -Igpulog/src
$(BUILD)/obj/simgpu/src/blas.o: DEFS = -Igpulog/src $(BLAS_DEFS)
$(BUILD)/obj/simgpu/src/reduce.o $(BUILD)/obj/lib/kernels/%.o: OPT = $(VECTOR)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(SAY) CC $<
	$(Q)$(CC) $(BASE) $(CFLAGS) $(OPT) $(INCLUDES) $(if $(filter tests/%,$<),-Itests/support) $(DEFS) -MMD -MP -c $< -o $@

$(SIMGPU_LIB): $(SIMGPU_OBJ)
$(NN_LIB): $(LIB_OBJ)
# What a program from elsewhere needs: cc -g prog.c $(pkg-config --cflags --libs simgpu)
$(SIMGPU_PC): Makefile
	@mkdir -p $(@D)
	@printf '%s\n' 'Name: simgpu' 'Description: CUDA runtime, NCCL and cuBLAS, simulated on the CPU' \
	    'Version: 0.1' 'Cflags: -I$(CURDIR)/simgpu/include -I$(CURDIR)/gpulog/include' \
	    'Libs: -L$(abspath $(BUILD))/lib -lsimgpu $(LDLIBS)' > $@
$(HARNESS_LIB): $(HARNESS_OBJ)
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	@rm -f $@
	$(SAY) AR $@
	$(Q)ar rcs $@ $^

# The path in the object's debug information is what a student sees in a message: folder/file.c.
define impl_rule
$(BUILD)/impl/$(1)/%.o: $(2)/%.c
	@mkdir -p $$(@D)
	$$(SAY) CC $$<
	$$(Q)$$(CC) $$(BASE) $(3) $$(CFLAGS) $$(INCLUDES) -MMD -MP -c $$< -o $$@
endef
$(eval $(call impl_rule,reference,reference,))
ifneq ($(IMPL_KEY),reference)
$(eval $(call impl_rule,$(IMPL_KEY),$(IMPL),$(HALF_DONE)))
endif

$(BUILD)/impl/$(IMPL_KEY)/suite/together: $(BUILD)/obj/tests/tasks/together.o $(IMPL_OBJ) $(HARNESS_LIB) $(LIBS)
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(CC) $(BASE) $(LDFLAGS) $^ -lcmocka $(LDLIBS) -o $@
$(BUILD)/impl/$(IMPL_KEY)/suite/%: $(BUILD)/obj/tests/tasks/%.o $(BUILD)/impl/$(IMPL_KEY)/%.o $(REFERENCE_OBJ) $(HARNESS_LIB) $(LIBS)
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(CC) $(BASE) $(LDFLAGS) $(filter-out $(BUILD)/impl/reference/$*.o,$(filter %.o,$^)) $(if $(filter reference,$(IMPL_KEY)),$(BUILD)/impl/reference/$*.o) $(filter %.a,$^) -lcmocka $(LDLIBS) -o $@

# Of the kit's own suites these know of FSDP.
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fsdp/*.c tests/harness/*.c tests/large/*.c)): $(REFERENCE_OBJ)
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(HARNESS_LIB) $(LIBS)
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(CC) $(BASE) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(LDLIBS) -o $@

$(LAUNCH): $(BUILD)/obj/lib/launch/main/launch.o $(LIBS)
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(CC) $(BASE) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(BUILD)/bin/%: $(BUILD)/obj/examples/%.o $(REFERENCE_OBJ) $(LIBS)
	@mkdir -p $(@D)
	$(SAY) LD $@
	$(Q)$(CC) $(BASE) $(LDFLAGS) $^ $(LDLIBS) -o $@

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
