# What this machine has, and what is missing: grader/setup.sh installs and writes down (config.mk),
# and with BACKEND=cuda grader/find_cuda.sh finds the toolkit (cuda.mk). Nothing is looked for where
# only help or the like is asked for.
.PHONY: deps clean compile_commands.json

## make deps          install what is missing, saying what and why (part of every
##                    target above)
deps:
	@$(SETUP)
	@$(if $(wildcard compile_commands.json),,$(if $(filter build,$(BUILD)),$(FOR_CLANGD)))

## make compile_commands.json  for clangd; the first build writes it, this again
compile_commands.json: deps
	@$(MAKE) --no-print-directory -Bn V=1 own-suites suites example-programs | \
	    $(PYTHON) grader/compile_commands.py $@
# The same with skeleton/, in a third of a second, and no reason to fail.
FOR_CLANGD = env -u MAKEFLAGS -u MAKELEVEL $(MAKE) --no-print-directory -Bn V=1 CC='$(CC)' \
    own-suites suites example-programs 2>/dev/null | \
    $(PYTHON) grader/compile_commands.py compile_commands.json 2>/dev/null || :

## make clean         remove build/
clean:
	rm -rf build compile_commands.json

ifeq ($(BACKEND),cuda)
ifneq ($(filter-out help clean skeleton deps,$(or $(MAKECMDGOALS),help)),)
CUDA_MISSING := $(shell sh grader/find_cuda.sh '$(BUILD)/cuda.mk')
ifneq ($(CUDA_MISSING),)
$(error $(CUDA_MISSING))
endif
include $(BUILD)/cuda.mk
endif
endif

# What this machine has, as grader/setup.sh found it and says. It is made here where it is not there
# yet; `deps` sees whether it still holds. (A rule for a file that is included would let make add
# that there is no such file.)
SETUP := CONFIG='$(BUILD)/config.mk' BACKEND='$(BACKEND)' sh grader/setup.sh
ifneq ($(filter-out help clean skeleton deps,$(or $(MAKECMDGOALS),help)),)
ifeq ($(wildcard $(BUILD)/config.mk),)
# Up to make 4.3 only recipes have the command line's variables in their environment.
ON_LINE := $(foreach name,CC CXX CFLAGS LDFLAGS PYTHON BLAS NO_INSTALL,$(if \
    $(filter command,$(firstword $(origin $(name)))),$(name)=$(call quote,$($(name)))))
ifneq ($(shell $(ON_LINE) $(SETUP) >&2 || echo failed),)
$(error nothing was built: see above what is missing and what to do)
endif
endif
include $(BUILD)/config.mk
endif
