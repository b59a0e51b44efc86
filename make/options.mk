# What every target is told: variables of the command line, checked; the folder that is graded
# (IMPL); the tree that everything is built in (BUILD); how recipes speak and call make.
##   SANITIZE=thread  or address,undefined, in a tree of its own; with
##                    BACKEND=cuda memcheck, racecheck, initcheck or synccheck,
##                    which are compute-sanitizer's
##   SEED=8812        the seed of the tests' shapes and worlds, and of make test's
##                    sample; a failure prints its seed (without SEED: a new one
##                    each time)
##   V=1              shows the commands
##   WERROR=1         makes warnings errors
##   BLAS=openblas    takes OpenBLAS where oneDNN is there too

# IMPL names the folder whose six task files are built and graded: skeleton (default), reference, or
# any other. Objects of a folder live in build/impl/<name>, so that grading one leaves the others
# alone.
IMPL      ?= skeleton
TASK      ?=
LAB       ?=
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

ifeq ($(filter simgpu cuda emulated-cuda,$(BACKEND)),)
$(error there is no BACKEND=$(BACKEND): it must be simgpu (the default), cuda or emulated-cuda)
endif

# What is the full kit's says so where it is asked for in an archive (grader/course/release.py),
# which has neither these rules (devtools.mk, release.mk, site.mk, emulated_cuda.mk) nor what they
# work on.
KIT_ONLY := $(if $(wildcard make/devtools.mk),,test test-simgpu test-all compare-pytorch pairs \
    check-pytorch-map check-aarch64 check-model check-trace check-clock bench \
    gpt2-medium soak release grade-all regrade site check-site mutants mutation claims lint \
    alternatives flakiness skeleton BACKEND=emulated-cuda)
$(foreach word,$(filter $(KIT_ONLY),$(MAKECMDGOALS) BACKEND=$(BACKEND)),$(error make $(word) \
    belongs to the full kit, which this archive is not: `make help` lists what works here))

ifneq ($(filter-out dnnl openblas,$(BLAS)),)
$(error there is no BLAS=$(BLAS): it must be dnnl (oneDNN) or openblas; \
    without it, what this machine has)
endif

# compute-sanitizer's tools watch a program as it is; the compiler's sanitizers need one of their
# own.
WATCHERS := memcheck racecheck initcheck synccheck
WATCH    := $(filter $(WATCHERS),$(SANITIZE))
ifneq ($(WATCH),)
ifneq ($(BACKEND),cuda)
$(error SANITIZE=$(SANITIZE) is a tool of CUDA's compute-sanitizer: it needs BACKEND=cuda)
endif
endif
COMPILED_IN := $(filter-out $(WATCHERS),$(SANITIZE))

# A build against another backend lives in a tree of its own. So does a sanitized one (make
# SANITIZE=address,undefined test), and one with a BLAS that was asked for (make BLAS=openblas
# test).
comma := ,
# BUILD may name a tree anywhere. Its path is one word, relative within the kit (the compiler's
# dependency files hold it), so that the kit's own path may have spaces in it, at which make would
# cut: what comes before `build` is never in a target.
BUILD := build$(if $(filter-out simgpu,$(BACKEND)),/$(BACKEND))
BUILD := $(BUILD)$(if $(COMPILED_IN),/sanitize-$(subst $(comma),-,$(COMPILED_IN)))
BUILD := $(BUILD)$(if $(filter command environment,$(firstword $(origin BLAS))),/$(BLAS))
within = $(patsubst |%,%,$(subst |$(CURDIR)/,,|$(1)))
override BUILD := $(call within,$(abspath $(call within,$(BUILD))))
ifneq ($(word 2,$(BUILD)),)
$(error BUILD=$(BUILD) has a space in it, which only the path of the kit itself may have)
endif

# What things were made with (made_with.mk).
MADE_WITH := $(BUILD)/made_with

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
$(error make cannot use the folder that IMPL names)
endif
endif
# A folder that make cannot name is linked to in the build tree; a file there has its real name.
IMPL_NAMES := $(patsubst %/src,@%/names,$(filter $(BUILD)/impl/%/src,$(IMPL_DIR)))

# How recipes call make again: as many jobs as there are processors, where whoever called make has
# not said how many. Only for recipes: while make reads this file, its MAKEFLAGS has no -j yet (up
# to 4.3).
JOBS = --no-print-directory \
    $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(or $(shell nproc 2>/dev/null),2))

# V=1 shows whole command lines; `make -s` says nothing.
Q     := $(if $(V),,@)
QUIET := $(or $(V),$(findstring s,$(firstword -$(MAKEFLAGS))))
# What a recipe begins with: the folder of what it makes, and a line that says so. Where that is
# there, or nothing is to be said, neither starts a program: two for each object take 0.3 s
# together.
FOLDER = $(if $(wildcard $(@D)),,@mkdir -p $(@D))
say    = $(if $(QUIET),,@printf '  %-5s %s\n' $(1) $(2))

# A name on the command line that no makefile reads is misspelt, and would change nothing. (The
# grader's own are known: it calls make a dozen times.)
ifeq ($(MAKELEVEL),0)
GIVEN_SETTINGS := $(filter-out IMPL BACKEND BUILD OWN GIVEN_IS_MADE NO_INSTALL, \
    $(foreach name,$(filter-out -%,$(.VARIABLES)), \
        $(if $(filter command,$(firstword $(origin $(name)))),$(name))))
WRONG_SETTING  := $(if $(GIVEN_SETTINGS),$(shell sh grader/check_settings.sh '$(PYTHON)' \
    $(foreach name,$(GIVEN_SETTINGS),$(call quote,$(name)))))
$(if $(WRONG_SETTING),$(error $(WRONG_SETTING)))
endif
