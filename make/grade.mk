# What a student runs all day. What is asked for: a task, or a lab.
ASKED = $(if $(TASK),--task '$(TASK)') $(if $(LAB),--lab '$(LAB)')
.PHONY: grade hint watch gdb quiz challenge

## make grade         score skeleton/, or the six files of IMPL=DIR; TASK=2 or
##                    TASK=flat_param for one task, LAB=1 or LAB=strategies for
##                    a lab, LAB=all for all labs; LIMIT=60 for the seconds a
##                    test may take; NO_INSTALL=1 installs nothing; HTML=1 writes
##                    a page with plots to build/grade/results.html, HTML=FILE
##                    elsewhere
grade: deps
	@$(PYTHON) grader/grade.py --impl $(call quote,$(IMPL_GIVEN)) $(ASKED) \
	    $(if $(LIMIT),--limit '$(LIMIT)') \
	    --build '$(BUILD)' --backend $(BACKEND) \
	    $(if $(HTML),--html '$(if $(filter 1,$(HTML)),$(BUILD)/grade/results.html,$(HTML))') \
	    --out '$(BUILD)/grade/results.json'

## make hint          a hint for the first thing that is missing or wrong; each
##                    further run gives one more (TASK=2 for one task, LAB=1 for a
##                    lab, TEST=name for a test, LEVEL=2 for the hints up to level
##                    2)
hint: deps
	@$(PYTHON) grader/hint.py --impl $(call quote,$(IMPL_GIVEN)) $(ASKED) \
	    $(if $(TEST),--test '$(TEST)') \
	    $(if $(LEVEL),--level '$(LEVEL)') $(if $(LIMIT),--limit '$(LIMIT)') --build '$(BUILD)' \
	    --backend $(BACKEND)

## make watch         grade again whenever a file is saved, and say what has
##                    changed; TASK=2 for one task, LAB=1 for a lab
watch: deps
	@$(PYTHON) grader/watch.py --impl $(call quote,$(IMPL_GIVEN)) $(ASKED) \
	    $(if $(LIMIT),--limit '$(LIMIT)') \
	    --build '$(BUILD)' --backend $(BACKEND)

## make gdb           gdb on one rank of a test, TEST=name, compiled with -O0;
##                    RANK=1 for a rank other than 0, WORLD=2 for a world of 2
##                    ranks, BREAK=function to stop in that function first, WAIT=1
##                    to wait for a gdb that is started elsewhere
gdb: deps
	@$(PYTHON) grader/debug.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' \
	    --test '$(TEST)' $(if $(WORLD),--world '$(WORLD)') $(if $(RANK),--rank '$(RANK)') \
	    $(if $(BREAK),--break '$(BREAK)') $(if $(WAIT),--wait)

## make quiz          writes questions to skeleton/answers.txt, with numbers drawn
##                    for you: what a step keeps, sends and takes. Write your
##                    answers there; the same command marks them. TASK=3 for one
##                    task's, LAB=3 for a lab's; ID=name draws the numbers from
##                    the name by which your course knows you
quiz: deps
	@$(PYTHON) grader/quiz.py --impl $(call quote,$(IMPL_GIVEN)) $(if $(TASK),--task '$(TASK)') \
	    $(if $(LAB),--lab '$(LAB)') $(if $(ID),--id $(call quote,$(ID))) \
	    --build '$(BUILD)' --out '$(BUILD)/grade/quiz.json'

## make challenge     the fastest step of a model of 7 billion parameters on 64
##                    GPUs: plans it with your files and the settings in
##                    skeleton/plan.txt, which the first call writes
challenge: deps
	@$(PYTHON) grader/challenge.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' \
	    --out '$(BUILD)/grade/challenge.json'
