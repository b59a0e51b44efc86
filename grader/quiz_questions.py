"""The quiz's questions: a model, a number of GPUs, and what a step of training it keeps, sends and
takes. The numbers are drawn for each student; the right answers are the planner's, which runs the
reference dry on the numbers drawn (quiz.py), or follow from its figures by one more step.

A part knows how answers go wrong: each entry of `missed` is what somebody finds who leaves a step
out, and the sentence that says which.

Interface: QUESTIONS: {task's number: Question}; Question.draw(Draw(key)) -> Setting, .strategies,
.text(figures), .parts, .name(part), .close(value, right); Part.ask, .right(figures), .how, .missed;
Figures(setting, plans).
"""

import hashlib
from dataclasses import dataclass, field


class Draw:
    """Numbers drawn from a text: the same on every machine and in every version of Python."""

    def __init__(self, text):
        self.text = text
        self.count = 0

    def among(self, values):
        self.count += 1
        digest = hashlib.sha256(("%s|%d" % (self.text, self.count)).encode("utf-8")).digest()
        return values[int.from_bytes(digest[:8], "big") % len(values)]


@dataclass
class Setting:
    """What is drawn. T tokens in a sequence, and the longest the model takes; B sequences a GPU, in
    each of `micro` micro-batches."""
    layers: int
    heads: int
    dim: int
    vocab: int
    seq: int
    gpus: int
    sequences: int = 1
    micro: int = 1

    def plan(self, strategy="fsdp"):
        """As the planner is asked: the strategy may be followed by further settings."""
        return self.settings() + ("STRATEGY=" + strategy).split()

    def settings(self):
        return ["LAYERS=%d" % self.layers, "HEADS=%d" % self.heads, "DIM=%d" % self.dim,
                "VOCAB=%d" % self.vocab, "SEQ=%d" % self.seq, "GPUS=%d" % self.gpus,
                "BATCH=%d" % (self.gpus * self.sequences * self.micro), "MACHINE=h100x8",
                "DTYPE=float"] + ["ACCUMULATE=%d" % self.micro] * (self.micro > 1)

    def words(self):
        return ("A GPT-2 has %d blocks of width %d (%d head%s), a vocabulary of %d tokens and at "
                "most %d tokens in a sequence; the head's weight is the embedding's."
                % (self.layers, self.dim, self.heads, "" if self.heads == 1 else "s", self.vocab,
                   self.seq))


KEPT = ("sharded parameters", "sharded gradients", "optimizer state")


class Figures:
    """Of one setting: the planner's figures under each strategy that is asked for. rank is the
    first rank's, last the last one's, under the first strategy."""

    def __init__(self, setting, plans):
        self.setting = setting
        self.plans = plans
        self.fsdp = next(iter(plans.values()))
        self.rank, self.last = self.fsdp["ranks"][0], self.fsdp["ranks"][-1]
        self.root, self.block = self.rank["units"][:2]
        self.parameters = self.fsdp["formulas"]["parameters"]

    def words(self):
        """What stands in the questions."""
        return dict(vars(self.setting), settings=" ".join(self.setting.settings()),
                    hbm="%.3g" % (1e-12 * self.fsdp["memory_bandwidth"]))

    def kept(self, strategy="fsdp"):
        """Bytes of parameters, gradients and Adam's moments between two steps."""
        memory = self.plans[strategy]["ranks"][0]["memory"]
        return sum(memory[name][1] for name in KEPT)

    def most(self, category, strategy="fsdp"):
        """Bytes, at the time in a step when there are most of them."""
        return self.plans[strategy]["ranks"][0]["memory"][category][2]

    def calls(self, kind, strategy="fsdp"):
        return self.plans[strategy]["ranks"][0]["messages"][kind][0]

    def sent(self, kind, strategy="fsdp"):
        return self.plans[strategy]["ranks"][0]["messages"][kind][2]

    def everything_sent(self, strategy="fsdp"):
        return sum(self.sent(kind, strategy)
                   for kind in ("all-gather", "reduce-scatter", "all-reduce"))


@dataclass
class Part:
    letter: str
    ask: str
    right: object              # Figures -> the answer
    how: str                   # the way to it, for who is wrong in a way that is not foreseen
    missed: list = field(default_factory=list) # (Figures -> a wrong answer, what was missed)


@dataclass
class Question:
    task: object               # a number; of a lab "L1"
    title: str
    ask: str
    draw: object               # Draw -> Setting
    parts: list
    strategies: tuple = ("fsdp",)
    exact: bool = False        # else what is within 1 % is right

    def text(self, figures):
        return "%s %s" % (figures.setting.words(), self.ask % figures.words())

    def name(self, part):
        return "%s%s" % (self.task, part.letter)

    def close(self, value, right):
        """Whether a value is as good as the right one. A small whole number must be equal."""
        if self.exact or isinstance(right, int) and abs(right) < 1000:
            return value == right
        return abs(value - right) <= 0.01 * abs(right)


def medium(draw):
    """A model of tens of millions of parameters, on one node."""
    heads = draw.among([5, 6, 7, 9, 10, 11, 13])
    return Setting(layers=draw.among(range(5, 18)), heads=heads, dim=64 * heads,
                   vocab=draw.among(range(20001, 49999, 2)), seq=draw.among([192, 256, 320, 384]),
                   gpus=draw.among([3, 5, 6, 7, 8]), sequences=draw.among([1, 2, 3]))


def tiny(draw):
    """A model to count by hand."""
    return Setting(layers=draw.among([2, 3, 4]), heads=1, dim=draw.among([3, 5, 6, 7]),
                   vocab=draw.among(range(11, 40)), seq=draw.among([3, 4, 5, 6, 7, 8]),
                   gpus=draw.among([5, 6, 7, 8]))


def head(figures):
    """Elements of the head's weight."""
    return figures.setting.vocab * figures.setting.dim


def shards(figures):
    """Elements of all of the first rank's shards."""
    return sum(unit["shard"] for unit in figures.rank["units"])


META_INIT = Question(
    1, "Task 1, meta init",
    "It is trained in float with AdamW, on one GPU without FSDP, or with FSDP on %(gpus)d.",
    medium, [
        Part("a",
             "How many parameters (elements) does one block have, with biases and layer norms?",
             lambda f: f.block["numel"],
             "Attention has matrices of 3·C² and C², the MLP of 4·C² and 4·C²; each has a bias, "
             "and there are two layer norms with a weight and a bias each.",
             [(lambda f: 10 * f.setting.dim ** 2,
               "Query, key and value together have a matrix of 3·C², not of C².")]),
        Part("b", "How many parameters does the model have, if a tied one counts once?",
             lambda f: f.parameters,
             "The blocks, the two embeddings (tokens and positions) and the last layer norm.",
             [(lambda f: f.parameters + head(f),
               "The head's weight is the embedding's, tied: it counts once."),
              (lambda f: f.setting.layers * f.block["numel"],
               "Those are only the blocks: add the embeddings and the last layer norm.")]),
        Part("c", "How many bytes does the one GPU keep between two steps: parameters, gradients "
             "and Adam's two moments?",
             lambda f: f.kept("ddp"),
             "Four floats for each parameter.",
             [(lambda f: 4 * f.parameters, "Those are only the parameters."),
              (lambda f: 8 * f.parameters, "Adam keeps two moments of each parameter, too."),
              (lambda f: 12 * f.parameters,
               "One of the four is missing: parameter, gradient, and two moments."),
              (lambda f: 4 * f.parameters / f.setting.gpus, "This GPU shares with no other.")]),
        Part("d", "And each of the %(gpus)d GPUs with FSDP, a unit's padding aside?",
             lambda f: f.kept(),
             "The same four floats, of a shard of each unit.",
             [(lambda f: f.kept("ddp"), "FSDP shards all of it: divide by the number of GPUs."),
              (lambda f: 4 * f.parameters + 12 * f.parameters / f.setting.gpus,
               "The parameters are in shards, too, between two steps.")]),
        Part("e", "On meta the model has no memory. How many initial values does a GPU draw when "
                  "it makes its shards?",
             lambda f: sum(unit["valid"] for unit in f.rank["units"]),
             "One for each element of its shards that is not padding.",
             [(lambda f: f.parameters,
               "That is the model: each rank draws only the elements of its own shards."),
              (lambda f: 4 * f.parameters / f.setting.gpus, "Those are bytes.")]),
    ], ("fsdp", "ddp"))

FLAT_PARAM = Question(
    2, "Task 2, flat parameter",
    "Each block is a unit, and the model is the root; %(gpus)d GPUs shard them, without "
    "align_shards. All answers are exact.", tiny, [
        Part("a", "How many elements does a block's flat parameter have, without its padding?",
             lambda f: f.block["numel"], "Count the matrices, their biases and two layer norms.",
             [(lambda f: 12 * f.setting.dim ** 2,
               "Those are only the matrices: biases and layer norms are in it, too.")]),
        Part("b", "How many does one shard of it have?",
             lambda f: f.block["shard"], "Padded to a multiple of the ranks, then divided.",
             [(lambda f: f.block["numel"] // f.setting.gpus,
               "If you round down, the last elements have no place: padding rounds up."),
              (lambda f: f.block["padded"], "That is the padded flat parameter: divide it.")]),
        Part("c", "How many elements does the root's flat parameter have, without its padding?",
             lambda f: f.root["numel"],
             "The parameters of no block: two embeddings and the last layer norm.",
             [(lambda f: f.root["numel"] + head(f),
               "The head's weight is the embedding's: one unit has it, once."),
              (lambda f: f.parameters, "The blocks' parameters are in units of their own."),
              (lambda f: f.root["numel"] - 2 * f.setting.dim,
               "The last layer norm has a weight and a bias.")]),
        Part("d", "How many elements of padding does it have?",
             lambda f: f.root["padded"] - f.root["numel"],
             "As few as make the length a multiple of the number of ranks.",
             [(lambda f: f.root["numel"] % f.setting.gpus,
               "That is the remainder: padding is the difference to the next multiple.")]),
        Part("e", "How many elements of the last GPU's shard of the root are not padding?",
             lambda f: f.last["units"][0]["valid"],
             "All padding is at the end of the last shard, or of the last shards.",
             [(lambda f: f.root["shard"], "The last shard has the padding at its end."),
              (lambda f: f.root["shard"] - (f.block["padded"] - f.block["numel"]),
               "That is a block's padding: look at the root's.")]),
        Part("f", "How many bytes do all of a GPU's shards take, parameters and gradients?",
             lambda f: f.most("sharded parameters") + f.most("sharded gradients"),
             "The root's shard and one of each block; 4 bytes an element, and a gradient for "
             "each.",
             [(lambda f: 4 * shards(f), "Those are the parameters: a gradient is as large."),
              (lambda f: 8 * (f.root["shard"] + f.block["shard"]),
               "That is one block: there are several."),
              (lambda f: 2 * shards(f), "Those are elements: a float has 4 bytes.")]),
    ], exact=True)

FORWARD = Question(
    3, "Task 3, forward",
    "It is trained in float on %(gpus)d GPUs, each block a unit and the model the root, resharded "
    "after the forward by the default rule (the root is not). One step has one micro-batch.",
    medium, [
        Part("a", "How many all-gathers are in a step, forward and backward together?",
             lambda f: f.calls("all-gather"),
             "A unit that is resharded after its forward is gathered once more for its backward.",
             [(lambda f: f.setting.layers + 1,
               "That is the forward: the backward gathers the blocks again."),
              (lambda f: 2 * f.setting.layers + 2,
               "The root stays unsharded from its forward to its backward, which follows next.")]),
        Part("b", "How many bytes does a GPU send in one all-gather of a block?",
             lambda f: 4 * f.block["shard"] * (f.setting.gpus - 1),
             "In a ring each rank passes on W - 1 shards.",
             [(lambda f: 4 * f.block["padded"],
               "A rank does not send its own shard to itself: it passes on W - 1 of W shards."),
              (lambda f: 4 * f.block["shard"],
               "Its shard goes round the ring, and so do the others': each rank passes on W - 1."),
              (lambda f: f.block["shard"] * (f.setting.gpus - 1),
               "Those are elements, not bytes.")]),
        Part("c", "And in all the all-gathers of a step together?",
             lambda f: f.sent("all-gather"),
             "Each block's twice and the root's once.",
             [(lambda f: f.sent("all-gather", "zero2"),
               "That is each unit once: the backward gathers the blocks again."),
              (lambda f: 4 * (f.setting.layers * f.block["shard"] * 2 + f.root["shard"] * 2)
               * (f.setting.gpus - 1), "The root is gathered once.")]),
        Part("d", "How many bytes of unsharded parameters are there at most at one time?",
             lambda f: f.most("unsharded parameters"),
             "The root, the block that computes, and the one whose all-gather is queued next.",
             [(lambda f: 4 * f.root["padded"] + 4 * f.block["padded"],
               "While a block computes, the next one's all-gather has its buffer already."),
              (lambda f: 8 * f.block["padded"], "The root stays unsharded all the time."),
              (lambda f: 4 * f.parameters, "That is the model: blocks before it are resharded.")]),
        Part("e", "How many would it be if no unit were resharded after its forward?",
             lambda f: f.most("unsharded parameters", "zero2"),
             "All units at the end of the forward.",
             [(lambda f: f.parameters, "Those are elements, not bytes.")]),
    ], ("fsdp", "zero2"))

BACKWARD = Question(
    4, "Task 4, backward",
    "It is trained in float on %(gpus)d GPUs, each block a unit and the model the root, resharded "
    "after the forward by the default rule. One step has one micro-batch.", medium, [
        Part("a", "How many reduce-scatters are in a step?",
             lambda f: f.calls("reduce-scatter"), "One for each unit.",
             [(lambda f: f.setting.layers, "The root is a unit, too."),
              (lambda f: 2 * f.setting.layers + 1,
               "That is the number of all-gathers: gradients travel once.")]),
        Part("b", "How many bytes does a GPU send in all of them?",
             lambda f: f.sent("reduce-scatter"),
             "As an all-gather of the same units: W - 1 shards of each.",
             [(lambda f: f.sent("all-gather"), "Gradients travel once, parameters twice."),
              (lambda f: 4 * sum(unit["padded"] for unit in f.rank["units"]),
               "A rank passes on W - 1 of W shards: its own sum stays."),
              (lambda f: 2 * f.sent("reduce-scatter"),
               "An all-reduce would send twice as much: a reduce-scatter and an all-gather.")]),
        Part("c", "How many bytes of unsharded gradients are there at most at one time?",
             lambda f: f.most("unsharded gradients"),
             "The root's, the computing block's, and one that is being reduced.",
             [(lambda f: 4 * f.parameters,
               "That is the model: a block's gradient is freed when its reduce-scatter is done."),
              (lambda f: 4 * f.root["padded"] + 4 * f.block["padded"],
               "The previous block's gradient is still being reduced."),
              (lambda f: 8 * f.block["padded"],
               "The root's backward begins first and ends last: its gradient is there, too.")]),
        Part("d", "DDP all-reduces the gradients and gathers nothing. Divide the bytes that a "
                  "GPU sends in a step of FSDP by those in a step of DDP: what is the ratio "
                  "(such as 1.23)?",
             lambda f: f.everything_sent() / f.everything_sent("ddp"),
             "An all-reduce sends 2·(W - 1)/W of the bytes; add up FSDP's all-gathers and "
             "reduce-scatters.",
             [(lambda f: 1.5, "Three halves would be all units gathered twice; the root is not."),
              (lambda f: f.everything_sent("zero2") / f.everything_sent("ddp"),
               "That is without the second all-gather of the blocks."),
              (lambda f: 2 * f.everything_sent() / f.everything_sent("ddp"),
               "An all-reduce is a reduce-scatter and an all-gather: it sends each byte twice.")]),
    ], ("fsdp", "ddp", "zero2"))

OPTIMIZER = Question(
    5, "Task 5, optimizer",
    "It is trained in float with AdamW on %(gpus)d GPUs, each block a unit and the model the root.",
    medium, [
        Part("a", "How many parameter elements does the optimizer of one GPU update?",
             shards, "All its shards: the root's and the blocks'.",
             [(lambda f: f.parameters, "That is the model: a GPU updates only its shards."),
              (lambda f: f.root["shard"] + f.block["shard"], "That is one block of several.")]),
        Part("b", "How many bytes of optimizer state does it keep?",
             lambda f: f.most("optimizer state"), "Two moments, 4 bytes each, for each of those.",
             [(lambda f: 8 * f.parameters, "Only of its shards, not of the model."),
              (lambda f: f.most("optimizer state") / 2, "Adam keeps two moments."),
              (lambda f: 2 * f.most("optimizer state"),
               "Parameters and gradients are not optimizer state.")]),
        Part("c", "How many bytes does a step of AdamW read and write?",
             lambda f: f.fsdp["times"]["kinds"]["optimizer"][4],
             "It reads parameter, gradient and both moments, and writes all but the gradient.",
             [(lambda f: 16 * shards(f), "That is what it reads: it writes three of them back."),
              (lambda f: 32 * shards(f), "The gradient is not written."),
              (lambda f: 12 * shards(f), "That is what it writes."),
              (lambda f: 28 * f.parameters, "Only of its shards, not of the model.")]),
        Part("d",
             "How many microseconds do these bytes take at the %(hbm)s TB/s of an H100's memory?",
             lambda f: 1e6 * f.fsdp["times"]["kinds"]["optimizer"][4]
             / f.fsdp["memory_bandwidth"],
             "Bytes divided by bytes per second; a microsecond is 1e-6 s.",
             [(lambda f: 1e3 * f.fsdp["times"]["kinds"]["optimizer"][4]
               / f.fsdp["memory_bandwidth"], "Those are milliseconds.")]),
        Part("e", "And without FSDP, on one GPU?",
             lambda f: 1e6 * 28 * f.parameters / f.fsdp["memory_bandwidth"],
             "The same bytes for each element, of the model.",
             [(lambda f: 1e6 * 28 * f.parameters / f.setting.gpus ** 2
               / f.fsdp["memory_bandwidth"], "The one GPU has more to do, not less.")]),
    ])

API = Question(
    6, "Task 6, API",
    "It is trained in float on %(gpus)d GPUs; fully_shard was called on each block and on the "
    "model.",
    medium, [
        Part("a", "How many units are there?",
             lambda f: len(f.rank["units"]), "One for each call.",
             [(lambda f: f.setting.layers, "The model is a unit, too: the root.")]),
        Part("b", "How many bytes of parameters would be unsharded at one time if fully_shard had "
             "been called only on the model?",
             lambda f: 4 * -(-f.parameters // f.setting.gpus) * f.setting.gpus,
             "One unit: all of it, from the first line of the forward on.",
             [(lambda f: f.parameters, "Those are elements, not bytes."),
              (lambda f: f.most("unsharded parameters"),
               "That is with the blocks as units: a single unit is gathered all at once.")]),
        Part("c", "With the blocks as units and FSDP_RESHARD_NEVER, how many fewer bytes does "
             "a GPU send in a step?",
             lambda f: f.everything_sent() - f.everything_sent("zero2"),
             "The second all-gather of each block: W - 1 shards of it.",
             [(lambda f: f.sent("all-gather", "zero2"),
               "That counts the root, too, which is not gathered a second time in any case."),
              (lambda f: 4 * f.setting.layers * f.block["padded"],
               "A rank passes on W - 1 of W shards.")]),
        Part("d", "And how many more bytes of unsharded parameters are there at most?",
             lambda f: f.most("unsharded parameters", "zero2") - f.most("unsharded parameters"),
             "All blocks stay, instead of two.",
             [(lambda f: 4 * f.setting.layers * f.block["padded"],
               "Two of the blocks are there in any case."),
              (lambda f: 4 * (f.setting.layers - 1) * f.block["padded"],
               "Two of the blocks are there in any case: one computes, one is being gathered.")]),
        Part("e", "How many bytes does rank 0 get in all, in host memory, from fsdp_full_state?",
             lambda f: 4 * f.parameters, "Every parameter, unsharded, without padding.",
             [(lambda f: 4 * f.parameters / f.setting.gpus,
               "That is its shards: it gets all of them."),
              (lambda f: f.kept("zero2") * f.setting.gpus,
               "Only parameters: the optimizer's state is not in it.")]),
    ], ("fsdp", "zero2"))

QUESTIONS = {question.task: question
             for question in (META_INIT, FLAT_PARAM, FORWARD, BACKWARD, OPTIMIZER, API)}
