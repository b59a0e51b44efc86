# The backends: what a program is linked with, and which kernels.
#
# simgpu     the simulated GPUs of simgpu/, and the kernels of lib/kernels/*.c
# cuda       the CUDA toolkit, cuBLAS and NCCL; lib/kernels/cuda/*.cu compiled by nvcc; the
#            interposer of gpulog/interpose in front of every call it has a __wrap_ function for
# emulated-cuda: make/emulated_cuda.mk
#
##   BACKEND=cuda     real GPUs, in build/cuda; finds the toolkit by CUDA_HOME,
##                    NCCL by NCCL_HOME; CUDA_ARCH=90 for another machine's GPU;
##                    SHARE_GPU=1 lets ranks share one; TF32=1 for faster products

# -ldl, -lrt, -lpthread: glibc before 2.34 has them apart.
SYSTEM_LIBS := $(strip $(LIBRARY_FOLDERS) $(BLAS_LIBS) -ldw -lgomp -lm -ldl -lrt -lpthread)

# Whether a shared library lacks something says the loader: to look for it takes a quarter of a
# link.
QUICK_LINK := -Wl,--allow-shlib-undefined

ifeq ($(BACKEND),simgpu)
BACKEND_DEFS :=
LINK         := $(CC) $(BASE) $(QUICK_LINK)
LDLIBS       := $(SYSTEM_LIBS)
KERNELS      := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard lib/kernels/*.c))
GPU_LIBS     := $(BUILD)/lib/libsimgpu.a
HALF         := simgpu
FOLDERS      := simgpu/tests simgpu/tests/clock gpulog/tests $(addprefix tests/,nn launch fsdp \
    checkpoint labs harness)
else
# What a test file may ask for: BACKEND_CUDA, the code is that of real GPUs; EMULATED_CUDA, and it
# runs on simgpu.
BACKEND_DEFS := -DBACKEND_CUDA $(if $(filter emulated-cuda,$(BACKEND)),-DEMULATED_CUDA)
KERNELS      := $(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard lib/kernels/cuda/*.cu))
HALF         := cuda
FOLDERS      := gpulog/tests $(addprefix tests/,cuda nn launch fsdp checkpoint labs harness)
endif
ifeq ($(BACKEND),cuda)
# nvcc hands the objects to the host's linker; its own copy of the CUDA runtime is left out, because
# calls from inside of a static copy would pass through the interposer too.
LINK         := $(NVCC) -ccbin $(CXX) -cudart none $(CUDA_ARCH_FLAG) -Xcompiler -pthread \
                $(if $(COMPILED_IN), \
                    -Xcompiler -fsanitize=$(subst $(comma),\$(comma),$(COMPILED_IN))) \
                $(WRAPPED:%=-Xlinker --wrap=%)
LDLIBS       := $(CUDA_LIB_FILES:%=-Xlinker %) $(CUDA_LIB_FOLDERS:%=-Xlinker -rpath=%) -ldw -lm \
    -ldl -lrt -lpthread
GPU_LIBS     := $(BUILD)/lib/libgpulog.a
endif

# Memory that the tests fill with NaNs would count as initialised.
ifeq ($(WATCH),initcheck)
export GPULOG_POISON := 0
endif

# CUDA C. An element of an elementwise kernel has the same bits in every loop and on every backend:
# no multiply-add is fused. The kernels wait for memory, not for arithmetic, so that costs nothing.
ifeq ($(BACKEND),cuda)
NVCC_FLAGS := -std=c++17 -O3 -lineinfo $(CUDA_ARCH_FLAG) -fmad=false -ccbin $(CXX) \
              -Xcompiler -g,-fPIC,-fno-omit-frame-pointer,-fno-optimize-sibling-calls \
              -Xcompiler -Wall,-Wextra,-Wno-unused-parameter \
              $(if $(WERROR),-Werror all-warnings -Xcompiler=-Werror)
$(BUILD)/obj/%.o: %.cu $(MADE_WITH)/kernels
	$(FOLDER)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(INCLUDES) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
endif
