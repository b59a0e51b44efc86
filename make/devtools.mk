# What developers of the kit run: its own tests, and tests of those tests. No archive has this file.
.PHONY: test test-all check-model check-clock gpt2-medium mutants mutation claims alternatives flakiness

## make test                 build and run every test of the kit itself
test: deps
	@$(MAKE) $(JOBS) IMPL=reference own-suites suites example-programs
	@$(if $(filter simgpu,$(BACKEND)),,$(DEVICES))
	@$(PYTHON) grader/devtools/run_tests.py --build '$(BUILD)' $(TEST_FLAGS) $(OWN_SUITES) \
	    $(TASKS:%=$(BUILD)/impl/reference/suite/%) $(BUILD)/impl/reference/suite/together \
	    $(if $(SANITIZE)$(filter-out simgpu,$(BACKEND)),,$(GRADER_TESTS))

# The longest first, so that none is left over at the end.
GRADER_TESTS := $(patsubst %,tests/grader/test_%.py,release attacks grade flakiness demo real_suites watch hint)
GRADER_TESTS := $(wildcard $(GRADER_TESTS)) $(filter-out $(GRADER_TESTS),$(wildcard tests/grader/test_*.py))

# On real GPUs one suite at a time, because each fills them, and with time; perhaps under a tool.
ifeq ($(BACKEND),cuda)
TEST_FLAGS := --jobs 1 --limit 1800 $(if $(WATCH),--prefix 'compute-sanitizer --tool $(WATCH) --target-processes all --error-exitcode 1 --kill no --print-limit 20')
endif

## make test-all             make test, and then every command that README and handouts print and that takes longer,
##                           such as all mutants
test-all: test
	@$(PYTHON) -B grader/devtools/documented.py --long

## make mutants              grade 316 wrong solutions, each of which must lose the test it is meant to lose (5 minutes;
##                           TASK=2 for one task's; SAMPLE=100:WORD for so many, drawn by the word)
mutants: deps
	@$(PYTHON) -B grader/devtools/mutants.py --build '$(BUILD)' $(if $(TASK),--task '$(TASK)') \
	    $(if $(SAMPLE),--sample '$(SAMPLE)')

## make mutation             change every line of the reference by machine and run the tests on each (hours; TASK=2;
##                           SAMPLE=50 for so many, drawn by SEED=8812; RESUME=1 goes on where a run was stopped,
##                           RESUME=kills after the tests have changed; ONLY=ID for one)
mutation: deps
	@$(PYTHON) -B grader/devtools/mutation.py --build '$(BUILD)' $(if $(TASK),--task '$(TASK)') \
	    $(if $(SAMPLE),--sample '$(SAMPLE)') $(if $(RESUME),--resume '$(RESUME)') $(if $(ONLY),--only '$(ONLY)')

## make claims               what include/fsdp.h and the handouts claim, with the tests that prove each claim and the
##                           wrong solutions that break it (TASK=2 for one task's)
claims:
	@$(PYTHON) -B grader/devtools/claims.py $(if $(TASK),--task '$(TASK)')

## make alternatives         grade right solutions that are unlike the reference: all must score 100
alternatives: deps
	@$(PYTHON) -B grader/devtools/mutants.py --alternatives --build '$(BUILD)'

## make flakiness            grade the reference and a half-done solution 50 times each while the machine is busy
flakiness: deps
	@$(PYTHON) -B grader/devtools/flakiness.py --build '$(BUILD)'

## make check-model          the modelled all-reduce of 8 GPUs against published sweeps, to which it was fitted
check-model: deps
	@$(MAKE) $(JOBS) $(BUILD)/bench/nccl_sweep
	@$(BUILD)/bench/nccl_sweep a100x8 bench/published/nccl_a100x8.csv h200x8 bench/published/nccl_h200x8.csv

## make gpt2-medium          one step of GPT-2 medium (355 M parameters) on 8 simulated GPUs, in 12 GiB
gpt2-medium: deps
	@$(MAKE) $(JOBS) $(BUILD)/tests/large/gpt2_medium
	@$(BUILD)/tests/large/gpt2_medium

## make check-clock          simgpu's clock against a simulator that shares no code with it, on 10,000 random programs
##                           (SEED=8812)
check-clock: deps
	@$(MAKE) $(JOBS) $(BUILD)/tests/simgpu/time
	@TIME_PROGRAMS=10000 $(BUILD)/tests/simgpu/time --only test_random_programs
