"""What `make bench` measures: the models, and for each section the programs, how often, and what
of their figures is kept.

A section is a function of (bench, model or nothing) that returns what bench_page.py shows.

Interface: LEVELS, Bench, Model; steps, startup, collectives, growth, checks, loops.
"""

import os
import shutil
import sys
from dataclasses import dataclass, field

from bench_judge import Claim, Spread, ratios
from bench_run import ROOT, BenchError, Variant, run_rounds

GIB = 1 << 30


@dataclass(frozen=True)
class Model:
    """A GPT-2 and the batch of all ranks together."""
    name: str
    title: str
    layers: int
    heads: int
    dim: int
    vocab: int
    context: int
    batch: int
    sequence: int
    share: float        # of the floor: the bound

    def flags(self, ranks=1, layers=None, batch=None, sequence=None):
        sizes = (("layers", layers or self.layers), ("heads", self.heads), ("dim", self.dim),
                 ("vocab", self.vocab), ("context", self.context),
                 ("batch", (batch or self.batch) // ranks), ("sequence", sequence or self.sequence))
        return [word for name, value in sizes for word in ("--" + name, str(value))]


TINY = Model("tiny", "a tiny GPT-2", 1, 2, 32, 64, 16, 4, 16, 0.88)
SMALL = Model("small", "the GPT-2 that train_gpt2 makes (4.8 M parameters)", 6, 8, 256, 256, 64,
              16, 64, 0.88)
GPT2 = Model("124M", "GPT-2 124M", 12, 12, 768, 50257, 1024, 8, 32, 0.90)


@dataclass(frozen=True)
class Level:
    """How much BENCH=… asks for."""
    models: tuple       # (model, measured steps of a run)
    memory: float       # GiB that must be available
    rounds: int
    ranks: tuple
    start: Model        # whose start-up is measured alone; None: not
    most: int           # bytes of the largest collective
    collectives: tuple  # ranks
    growth: tuple       # ranks
    depth: tuple        # layers
    checks: int         # ranks that SIMGPU_CHECK's cost is measured with
    loops: bool


LEVELS = {
    "test": Level(((TINY, 2),), 1, 2, (1, 2), None, 4096, (2,), (1, 2), (1, 2), 2, False),
    "quick": Level(((SMALL, 6),), 5, 5, (1, 2, 4, 8), GPT2, 64 << 20, (2, 4),
                   (1, 2, 4, 8, 16, 32, 64), (3, 6, 12, 24), 4, False),
    "full": Level(((SMALL, 6), (GPT2, 3)), 14, 5, (1, 2, 4, 8), GPT2, 64 << 20, (2, 4),
                  (1, 2, 4, 8, 16, 32, 64), (3, 6, 12, 24), 4, True),
}


@dataclass
class Bench:
    """A run under way."""
    shop: object
    level: Level
    cores: int
    say: object                                  # a line of progress
    claims: list = field(default_factory=list)
    notes: dict = field(default_factory=dict)    # versions that the programs said

    def program(self, name):
        return self.shop.path("bench", name)

    def train(self, ranks, model, steps, flags=(), **sizes):
        """The command of bench/train_step."""
        command = [self.program("train_step")] + model.flags(ranks, **sizes) + \
            ["--warm-up", "1", "--steps", str(steps)] + list(flags)
        return command if "--unsharded" in flags else self.shop.launched(ranks, command)

    def claim(self, what, values, bound, **more):
        self.claims.append(Claim(what, tuple(values), bound, **more))


def median(values):
    return Spread.of(values).middle


def of_rounds(rounds, name):
    """A number of each round: the median of a run's steps, the largest of its ranks."""
    take = {"cpu": median, "wall": median, "start_user": max, "start_sys": max, "start_wall": max,
            "peak": max}.get(name, lambda value: value)
    return [take(figures[name]) for figures in rounds]


# ---- A training step ----

def read_products(text):
    """Of bench/products: a step's seconds, and the shapes."""
    passes, shapes, blas = [], [], ""
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "pass":
            passes.append(float(rest))
        elif word == "product":
            form, m, n, k, count, seconds = rest.split()
            shapes.append((form, int(m), int(n), int(k), int(count), float(seconds)))
        elif word == "blas":
            blas = rest
    if not passes:
        raise BenchError("bench/products printed no pass: %r" % text[-200:])
    return {"cpu": passes, "shapes": shapes, "blas": blas}


def threads_of_one(cores):
    """How many threads one rank is tried with: two anywhere, more where there are as many cores."""
    return [n for n in (1, 2, 4, 8, 16) if n <= max(2, cores)]


def counted(n):
    return "%d thread%s" % (n, "" if n == 1 else "s")


def step_variants(bench, model, steps):
    """The floor, and this kit plain and sharded."""
    one = {"SIMGPU_THREADS": "1"}
    sizes = (model.layers, model.heads, model.dim, model.vocab, model.batch, model.sequence)
    products = [bench.program("products")] + [str(n) for n in sizes] + ["3"]
    variants = [
        Variant("floor", "products alone, 1 thread", products, read=read_products),
        Variant("blocks", "products alone, in simgpu's blocks, 1 thread", products + ["blocks"],
                one, read=read_products),
        *(Variant("plain%d" % n, "plain, " + counted(n),
                  bench.train(1, model, steps, ["--unsharded"]), {"SIMGPU_THREADS": str(n)})
          for n in threads_of_one(bench.cores)),
        Variant("fused", "plain, fused attention, 1 thread",
                bench.train(1, model, steps, ["--unsharded", "--attention", "fused"]), one)]
    for ranks in bench.level.ranks:
        variants.append(Variant("W=%d" % ranks, "W = %d" % ranks + ", 1 thread" * (ranks == 1),
                                bench.train(ranks, model, steps), one if ranks == 1 else {}))
    dry = dict(one, SIMGPU_DRY="1") # the host alone
    variants += [Variant(key, "W = 1, dry, %s" % key, bench.train(1, model, steps, flags), dry)
                 for key, flags in (("eager", []), ("graph", ["--graph"]))]
    return variants



def steps(bench, model, count):
    """A model's training step: a row for each variant, and the shapes of the floor."""
    variants = step_variants(bench, model, count)
    found = run_rounds(bench.shop, variants, bench.level.rounds,
                       lambda line: bench.say("%s: %s" % (model.name, line)))
    cpu = {key: of_rounds(rounds, "cpu") for key, rounds in found.items()}
    floor = found["floor"]
    bench.notes["blas"] = floor[0]["blas"]
    bench.claim("%s: plain, share of the floor" % model.name, ratios(cpu["floor"], cpu["plain1"]),
                model.share, at_least=True)
    bench.claim("%s: W = 1 over plain, CPU" % model.name, ratios(cpu["W=1"], cpu["plain1"]), 1.02)
    bench.claim("%s: dry, a graph's launch over the calls, CPU" % model.name,
                ratios(cpu["graph"], cpu["eager"]), 1.0)
    rows = []
    for variant in variants[2:]:
        if variant.key in ("eager", "graph"):
            continue # they compute nothing: a claim has them
        rounds = found[variant.key]
        row = {name: Spread.of(of_rounds(rounds, name)) for name in
               ("cpu", "wall", "start_user", "start_sys", "start_wall", "peak", "first")}
        row.update(title=variant.title, tokens=rounds[0]["tokens"],
                   share=Spread.of(ratios(cpu["floor"], cpu[variant.key])))
        rows.append(row)
    shapes = [shape[:5] + (min(one["shapes"][i][5] for one in floor),)
              for i, shape in enumerate(floor[0]["shapes"])]
    return {"model": model, "floor": Spread.of(cpu["floor"]), "rows": rows, "shapes": shapes,
            "blocks": Spread.of(ratios(cpu["blocks"], cpu["floor"])), "steps": count}


# ---- Start-up ----

def startup(bench, model):
    """Seconds until the first step could begin."""
    variants = [Variant("plain", "plain", bench.train(1, model, 0, ["--unsharded"])),
                Variant("W=4", "W = 4, of a rank", bench.train(4, model, 0))]
    found = run_rounds(bench.shop, variants, bench.level.rounds,
                       lambda line: bench.say("start-up of %s: %s" % (model.name, line)))
    rows = []
    for variant in variants:
        rounds = found[variant.key]
        spreads = {name: of_rounds(rounds, name)
                   for name in ("start_user", "start_sys", "start_wall")}
        rows.append((variant.title, {name: Spread.of(x) for name, x in spreads.items()}))
    if model is GPT2:
        bench.claim("start-up of 124M, user seconds", of_rounds(found["plain"], "start_user"), 1.0)
    return {"model": model, "rows": rows}


# ---- Collectives ----

def read_collectives(text):
    """{(operation, bytes): [(wall, CPU) of each round]}"""
    found = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 4 and parts[1].isdigit():
            found.setdefault((parts[0], int(parts[1])), []).append(
                (float(parts[2]), float(parts[3])))
    if not found:
        raise BenchError("bench/collectives printed no figures: %r" % text[-200:])
    return found


def collectives(bench):
    """[(ranks, {(operation, bytes): (Spread of wall, Spread of CPU of a rank)})]"""
    tables = []
    for ranks in bench.level.collectives:
        bench.say("collectives on %d ranks" % ranks)
        out, _, _ = bench.shop.run(bench.shop.launched(ranks, [
            bench.program("collectives"), "--rounds", str(bench.level.rounds),
            "--most", str(bench.level.most)]))
        table = {}
        for (operation, size), rounds in read_collectives(out).items():
            table[operation, size] = tuple(Spread.of([one[i] for one in rounds]) for i in (0, 1))
        tables.append((ranks, table))
    return tables


# ---- Growth ----

def compared(bench, what, variants, rounds):
    """[(title, Spread of CPU, Spread of the ratio to the first variant, Spread of peak)]"""
    found = run_rounds(bench.shop, variants, rounds,
                       lambda line: bench.say("%s: %s" % (what, line)))
    cpu = {key: of_rounds(rows, "cpu") for key, rows in found.items()}
    return [(variant.title, Spread.of(cpu[variant.key]),
             Spread.of(ratios(cpu[variant.key], cpu[variants[0].key])),
             Spread.of(of_rounds(found[variant.key], "peak"))) for variant in variants], cpu


def growth(bench):
    """With W at one global batch, and with depth."""
    model, rounds = bench.level.models[0][0], min(3, bench.level.rounds)
    batch = max(model.batch, *bench.level.growth)
    sizes = {"batch": batch, "sequence": max(1, model.batch * model.sequence // batch)}
    env = {"SIMGPU_THREADS": "1", "SIMGPU_DEVICES": str(max(8, *bench.level.growth))}
    ranks = [Variant("W=%d" % n, "W = %d" % n, bench.train(n, model, 2, **sizes), env)
             for n in bench.level.growth]
    layers = [Variant("%d layers" % n, "%d layers" % n, bench.train(
        1, model, 2, ["--unsharded"], layers=n), env) for n in bench.level.depth]
    by_ranks, _ = compared(bench, "growth with W", ranks, rounds)
    by_depth, _ = compared(bench, "growth with depth", layers, rounds)
    return {"model": model, "sizes": sizes, "ranks": by_ranks, "depth": by_depth}


def checks(bench):
    """What SIMGPU_CHECK and SIMGPU_MACHINE cost."""
    model, count = bench.level.models[0]
    ranks = bench.level.checks
    variants = [Variant(title, title, bench.train(ranks, model, count),
                        dict(pair.split("=") for pair in title.split(" ")))
                for title in ("SIMGPU_CHECK=off SIMGPU_MACHINE=none",
                              "SIMGPU_CHECK=off SIMGPU_MACHINE=h100x8",
                              "SIMGPU_CHECK=fast SIMGPU_MACHINE=h100x8",
                              "SIMGPU_CHECK=full SIMGPU_MACHINE=none",
                              "SIMGPU_CHECK=full SIMGPU_MACHINE=h100x8")]
    rows, cpu = compared(bench, "checks, W = %d" % ranks, variants, bench.level.rounds)
    titles = [variant.key for variant in variants]
    bench.claim("SIMGPU_CHECK=full over off, CPU", ratios(cpu[titles[4]], cpu[titles[1]]), 1.06)
    return {"ranks": ranks, "model": model, "rows": rows}


# ---- The kit's own loops ----

def loops(bench):
    """[(what, Spread of CPU, Spread of wall)]: gradings in a build tree of their own."""
    folder = bench.shop.path("bench", "loops")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    edited = os.path.join(folder, "edited")
    shutil.copytree(os.path.join(ROOT, "reference"), edited, copy_function=shutil.copy)

    def grade(*settings):
        out, cpu, wall = bench.shop.run(
            ["make", "-s", "-C", ROOT, "grade", "NO_INSTALL=1", "PYTHON=" + sys.executable,
             "BUILD=" + os.path.relpath(os.path.join(folder, "build"), ROOT)] + list(settings),
            statuses=(0, 1, 2))
        if "Score:" not in out:
            raise BenchError("make grade %s prints no score" % " ".join(settings))
        return cpu, wall

    def edit():
        with open(os.path.join(edited, "flat_param.c"), "a", encoding="utf-8") as file:
            file.write("\n// edited\n")
        return grade("TASK=2", "IMPL=" + edited)

    rows = []
    try:
        for what, times, one in (
                ("make grade, from clean", 1, grade),
                ("make grade IMPL=reference, built", 3, lambda: grade("IMPL=reference")),
                ("make grade TASK=2, after an edit", 3, edit)):
            bench.say(what)
            if times > 1:
                one() # what is not built yet
            found = [one() for _ in range(times)]
            rows.append((what, Spread.of([x[0] for x in found]), Spread.of([x[1] for x in found])))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows
