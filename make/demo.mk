# What FSDP is for, to be seen: demos, examples, and a model of real size.
.PHONY: start start-program demo demo-oom examples example-programs

## make start         the first ten minutes (handouts/0_start.md): a program with
##                    a line missing, examples/missing_wait.c, on 2 GPUs;
##                    START=FILE for a copy of it elsewhere
START ?= examples/missing_wait.c
START_DIR ?= $(BUILD)/start
start: deps
	$(if $(filter simgpu,$(BACKEND)),, \
	    $(error make start shows a report of simgpu: it is not for BACKEND=$(BACKEND)))
	@$(MAKE) $(JOBS) start-program
	@rm -f $(START_DIR)/reports
	@if SIMGPU_REPORT=$(START_DIR)/reports $(LAUNCH) -n 2 $(START_DIR)/missing_wait && \
	    [ ! -s $(START_DIR)/reports ]; then \
	    printf '\n%s\n' \
	        'No report: it is right in each order that a GPU may run it in. Next: make grade'; \
	else \
	    printf '\n%s\n' 'Not right yet: change '$(call quote,$(value START))', then: make start'; \
	fi

# What START names may be another file each time.
start-program: $(LIBS) $(LAUNCH)
	@mkdir -p $(START_DIR)
	$(call say,CC,$(call quote,$(value START)))
	$(Q)$(CC) $(BASE) $(CFLAGS) $(INCLUDES) -c $(call quote,$(value START)) \
	    -o $(START_DIR)/missing_wait.o
	$(Q)$(LINK) $(LDFLAGS) $(START_DIR)/missing_wait.o $(NN_LIB) $(GPU_LIBS) $(KIT_LIBS) $(LDLIBS) \
	    -o $(START_DIR)/missing_wait

## make demo          your six files train a small GPT-2 to add, on 4 GPUs (the
##                    reference replaces a file that is not complete); DATA=file
##                    for a text of yours, RANKS=2 for another number,
##                    IMPL=reference or IMPL=DIR, DEMO_FLAGS='--steps 100 …' for
##                    options of the program; HTML=1 writes a page with one step
##                    in time to build/demo/demo.html, HTML=FILE elsewhere
demo: deps
	@$(DEMO) demo $(if $(HTML),--html '$(if $(filter 1,$(HTML)),$(BUILD)/demo/demo.html,$(HTML))')

## make demo-oom      a model too large for one GPU of 64 MB: alone it fails, with
##                    FSDP it trains
demo-oom: deps
	@$(DEMO) oom

RANKS      ?= 4
DEMO_FLAGS ?=
DEMO        = $(PYTHON) grader/demo.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' \
              --backend $(BACKEND) --ranks='$(RANKS)' $(if $(DATA),--data='$(DATA)') \
              --flags='$(DEMO_FLAGS)'

# The programs of examples/ with the files of IMPL that are complete (OWN), and the reference's
# other ones.
examples: $(LAUNCH) $(DEVICES) $(EXAMPLES_LIB)
	@$(DEMO) examples
example-programs: $(EXAMPLES) $(LAUNCH) $(DEVICES)
	@:

## make tokenizers    Hugging Face's tokenizers from PyPI, in an environment of
##                    its own below build/, for examples/tokenize.py
.PHONY: tokenizers
tokenizers: deps
	@[ -e '$(BUILD)/tokenizers/complete' ] || { $(PYTHON) -m venv '$(BUILD)/tokenizers' && \
	    '$(BUILD)/tokenizers/bin/python' -m pip install -q --disable-pip-version-check \
	    tokenizers==0.23.3 && touch '$(BUILD)/tokenizers/complete'; }
	@echo "'$(BUILD)/tokenizers/bin/python' examples/tokenize.py --help"

## make compare       one small GPT-2 under DDP, ZeRO-1, ZeRO-2, ZeRO-3 and HSDP:
##                    memory, traffic and time side by side (lab 1; RANKS=8);
##                    DTYPE=bf16 REDUCE_DTYPE=float for the types of lab 2;
##                    PREFETCH=2 RECOMPUTE=blocks OFFLOAD=yes STAGES=2
##                    SCHEDULE=1f1b LAYOUT=per_parameter GATHER=fp8 GRAPH=yes
##                    REGROUP=0, as train_gpt2's
.PHONY: compare
COMPARE_SETTINGS := PREFETCH:prefetch RECOMPUTE:recompute OFFLOAD:offload LAYOUT:layout \
    GATHER:gather STAGES:stages SCHEDULE:schedule GRAPH:graph REGROUP:regroup
# Whether a variable was given, by the command or the environment.
is_given = $(filter command environment,$(firstword $(origin $(1))))
# $(1): VARIABLE=option
compare_setting = $(call setting_of,$(firstword $(subst =, ,$(1))),$(lastword $(subst =, ,$(1))))
setting_of = $(if $(call is_given,$(1)),$(call quote,--$(2)=$(value $(1))))
compare: deps
	@$(PYTHON) grader/compare.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' \
	    --backend $(BACKEND) --ranks '$(RANKS)' $(if $(DTYPE),--dtype '$(DTYPE)') \
	    $(if $(REDUCE_DTYPE),--reduce-dtype '$(REDUCE_DTYPE)') \
	    $(foreach pair,$(subst :,=,$(COMPARE_SETTINGS)),$(call compare_setting,$(pair)))

## make plan          what a step would take on GPUs that you do not have, by a
##                    dry run of your files: MODEL=gpt2-xl GPUS=1024
##                    MACHINE=h100x8 BATCH=1024 SEQ=1024 STRATEGY=zero3 DTYPE=bf16
##                    JSON=FILE RECOMPUTE=blocks PREFETCH=2 LAYOUT=per_parameter
##                    STAGES=4 and others (handouts/plan.md); FIT=yes looks for
##                    the fastest strategy, slices, recomputation and
##                    micro-batches that fit; SWEEP=8..4096 draws how it scales to
##                    build/plan/sweep.svg, SVG=FILE elsewhere; CONFIG=FILE is the
##                    config.json of a GPT-2 or a Llama;
##                    COMPARE="strategy=zero2,zero3 recompute=no,blocks" prints a
##                    table
.PHONY: plan
PLAN_SETTINGS := MODEL CONFIG GPUS MACHINE BATCH SEQ STRATEGY DTYPE REDUCE_DTYPE REPLICAS \
    ACCUMULATE ATTENTION CLIP LAYERS HEADS DIM VOCAB KV_HEADS HIDDEN RESHARD_RANKS REDUCE \
    RECOMPUTE RECOMPUTE_EVERY PREFETCH OFFLOAD LAYOUT GATHER STAGES SCHEDULE ADVICE SLOW JSON \
    RANKS RUN INIT FIT TIMELINE SWEEP SVG COMPARE V EFFICIENCY COMPILE PRODUCTS LOSS \
    GRAPH REGROUP
# RANKS has a default, for the demo.
plan: deps
	@$(if $(filter-out simgpu,$(BACKEND)), \
	    echo 'make plan needs simgpu: leave BACKEND out' >&2; exit 2)
	@$(PYTHON) grader/plan.py --impl $(call quote,$(IMPL_GIVEN)) --build '$(BUILD)' \
	    $(foreach name,$(PLAN_SETTINGS), \
	        $(if $(call is_given,$(name)),$(call quote,$(name)=$(value $(name)))))
