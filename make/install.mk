# simgpu for programs elsewhere, which know nothing of this folder.
.PHONY: install

PREFIX  ?= /usr/local
DESTDIR ?=

## make install PREFIX=DIR
##                    simgpu for programs elsewhere, in DIR (else /usr/local):
##                    library, headers, files for pkg-config and CMake, simgpu(7),
##                    pages; for packages, DESTDIR=DIR is put before PREFIX, and no
##                    installed file contains it
install: deps
	$(if $(filter simgpu,$(BACKEND)),,$(error make install is for simgpu, not for BACKEND=$(BACKEND)))
	@$(MAKE) $(JOBS) $(BUILD)/lib/libsimgpu.a
	@PREFIX=$(call quote,$(value PREFIX)) DESTDIR=$(call quote,$(value DESTDIR)) \
	    LIBRARY='$(BUILD)/lib/libsimgpu.a' LIBS=$(call quote,$(LDLIBS)) \
	    VERSION=$(call quote,$(KIT_VERSION)) sh simgpu/install.sh
