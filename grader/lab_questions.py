"""The quiz's questions on the labs: one measurement each, which a student makes with `make plan`
and the settings that the question names. What is right the planner says, as for the tasks.

Interface: LAB_QUESTIONS: {a lab's number: Question}, whose parts are L1a, L2a …
Files: quiz_questions.py (what a question is).
"""

from quiz_questions import Part, Question, Setting


def model(draw, gpus=(3, 5, 6, 7, 8), micro=(1,)):
    """A model of tens of millions of parameters, in so many micro-batches per step."""
    heads = draw.among([5, 6, 7, 9, 10, 11, 13])
    return Setting(layers=draw.among(range(6, 18)), heads=heads, dim=64 * heads,
                   vocab=draw.among(range(20001, 49999, 2)), seq=draw.among([192, 256, 320, 384]),
                   gpus=draw.among(gpus), sequences=draw.among([1, 2, 3]),
                   micro=draw.among(micro))


def measured(number, name, draw, first, strategies, part):
    """The question of a lab. first: what to measure; strategies: settings beside those drawn, the
    first of which is the one that Figures has in `rank`."""
    return Question("L%d" % number, "Lab %d, %s" % (number, name),
                    "Run `make plan %(settings)s` with further settings (JSON=FILE has all "
                    "digits): " + first, draw, [part],
                    strategies)


ONCE, EACH = "zero1", "zero3 REDUCE=each"
STRATEGIES = measured(
    1, "strategies", lambda draw: model(draw, micro=(2, 3, 4, 5, 6)),
    "STRATEGY=zero1; and STRATEGY=zero3 REDUCE=each.", (ONCE, EACH),
    Part("a", "Divide the bytes that a GPU sends in a step of the second plan by those of the "
              "first: what is the ratio (such as 1.23)?",
         lambda f: f.everything_sent(EACH) / f.everything_sent(ONCE),
         "Add up the all-gathers and the reduce-scatters of each plan.",
         [(lambda f: f.setting.micro, "That is the number of micro-batches: but ZeRO-3 also "
                                      "gathers each block twice in each of them."),
          (lambda f: f.sent("all-gather", EACH) / f.sent("all-gather", ONCE),
           "Those are only the all-gathers."),
          (lambda f: (f.sent("all-gather", EACH) + f.sent("reduce-scatter", ONCE))
           / f.everything_sent(ONCE), "Each micro-batch reduces, too.")]))

BF16 = "zero3 DTYPE=bf16 REDUCE_DTYPE=float"
PRECISION = measured(
    2, "mixed precision", model, "STRATEGY=zero3 DTYPE=bf16 REDUCE_DTYPE=float.", (BF16, "zero3"),
    Part("a", "How many bytes of unsharded gradients are there at most at one time?",
         lambda f: f.most("unsharded gradients", BF16),
         "The plan's memory table has them: the root's in bf16, a block's in both types.",
         [(lambda f: f.most("unsharded gradients", "zero3"), "That is all float."),
          (lambda f: f.most("unsharded gradients", "zero3") / 2,
           "That is all bf16: while a gradient is reduced, its cast to float exists too.")]))

ONE, THREE = "zero3 PREFETCH=1", "zero3 PREFETCH=3"
PREFETCH = measured(
    3, "prefetch", model, "STRATEGY=zero3 PREFETCH=1; and STRATEGY=zero3 PREFETCH=3.", (ONE, THREE),
    Part("a", "How many more bytes of unsharded parameters does the second plan have at its "
              "peak?",
         lambda f: f.most("unsharded parameters", THREE) - f.most("unsharded parameters", ONE),
         "Subtract the first plan's peak from the second's. To check: it is a whole number of "
         "blocks.",
         [(lambda f: 12 * f.block["padded"], "PREFETCH=1 already has one ahead."),
          (lambda f: f.most("unsharded parameters", THREE),
           "That is the total, not the increase.")]))

KEEP, AGAIN = "zero3 ATTENTION=plain", "zero3 ATTENTION=plain RECOMPUTE=blocks"
MEMORY = measured(
    4, "memory", model,
    "STRATEGY=zero3 ATTENTION=plain; and the same with RECOMPUTE=blocks.", (KEEP, AGAIN),
    Part("a", "How many fewer bytes of activations does the second plan have at its peak?",
         lambda f: f.most("activations", KEEP) - f.most("activations", AGAIN),
         "The activations of all blocks but the one that runs again.",
         [(lambda f: f.most("activations", AGAIN), "That is what remains, not what is saved."),
          (lambda f: (f.most("activations", KEEP) - f.most("activations", AGAIN))
           * f.setting.layers / (f.setting.layers - 1),
           "One block's activations are there while its backward runs.")]))

CHECKPOINTS = measured(
    5, "checkpoints", model, "STRATEGY=fsdp.", ("fsdp",),
    Part("a", "How many bytes of tensors are in rank 0's file, if this run saves a checkpoint?",
         lambda f: 12 * sum(unit["valid"] for unit in f.rank["units"]),
         "The plan says how many bytes of parameters a GPU keeps; two moments are as long.",
         [(lambda f: 4 * sum(unit["valid"] for unit in f.rank["units"]),
           "A resumed run needs the moments, too."),
          (lambda f: f.kept("fsdp"), "Gradients are zero between two steps, and not saved."),
          (lambda f: 12 * f.parameters, "That is in all files together.")]))

EIGHT, FLOATS = ("zero3 LAYOUT=per_parameter GATHER=fp8", "zero3 LAYOUT=per_parameter")
PER_PARAMETER = measured(
    6, "per-parameter shards", model, "STRATEGY=zero3 LAYOUT=per_parameter GATHER=fp8.",
    (EIGHT, FLOATS),
    Part("a", "How many bytes does a GPU send in the all-gathers of a step?",
         lambda f: f.sent("all-gather", EIGHT),
         "The plan's table of messages has them; biases and norms travel as floats.",
         [(lambda f: f.sent("all-gather", FLOATS), "That is without GATHER=fp8."),
          (lambda f: f.sent("all-gather", FLOATS) / 2, "A code has 8 bits, not 16.")]))

GPIPE, ONE_F = "zero1 STAGES=4 SCHEDULE=gpipe", "zero1 STAGES=4 SCHEDULE=1f1b"
PIPELINE = measured(
    7, "pipeline", lambda draw: model(draw, gpus=(4, 8), micro=(6, 7, 9, 10, 11, 12)),
    "STRATEGY=zero1 STAGES=4 SCHEDULE=gpipe; and the same with SCHEDULE=1f1b.", (GPIPE, ONE_F),
    Part("a", "Compare the peaks of activations on the first stage, in bytes: what is the ratio "
              "of the first plan's to the second's (such as 1.23)?",
         lambda f: f.most("activations", GPIPE) / f.most("activations", ONE_F),
         "Count the micro-batches in flight on the first stage; then look at what the plans say.",
         [(lambda f: f.setting.micro, "With 1F1B as many micro-batches are in flight on the first "
           "stage as there are stages."),
          (lambda f: f.most("activations", ONE_F) / f.most("activations", GPIPE),
           "The other way round: GPipe has more.")]))

GRAPH = measured(
    8, "the step as a graph", model, "STRATEGY=zero3.", ("zero3",),
    Part("a", "How many all-gather calls does a step make if each pass gathers its blocks in "
              "buckets of three, beginning with the pass's first block?",
         lambda f: f.calls("all-gather", "zero3")
         + 2 * (-(-f.setting.layers // 3) - f.setting.layers),
         "The plan's table of messages has today's calls: one for the root, and one for each "
         "block in each pass. A bucket is one call; the last one may have fewer blocks.",
         [(lambda f: f.calls("all-gather", "zero3"), "Those are the calls of FSDP2's plan."),
          (lambda f: f.calls("all-gather", "zero3") - f.setting.layers
           + -(-f.setting.layers // 3), "That is with buckets in only one pass.")]))

LAB_QUESTIONS = {int(question.task[1:]): question for question in (
    STRATEGIES, PRECISION, PREFETCH, MEMORY, CHECKPOINTS, PER_PARAMETER, PIPELINE, GRAPH)}
