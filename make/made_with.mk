# What objects, libraries and programs are made with (flags, compiler, BLAS, processor, members) is
# written to files of $(MADE_WITH) on which they depend, so a change of it makes them again. A file
# is compared while make reads this page, which costs no process, and written only where it differs,
# so that nothing else is made again.

# What a file holds, as words: make 4.3 sometimes leaves the line break at a file's end.
held = $(strip $(file <$(1)))
same = $(and $(findstring |$(1)|,|$(2)|),$(findstring |$(2)|,|$(1)|))
# $(1): the file, $(2): the variable that it holds.
define holds
$(1): $(if $(call same,$(call held,$(1)),$(strip $($(2)))),,FORCE)
	$$(FOLDER)
	@printf '%s\n' $$(call quote,$$($(2))) >$$@
endef
.PHONY: FORCE
# The same for flags. Objects that were made with warnings as errors are as good without, so that
# only the change to WERROR=1 makes them again: a warning that was let pass must show.
without_strict = $(filter-out -Werror all-warnings -Xcompiler=-Werror,$($(1)))
recorded       = $(strip $(without_strict) $(if $(WERROR),warnings-are-errors))
made_so        = \
    $(if $(call same,$(1),$(2)),yes,$(if $(call same,$(1),$(2) warnings-are-errors),yes))
define holds_flags
$(1): $(if $(filter yes,$(call made_so,$(call held,$(1)),$(call recorded,$(2)))),,FORCE)
	$$(FOLDER)
	@printf '%s\n' $$(call quote,$$(call recorded,$(2))) >$$@
endef

WITH_C       = $(strip $(COMPILER): $(CC) $(BASE) $(LEAN) $(COLD) $(TESTS_OPT) $(CFLAGS) \
    $(ALL_INCLUDES) $(SIMGPU_DEFS) $(COUNTED) $(SUPPORT_DEFS))
WITH_BLAS    = $(strip $(BLAS_DEFS))
WITH_VECTOR  = $(strip $(PROCESSOR): $(VECTOR))
WITH_TASK    = $(strip $(MISTAKES) $(HALF_DONE))
WITH_KERNELS = $(strip $(if $(filter cuda,$(BACKEND)),$(NVCC) $(NVCC_FLAGS),$(CXX) $(EMULATED)) \
    $(INCLUDES))
WITH_LINK    = $(strip $(LINK) $(LDFLAGS) $(KIT_LIBS) $(LDLIBS))

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
$(eval $(call holds,$(MADE_WITH)/libtasks,TASKS_OBJ))
$(eval $(call holds,$(MADE_WITH)/libexamples,EXAMPLES_OBJ))
$(eval $(call holds,$(MADE_WITH)/machines,MACHINES))
$(eval $(call holds,$(OWN_LIST),OWN))
$(eval $(call holds,$(SIMGPU_PC),PC_TEXT))

# What the compiler found that an object depends on; whatever is in it, `make clean` works. These
# 300 files are most of what make does for one object: what makes nothing itself, but calls make
# again, does without; and the grader, which has just made all that is given, sets GIVEN_IS_MADE.
MAKES_NOTHING := help clean skeleton deps grade hint watch demo demo-oom grader-print-key
ifneq ($(filter-out $(MAKES_NOTHING),$(or $(MAKECMDGOALS),help)),)
WITH_D = $(BUILD)/impl/$(IMPL_KEY) $(if $(GIVEN_IS_MADE),,$(BUILD)/obj $(BUILD)/impl/reference)
-include $(shell find $(WITH_D) -name '*.d' 2>/dev/null)
endif
