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

## make hint          a hint for the first thing that is missing or wrong; again:
##                    one more (TASK=2 for one task, LAB=1 for a lab, TEST=name
##                    for a test, LEVEL=2 for the hints up to a level)
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
##                    ranks, BREAK=function for where it stops first, WAIT=1 to
##                    wait for a gdb that is started elsewhere
gdb: deps
	@$(PYTHON) grader/debug.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' \
	    --test '$(TEST)' $(if $(WORLD),--world '$(WORLD)') $(if $(RANK),--rank '$(RANK)') \
	    $(if $(BREAK),--break '$(BREAK)') $(if $(WAIT),--wait)

## make quiz          questions with numbers of your own: what a step keeps, sends
##                    and takes. They come to skeleton/answers.txt, where your
##                    answers go; the same command marks them. TASK=3 for one
##                    task's, LAB=3 for a lab's, ID=name for the numbers that your
##                    course has of you
quiz: deps
	@$(PYTHON) grader/quiz.py --impl $(call quote,$(IMPL_GIVEN)) $(if $(TASK),--task '$(TASK)') \
	    $(if $(LAB),--lab '$(LAB)') $(if $(ID),--id $(call quote,$(ID))) \
	    --build '$(BUILD)' --out '$(BUILD)/grade/quiz.json'

## make challenge     the fastest step of 7 billion parameters on 64 GPUs: plans
##                    it with your files and the settings of skeleton/plan.txt,
##                    which the first call makes
challenge: deps
	@$(PYTHON) grader/challenge.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' \
	    --out '$(BUILD)/grade/challenge.json'
