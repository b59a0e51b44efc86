# BACKEND=emulated-cuda: the same as BACKEND=cuda, with simgpu in place of NVIDIA's libraries and
# every thread of a CUDA kernel run on the CPU (tests/emulator): for changing the cuda part without
# a GPU. No archive has this file.
##   BACKEND=emulated-cuda
##                    the code of BACKEND=cuda on simulated GPUs, in
##                    build/emulated-cuda

ifeq ($(BACKEND),emulated-cuda)
# A reset of the interposer's log resets simgpu's own too: logs_agree.c compares the two. What a
# program calls its code, streams and elements both are told.
WRAPPED      += gpulog_reset_peak gpulog_reset_traffic gpulog_own_code gpulog_name_stream \
    gpulog_name_elements
LINK         := $(CXX) $(filter-out -std=gnu11,$(BASE)) $(QUICK_LINK) $(WRAPPED:%=-Wl,--wrap=%)
LDLIBS       := $(SYSTEM_LIBS)
KERNELS      += $(BUILD)/obj/tests/emulator/emulator.o
GPU_LIBS     := $(BUILD)/obj/tests/support/emulated_cuda/logs_agree.o $(BUILD)/lib/libgpulog.a \
    $(BUILD)/lib/simgpu.o
FOLDERS      += tests/emulator

# A GPU faults on a misaligned vector load, which this machine's processor may let pass: kernels are
# checked for it. The threads of a block are fibers here, which ThreadSanitizer does not know of.
SANITIZERS := $(filter-out thread,$(COMPILED_IN))
ALIGNED  := $(if $(SANITIZERS),,-fsanitize=alignment -fsanitize-undefined-trap-on-error)
EMULATED := -std=c++17 -O2 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -pthread \
            $(SANITIZERS:%=-fsanitize=% -fno-sanitize-recover=all) \
            -ffp-contract=off -fno-math-errno \
            -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas $(if $(WERROR),-Werror) \
            -DEMULATED -Itests/emulator/include -Itests/emulator
$(BUILD)/obj/%.o: %.cu $(MADE_WITH)/kernels
	$(FOLDER)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(EMULATED) $(ALIGNED) -DEMULATED_SHARED=emulated_shared_$(notdir $*) $(INCLUDES) -MMD \
	    -MP -x c++ -c $< -o $@
$(BUILD)/obj/%.o: %.cpp $(MADE_WITH)/kernels
	$(FOLDER)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(EMULATED) $(INCLUDES) -MMD -MP -c $< -o $@
endif
