# Everything, or only simgpu, without running anything.
.PHONY: build simgpu suites own-suites large-suites

## make build         build everything, run nothing
build: deps
	@$(PLAIN) $(MAKE) $(JOBS) own-suites suites large-suites
	@$(MAKE) $(JOBS) IMPL=reference suites
	@$(MAKE) --no-print-directory examples

# Messages about a student's files are text, whatever is in them.
PLAIN = $(PYTHON) grader/plain.py

## make simgpu        only the simulated GPU: build/lib/libsimgpu.a and
##                    build/lib/pkgconfig/simgpu.pc
simgpu: deps
	@$(MAKE) $(JOBS) $(BUILD)/lib/libsimgpu.a $(SIMGPU_PC)

# Parts of the above. Where nothing is to be done, make says nothing of it.
own-suites: $(OWN_SUITES)
	@:
suites: $(SUITES:%=$(BUILD)/impl/$(IMPL_KEY)/suite/%)
	@:
SIMGPU_ALONE := $(if $(filter simgpu,$(BACKEND)),,tests/large/soak.c)
large-suites: $(patsubst tests/%.c,$(BUILD)/tests/%,$(filter-out $(SIMGPU_ALONE), \
                  $(wildcard tests/large/*.c)))
	@:

# What a program from elsewhere needs: cc -g prog.c $(pkg-config --cflags --libs simgpu). pkg-config
# writes a path with spaces in it for a shell that reads it once more: eval "cc -g prog.c $(…)". Its
# version 0.29 begins a comment at a # behind a space, unless it is quoted.
backslashed = $(subst $(1),\$(1),$(2))
PC_ROOT := $(call backslashed,\,$(CURDIR))
$(foreach odd,' " ( ) & ; < > | * ? [ ] `, \
    $(eval PC_ROOT := $$(call backslashed,$$(odd),$$(PC_ROOT))))
PC_ROOT := $(subst $$,$$$$,$(subst $() ,\ ,$(subst \#,"\\\#",$(PC_ROOT))))
KIT_VERSION := $(firstword $(file <VERSION))
define PC_TEXT
Name: simgpu
Description: CUDA runtime, NCCL and cuBLAS, simulated on the CPU
Version: $(KIT_VERSION)
Cflags: -I$(PC_ROOT)/simgpu/include -I$(PC_ROOT)/gpulog/include
Libs: -L$(if $(filter /%,$(BUILD)),,$(PC_ROOT)/)$(BUILD)/lib -lsimgpu $(LDLIBS)
endef
