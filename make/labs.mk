# The labs (labs/N_name), whose reference files and the six tasks' are one library. A lab's own
# suite is linked with the file of whoever is graded, and with the reference of everything else.
#
# A file of a lab is reference.c and skeleton.c, and its object has the lab's name; the second file
# of a lab that has two is reference_OTHER.c and skeleton_OTHER.c, and its object is OTHER.o. Its
# suite is tests.c and, where there are any, tests_OTHER.c.

LAB_FOLDERS := $(patsubst %/lab.json,%,$(sort $(wildcard labs/*/lab.json)))
digits      := 1 2 3 4 5 6 7 8 9
lab_name     = $(strip $(foreach n,$(digits),$(patsubst labs/$(n)_%,%,$(filter labs/$(n)_%,$(1)))))
# Of a skeleton's path: what its object is called, and the file in the folder of that sort.
lab_object   = $(strip $(if $(filter %/skeleton.c,$(1)), \
                   $(call lab_name,$(patsubst %/,%,$(dir $(1)))), \
                   $(patsubst skeleton_%.c,%,$(notdir $(1)))))
lab_skeletons= $(sort $(wildcard $(1)/skeleton.c $(1)/skeleton_*.c))
lab_objects  = $(foreach file,$(call lab_skeletons,$(1)),$(call lab_object,$(file)))

LABS       := $(foreach folder,$(LAB_FOLDERS),$(call lab_objects,$(folder)))
LAB_OBJ    := $(LABS:%=$(BUILD)/impl/reference/%.o)
LAB_SUITES := \
    $(foreach folder,$(LAB_FOLDERS),$(BUILD)/impl/$(IMPL_KEY)/suite/$(call lab_name,$(folder)))

# $(1): what the object is called, $(2): its source, $(3): reference or skeleton, $(4): more
# options. As in rules.mk, whose pattern makes the object of the text.
define lab_text
$(BUILD)/impl/$(3)/$(1).i: $(2) $(MADE_WITH)/c $(MADE_WITH)/task
	$$(FOLDER)
	$$(Q)$$(PYTHON) -S grader/expand.py $$@ -- $$(CC) $$(BASE) $$(MISTAKES) $(4) $$(CFLAGS) \
	    $$(INCLUDES) -c $$< -o $$(@:.i=.o)
endef
# $(1): a lab's folder.
define lab_rules
$(if $(wildcard $(1)/reference.c),$(foreach file,$(call lab_skeletons,$(1)),$(eval \
    $(call lab_text,$(call lab_object,$(file)),$(subst /skeleton,/reference,$(file)),reference,))))
$(if $(filter skeleton,$(IMPL_KEY)),$(foreach file,$(call lab_skeletons,$(1)),$(eval \
    $(call lab_text,$(call lab_object,$(file)),$(file),skeleton,$(HALF_DONE)))))
$(BUILD)/impl/$(IMPL_KEY)/suite/$(call lab_name,$(1)): \
    $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)/tests.c $(1)/tests_*.c)) \
        $(patsubst %,$(BUILD)/impl/$(IMPL_KEY)/%.o,$(call lab_objects,$(1))) \
        $(REFERENCE_OBJ) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(call lab_objects,$(1)),$(LABS))) \
        $(HARNESS_LIB) $(LIBS) $(MADE_WITH)/link
	$$(call link,$$(call objects_of,$$^),-lcmocka)
endef
$(foreach folder,$(LAB_FOLDERS),$(eval $(call lab_rules,$(folder))))

$(BUILD)/obj/labs/%.o: DEFS = $(SUPPORT_DEFS)
