# ShardLab. `make help` lists the targets; README.md says what they are for.
#
# The rules are in make/*.mk, a subject each. A line "## make name   text" in one of them is what
# `make help` prints, in 80 columns. A file that is not in every archive (grader/course/release.py)
# is included where it is there: $(wildcard …) of a plain name is the name, or nothing.

# Without make's own rules (for Fortran, RCS and so on), which it would try for each of the 800
# files that the compiler has named: a tenth of a second for every call.
MAKEFLAGS += -r

.DEFAULT_GOAL := help
.SECONDARY:
.DELETE_ON_ERROR:

# What is asked for, what this machine has, and what is therefore compiled and linked.
include make/options.mk
include make/setup.mk
include make/flags.mk
include make/backends.mk
include $(wildcard make/emulated_cuda.mk)
include make/objects.mk
include make/tasks.mk

# What people run.
include make/grade.mk
include make/demo.mk
include make/build.mk
include make/install.mk
include $(wildcard make/release.mk)
include $(wildcard make/site.mk)
include $(wildcard make/devtools.mk)

# How it is made. The last one comes last: it writes down the variables of all others.
include make/rules.mk
include make/programs.mk
include make/made_with.mk

# The parts that `make help` shows, in its order: what students run, what others run, variables.
HELP_FILES := $(wildcard \
    $(patsubst %,make/%.mk,grade demo build install setup release site devtools) Makefile \
    $(patsubst %,make/%.mk,backends emulated_cuda options))

## make help          this list
##
## Variables, for every target:
.PHONY: help
help:
	@awk '/^##( |$$)/ { print substr($$0, 4) }' $(HELP_FILES)
