# What developers of the kit run: its own tests, and tests of those tests. No archive has this file.
.PHONY: test test-simgpu test-all compare-pytorch pairs check-pytorch-map check-aarch64 \
    check-model check-trace check-clock bench bench-programs gpt2-medium mutants \
    mutation claims lint alternatives flakiness long-tests test-programs soak

## make test          build the kit and run those of its tests that every change
##                    needs (tests/tiers.txt), of the slow ones a sample
##                    (SEED=8812); DRAW=all runs all
test: test-programs
	@$(RUN_TESTS) --tier test $(TEST_FLAGS) $(SUITES_TO_RUN)

## make test-simgpu   of these only the tests of simgpu and of its log
test-simgpu: deps
	@$(MAKE) $(JOBS) $(SIMGPU_SUITES)
	@$(RUN_TESTS) --tier test $(TEST_FLAGS) $(SIMGPU_SUITES)
SIMGPU_SUITES = $(filter $(BUILD)/simgpu/% $(BUILD)/gpulog/%,$(OWN_SUITES))

# Of the suites, those that only test-all runs.
long-tests: test-programs
	@$(RUN_TESTS) --tier long --limit 1800 $(TEST_FLAGS) $(SUITES_TO_RUN)

test-programs: deps
	@$(MAKE) $(JOBS) IMPL=reference own-suites suites example-programs \
	    $(if $(filter simgpu,$(BACKEND)),$(call objects,tests/trace/*.c))
	@$(if $(filter simgpu,$(BACKEND)),,$(DEVICES))

RUN_TESTS     = $(PYTHON) grader/devtools/run_tests.py --build '$(BUILD)'
# Those in Python are of one backend, and not compiled.
PYTHON_TESTS  = $(if $(SANITIZE)$(filter-out simgpu,$(BACKEND)),,$(1))
SUITES_TO_RUN = $(call PYTHON_TESTS,$(LONG_GRADER_TESTS)) $(OWN_SUITES) \
                $(SUITES:%=$(BUILD)/impl/reference/suite/%) \
                $(call PYTHON_TESTS,$(filter-out $(LONG_GRADER_TESTS),$(wildcard \
                tests/grader/test_*.py)))

# The longest come first, so that none is left over at the end.
LONG_GRADER_TESTS := $(wildcard $(patsubst %,tests/grader/test_%.py,release grade quiz demo build \
                       attacks real_suites timeouts delivered watch pace plan_says mutants setup \
                       report trace hint))

# On real GPUs one suite at a time, because each fills them, and with time; perhaps under a tool.
ifeq ($(BACKEND),cuda)
TEST_FLAGS := --jobs 1 --limit 1800 $(if $(WATCH),--prefix 'compute-sanitizer --tool $(WATCH) \
    --target-processes all --error-exitcode 1 --print-limit 20')
endif

## make test-all      all tests, and the slow commands of README and handouts,
##                    such as all mutants; adds a line with the result to
##                    bench/results/test-all.md; STEP='long tests' for one step
test-all: deps
	@$(PYTHON) -B grader/devtools/test_all.py $(if $(STEP),--step $(call quote,$(STEP)))

## make mutants       grade some 870 wrong solutions: each must fail the intended
##                    test (5 minutes; TASK=2 for one task's, LAB=1 for a lab's;
##                    SAMPLE=100:WORD for 100 of them, drawn with WORD as the
##                    seed); SCREENS=1 also prints a table of what a student sees
##                    first for each, SCREENS=machine for mistakes made by machine
SOLUTIONS = $(PYTHON) -B grader/devtools/mutants.py --build '$(BUILD)' \
            $(if $(TASK),--task '$(TASK)') $(if $(LAB),--lab '$(LAB)') \
            $(if $(SAMPLE),--sample '$(SAMPLE)')
mutants: deps
	@$(SOLUTIONS) $(if $(SCREENS),--messages) $(if $(filter machine,$(SCREENS)),--machine)

## make mutation      change every line of the reference by machine and run the
##                    tests on each (an hour; TASK=2; SAMPLE=50 for 50 of them,
##                    drawn by SEED=8812, WITHIN=60 to begin none after 60
##                    seconds; RESUME=1 continues a run that was stopped,
##                    RESUME=kills does so after the tests have changed; ONLY=ID
##                    for one)
mutation: deps
	@$(PYTHON) -B grader/devtools/mutation.py --build '$(BUILD)' $(if $(TASK),--task '$(TASK)') \
	    $(if $(SAMPLE),--sample '$(SAMPLE)') $(if $(WITHIN),--within '$(WITHIN)') \
	    $(if $(RESUME),--resume '$(RESUME)') $(if $(ONLY),--only '$(ONLY)')

## make claims        what include/fsdp.h and the handouts claim, with the tests
##                    that prove each claim and the wrong solutions that break it
##                    (TASK=2 for one task's)
claims:
	@$(PYTHON) -B grader/devtools/claims.py $(if $(TASK),--task '$(TASK)')

## make lint          format and columns of all code, shellcheck, pyflakes
lint:
	@$(PYTHON) -B grader/devtools/lint.py

## make alternatives  grade right solutions that differ from the reference: all
##                    must score 100 (a minute; TASK, LAB and SAMPLE as above)
alternatives: deps
	@$(SOLUTIONS) --alternatives

## make flakiness     grade the reference and a half-done solution 50 times each
##                    while the machine is busy
flakiness: deps
	@$(PYTHON) -B grader/devtools/flakiness.py --build '$(BUILD)'

## make check-model   compare the models with published figures: all-reduces of 8
##                    GPUs, ZeRO's table, step times and memory of FSDP runs; and
##                    measure the time and memory that a plan takes here
check-model: deps
	@$(MAKE) $(JOBS) IMPL=reference $(BUILD)/bench/nccl_sweep $(BUILD)/impl/reference/bin/plan
	@$(BUILD)/bench/nccl_sweep a100x8 bench/published/nccl_a100x8.csv h200x8 \
	    bench/published/nccl_h200x8.csv
	@$(PYTHON) -B grader/devtools/check_model.py --plan $(BUILD)/impl/reference/bin/plan

## make check-trace   a trace of simgpu's, read by the protobuf classes of PyPI's
##                    perfetto, and by SQL where TRACE_PROCESSOR=path names a
##                    trace_processor_shell
check-trace: deps
	@$(MAKE) $(JOBS) IMPL=reference $(BUILD)/impl/reference/trace/steps
	@$(PYTHON) -B grader/devtools/check_trace.py --build '$(BUILD)' \
	    --program '$(BUILD)/impl/reference/trace/steps'

## make compare-pytorch
##                    train_gpt2 with IMPL's files and PyTorch's FSDP2: a
##                    transformers model loaded and exported, the same training in
##                    both, a checkpoint converted there and back. MODEL=NAME for
##                    one model (tests/pytorch). Installs torch from PyPI into
##                    build/ first (about 3 GB)
compare-pytorch: deps
	@$(MAKE) $(JOBS) $(LAUNCH) example-programs
	@$(PYTHON) -B grader/devtools/compare_pytorch.py --build '$(BUILD)' \
	    --program '$(BUILD)/impl/$(IMPL_KEY)/bin/train_gpt2' $(if $(MODEL),--model '$(MODEL)')

## make bench         what a training step, collectives and starting up cost on
##                    this machine, as bench/results/DATE-bench.md (5 minutes;
##                    BENCH=full has GPT-2 124M and the kit's loops too, OUT=DIR
##                    for another folder, ROUNDS=N more or fewer than five
##                    rounds)
BENCH  ?= quick
ROUNDS ?=
BENCH_RUN = $(PYTHON) -B grader/devtools/bench.py --build '$(BUILD)' \
    --level $(call quote,$(BENCH)) --rounds $(call quote,$(ROUNDS)) \
    $(if $(OUT),--out $(call quote,$(OUT)))
bench: deps
	$(if $(filter simgpu,$(BACKEND)),, \
	    $(error make bench measures simgpu: it is not for BACKEND=$(BACKEND)))
	@$(BENCH_RUN) --check
	@$(MAKE) $(JOBS) IMPL=reference bench-programs
	@$(BENCH_RUN)

bench-programs: $(LAUNCH) $(addprefix $(BUILD)/bench/,train_step products collectives)
	@:

## make pairs         the labs' options in combination, any three values, each
##                    against training without FSDP; and a table of pairs
##                    (minutes; COLUMNS=160)
pairs: deps
	@$(MAKE) $(JOBS) IMPL=reference $(BUILD)/tests/labs/pairs
	@PAIRS_STRENGTH=3 $(BUILD)/tests/labs/pairs

## make check-pytorch-map
##                    the names of handouts/pytorch.md in the source of the PyTorch
##                    that compare-pytorch installs (PYTORCH=PATH: a folder with
##                    torch/ in it, or a wheel)
PYTORCH ?=
check-pytorch-map:
	@$(PYTHON) -B grader/devtools/pytorch_map.py --build '$(BUILD)' \
	    $(if $(PYTORCH),--source $(call quote,$(PYTORCH)))

## make check-aarch64
##                    simgpu and the six tasks on 64-bit ARM: cross-built with
##                    Debian's arm64 packages, run under qemu-user
check-aarch64:
	@grader/devtools/check-aarch64 '$(BUILD)/aarch64'

## make gpt2-medium   one step of GPT-2 medium (355 M parameters) on 8 simulated
##                    GPUs, in 12 GiB
gpt2-medium: deps
	@$(MAKE) $(JOBS) $(BUILD)/tests/large/gpt2_medium
	@$(BUILD)/tests/large/gpt2_medium

## make check-clock   simgpu's clock against a simulator that shares no code with
##                    it, on 10,000 random programs (SEED=8812)
check-clock: deps
	@$(MAKE) $(JOBS) $(BUILD)/simgpu/tests/time
	@TIME_PROGRAMS=10000 $(BUILD)/simgpu/tests/time --only test_random_programs

## make soak          random right programs on 8 ranks for an hour, without a
##                    report, a leak or growth (SOAK_SECONDS=600)
soak: deps
	@$(MAKE) $(JOBS) $(BUILD)/tests/large/soak
	@$(BUILD)/tests/large/soak
