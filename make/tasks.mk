# The tasks (tasks/N_name) and the labs (labs/N_name): their files and suites, found by their
# folders.
#
# The suite of a folder is tests.c, tests_OTHER.c, rules.c and rules_OTHER.c. It is linked with the
# file of whoever is graded and with the reference of everything else, so that a mistake costs its
# own task. `together` is linked with the student's files of all tasks. hidden.c and
# hidden_together.c are linked in the same ways (grader/course/hidden.py), and may call anything.
#
# A file's object has the file's name. Of a task it is reference/NAME.c and skeleton/NAME.c; of a
# lab reference.c and skeleton.c, whose object has the lab's name, and reference_OTHER.c and
# skeleton_OTHER.c, whose object is OTHER.o.

folders_with = $(patsubst %/$(1),%,$(sort $(wildcard $(2)/*/$(1))))
TASK_FOLDERS := $(call folders_with,task.json,tasks)
LAB_FOLDERS  := $(call folders_with,lab.json,labs)
# A folder's name without its number.
name_of      = $(patsubst $(firstword $(subst _, ,$(notdir $(1))))_%,%,$(notdir $(1)))
# Of a lab's skeleton: what its object is called.
lab_object   = $(strip $(if $(filter %/skeleton.c,$(1)),$(call name_of,$(1:%/skeleton.c=%)), \
                   $(patsubst skeleton_%.c,%,$(notdir $(1)))))
lab_skeletons= $(sort $(wildcard $(1)/skeleton.c $(1)/skeleton_*.c))
lab_objects  = $(foreach file,$(call lab_skeletons,$(1)),$(call lab_object,$(file)))

TASKS := $(foreach folder,$(TASK_FOLDERS),$(call name_of,$(folder)))
LABS  := $(foreach folder,$(LAB_FOLDERS),$(call lab_objects,$(folder)))
REFERENCE_OBJ := $(TASKS:%=$(BUILD)/impl/reference/%.o)
LAB_OBJ       := $(LABS:%=$(BUILD)/impl/reference/%.o)
SUITES := $(TASKS) together $(foreach folder,$(LAB_FOLDERS),$(call name_of,$(folder)))

# $(1): its folder in the build tree, $(2): its name, $(3): its sources, $(4): the student's files,
# $(5): the files it needs, of which the others are the reference's, $(6): libraries.
define suite_rule
$(BUILD)/impl/$(IMPL_KEY)/$(1)/$(2): $(call objects,$(3)) \
        $(patsubst %,$(BUILD)/impl/$(IMPL_KEY)/%.o,$(4)) \
        $(patsubst %,$(BUILD)/impl/reference/%.o,$(filter-out $(4),$(5))) $(6) $(MADE_WITH)/link
	$$(call link,$$(call objects_of,$$^),-lcmocka)
endef
sources_of = $(1)/tests*.c $(1)/rules*.c
ANY_LIBS  := $(HARNESS_LIB) $(LIBS)
ALL       := $(TASKS) $(LABS)
# $(1): a folder, $(2): its name.
define task_suites
$(call suite_rule,suite,$(2),$(call sources_of,$(1)),$(2),$(TASKS),$(SUITE_LIBS))
$(call suite_rule,hidden,$(2),$(1)/hidden.c,$(2),$(TASKS),$(ANY_LIBS))
endef
define lab_suite
$(call suite_rule,suite,$(2),$(call sources_of,$(1)),$(call lab_objects,$(1)),$(ALL),$(ANY_LIBS))
endef
$(foreach folder,$(TASK_FOLDERS),$(eval $(call task_suites,$(folder),$(call name_of,$(folder)))))
$(foreach folder,$(LAB_FOLDERS),$(eval $(call lab_suite,$(folder),$(call name_of,$(folder)))))
$(eval $(call suite_rule,suite,together,tasks/*/together.c,$(TASKS),$(TASKS),$(SUITE_LIBS)))
$(eval $(call suite_rule,hidden,together,tasks/*/hidden_together.c,$(TASKS),$(TASKS),$(ANY_LIBS)))

# $(1): what the object is called, $(2): its source, $(3): reference or skeleton, $(4): more
# options. As in rules.mk, whose pattern makes the object of the text.
define lab_text
$(BUILD)/impl/$(3)/$(1).i: $(2) $(MADE_WITH)/c $(MADE_WITH)/task $(CONFINE)
	$$(FOLDER)
	$$(Q)$$(PYTHON) -S grader/expand.py $$@ $(CONFINE) -- $$(CC) $$(BASE) $$(MISTAKES) $(4) \
	    $$(CFLAGS) $$(INCLUDES) -c $$< -o $$(@:.i=.o)
$(BUILD)/impl/$(3)/$(1).o: OWN_SOURCE = $(2)
endef
# $(1): a lab's folder.
define lab_texts
$(if $(wildcard $(1)/reference.c),$(foreach file,$(call lab_skeletons,$(1)),$(eval \
    $(call lab_text,$(call lab_object,$(file)),$(subst /skeleton,/reference,$(file)),reference,))))
$(if $(filter skeleton,$(IMPL_KEY)),$(foreach file,$(call lab_skeletons,$(1)),$(eval \
    $(call lab_text,$(call lab_object,$(file)),$(file),skeleton,$(HALF_DONE)))))
endef
$(foreach folder,$(LAB_FOLDERS),$(eval $(call lab_texts,$(folder))))
