"""What the interactive figures show.

Memory is in closed form: site/memory.json has a formula for each category, and JavaScript,
TeX and tests are made of it. Timelines are the planner's own: a grid of plans, each of a step
on one modelled machine. Nothing here, and nothing in the browser, works out a time.

Interface: Memory(root): formulas(strategy, precision), values(point), javascript(),
settings(point); Planner(program, folder).plan(settings), .timeline(settings); Grid(planner):
cells(), javascript(); measured(plan).
"""

import hashlib
import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import runner
import site_formulas

LIMIT = 600.0 # seconds of a plan


class NoPlan(Exception):
    """The planner made none; the text is what it said."""


class Planner:
    """Runs the planner. Answers are kept in the folder, by program and question."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        with open(program, "rb") as file:
            self.key = hashlib.sha256(file.read()).hexdigest()
        os.makedirs(folder, exist_ok=True)

    def ask(self, settings, kind, machine=""):
        """What the planner writes for JSON= or TIMELINE=; machine: the text of a file."""
        question = json.dumps([self.key, kind, sorted(settings.items()), machine])
        name = hashlib.sha256(question.encode()).hexdigest()[:24]
        kept = os.path.join(self.folder, name + ".json")
        if not os.path.exists(kept):
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                path = os.path.join(folder, "answer.json")
                if machine:
                    settings = dict(settings, MACHINE=os.path.join(folder, "figure.machine"))
                    with open(settings["MACHINE"], "w", encoding="utf-8") as file:
                        file.write(machine)
                self.run(settings, kind, path)
                os.replace(path, kept)
        with open(kept, encoding="utf-8") as file:
            return json.load(file)

    def run(self, settings, kind, path):
        command = [self.program, "ADVICE=no"] + ["%s=%s" % pair for pair in settings.items()]
        done = subprocess.run(command + [kind + "=" + path],
                              env=dict(runner.clean_environment(), SIMGPU_THREADS="1"),
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace", check=False,
                              timeout=LIMIT * runner.time_factor())
        if done.returncode != 0:
            raise NoPlan(done.stderr.strip()[-400:] or "exit status %d" % done.returncode)

    def all(self, questions, jobs=2):
        """Answers to (settings, kind, machine), in their order."""
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(lambda question: self.ask(*question), questions))


# ---- Memory ----

@dataclass
class Point:
    """A place of the figure's controls, as indices into the lists of memory.json."""
    model: int
    world: int
    strategy: int
    precision: int


class Memory:
    """memory.json, its formulas read."""

    def __init__(self, root):
        with open(os.path.join(root, "site", "memory.json"), encoding="utf-8") as file:
            self.data = json.load(file)
        self.sizes = self.data["sizes"]

    def case(self, entry, strategy, precision):
        """The formula's text of one category."""
        text = entry.get("all", entry.get(self.data["strategies"][strategy][0]))
        types = self.data["precisions"][precision]
        if isinstance(text, dict):
            holds = {"one type": types["a"] == types["b"], "two types": types["a"] != types["b"],
                     "float": types["a"] == 4, "half": types["a"] == 2}
            text, = [formula for name, formula in text.items() if holds[name]]
        return text

    def formulas(self, strategy, precision):
        """{category: text}"""
        return {entry["name"]: self.case(entry, strategy, precision)
                for entry in self.data["categories"]}

    def names(self, point):
        """What the variables are at a point."""
        model, types = self.data["models"][point.model], self.data["precisions"][point.precision]
        ddp = self.data["strategies"][point.strategy][0] == "ddp"
        names = {name: model[name] for name in "LCHV"}
        names.update(T=self.data["tokens"], a=types["a"], b=types["b"],
                     S=1 if ddp else self.data["worlds"][point.world])
        for name, text in self.sizes:
            names[name] = site_formulas.value(text, names)
        return names

    def values(self, point):
        """{category: bytes}, exactly."""
        names = self.names(point)
        return {name: int(site_formulas.value(text, names))
                for name, text in self.formulas(point.strategy, point.precision).items()}

    def settings(self, point):
        """As the planner is asked for the same."""
        model, types = self.data["models"][point.model], self.data["precisions"][point.precision]
        strategy = self.data["strategies"][point.strategy][0]
        world = self.data["worlds"][point.world]
        found = {"LAYERS": model["L"], "HEADS": model["H"], "DIM": model["C"], "VOCAB": model["V"],
                 "SEQ": self.data["tokens"], "GPUS": world, "BATCH": 2 * world, "ACCUMULATE": 2,
                 "STRATEGY": strategy, "DTYPE": types["dtype"], "REDUCE_DTYPE": types["reduce"]}
        return dict(found, REDUCE="each") if strategy in ("zero2", "zero3") else found

    def javascript(self):
        """The same data for the browser, each formula a function of the variables."""
        variables = "L,C,H,V,T,S,a,b"
        known, lines = variables, []
        for name, text in self.sizes:
            lines.append("    const %s = %s;" % (name, site_formulas.javascript(text)))
            known += "," + name
        table = []
        for strategy in range(len(self.data["strategies"])):
            row = []
            for precision in range(len(self.data["precisions"])):
                texts = self.formulas(strategy, precision).values()
                row.append("[%s]" % ",".join(
                    "(%s) => %s" % (known, site_formulas.javascript(text))
                    for text in texts))
            table.append("[%s]" % ",\n".join(row))
        data = {name: self.data[name] for name in
                ("models", "tokens", "gpu", "worlds", "strategies", "precisions")}
        data["categories"] = [{"name": entry["name"], "kept": entry.get("kept", False)}
                              for entry in self.data["categories"]]
        return ("// Made of site/memory.json by grader/course/site_data.py.\n"
                "window.ShardLab = window.ShardLab || {};\nShardLab.memoryData = %s;\n"
                "ShardLab.memorySizes = (%s) => {\n%s\n    return [%s];\n};\n"
                "ShardLab.memoryFormulas = [%s];\n" % (
                    json.dumps(data, indent=1), variables, "\n".join(lines), known,
                    ",\n".join(table)))


def measured(plan):
    """{category: bytes} of a plan's first rank: what it keeps between steps, and what it has of
    anything else at most. The log has measured it, no formula."""
    memory = plan["ranks"][0]["memory"]
    kept = ("sharded parameters", "sharded gradients", "optimizer state")
    others = ("unsharded parameters", "unsharded gradients", "activations")
    return {**{name: memory[name][1] for name in kept},
            **{name: memory[name][2] for name in others}}


# ---- Timelines ----

MACHINE = """base h100x8
model   plain
latency 5 us
nvlink  %d GB/s
"""
BANDWIDTHS = (25, 50, 100, 200, 400) # GB/s
TOKENS = (512, 1024, 2048, 4096, 8192) # on each GPU
DEPTHS = (0, 1, 2)
MODEL = {"LAYERS": 5, "HEADS": 16, "DIM": 2048, "VOCAB": 16384, "SEQ": 512, "GPUS": 8,
         "STRATEGY": "zero3", "DTYPE": "bf16"}
LANES = ("all-gather", "kernels", "reduce-scatter")
JOIN = 2 # tenths of a microsecond: a gap that cannot be seen
TENTH = 100000 # picoseconds of a tenth of a microsecond


@dataclass
class Walk:
    """What a timeline's operations have said so far."""
    layers: int
    record: dict = field(default_factory=dict) # event: the unit whose all-gather it follows, or ""
    gathers: int = 0
    scatters: int = 0
    unit: str = "root"
    phase: str = "F"
    last: dict = field(default_factory=dict) # stream: the last all-gather's unit on it

    def gathered(self):
        """The unit of the next all-gather: the root and the blocks in order, then back."""
        n = self.gathers
        self.gathers += 1
        if n == 0:
            return "root"
        return "h.%d" % (n - 1 if n <= self.layers else 2 * self.layers - n)

    def reduced(self):
        n = self.scatters
        self.scatters += 1
        return "h.%d" % (self.layers - 1 - n) if n < self.layers else "root"


def stream_of(operations, wanted):
    return next(row[2] for row in operations if row[0] in wanted)


def boxes(line, layers):
    """[[lane, kind, unit, begin, end]] of a timeline: kind is F, B or O for kernels of the forward,
    the backward and the optimizer, A and R for collectives; tenths of microseconds.

    The kernels of a unit are those after the wait for its all-gather, up to the record that says
    that they are queued; what comes then is the root's."""
    operations = line["operations"]
    compute, walk, found = stream_of(operations, ("BLAS call",)), Walk(layers), []
    last_scatter = max(i for i, row in enumerate(operations) if row[0] == "reduce-scatter")
    for i, (op, name, stream, event, begin, end, _) in enumerate(operations):
        begin, end = round(begin / TENTH), round(end / TENTH)
        if op == "all-gather":
            walk.last[stream] = walk.gathered()
            found.append([0, "A", walk.last[stream], begin, end])
        elif op == "reduce-scatter":
            found.append([2, "R", walk.reduced(), begin, end])
        elif op == "event record":
            walk.record[event] = walk.last.get(stream, "") if stream != compute else ""
            walk.unit = "root" if stream == compute else walk.unit
        elif op == "stream wait":
            if stream == compute and walk.record.get(event, ""):
                walk.unit = walk.record[event]
        elif stream == compute and end > begin:
            kind = "O" if i > last_scatter else walk.phase
            add(found, [1, kind, "" if kind == "O" else walk.unit, begin, end])
            if "cross_entropy" in name: # the loss, and its gradient
                walk.phase = "B"
    if walk.gathers != 2 * layers + 1 or walk.scatters != layers + 1:
        raise NoPlan("a step of %d all-gathers and %d reduce-scatters is not that of %d blocks"
                     % (walk.gathers, walk.scatters, layers))
    return found


def add(found, box):
    """Kernels that follow each other are one box."""
    before = next((one for one in reversed(found) if one[0] == box[0]), None)
    if before and before[1:3] == box[1:3] and box[3] - before[4] <= JOIN:
        before[4] = max(before[4], box[4])
    else:
        found.append(box)


class Grid:
    """The timelines, and the figures of each step."""

    def __init__(self, planner, bandwidths=BANDWIDTHS, tokens=TOKENS, depths=DEPTHS):
        self.planner = planner
        self.bandwidths = bandwidths
        self.tokens = tokens
        self.depths = depths

    @staticmethod
    def settings(tokens, depth):
        """Depth 1 is what the tasks do, without lab 3."""
        found = dict(MODEL, BATCH=MODEL["GPUS"] * tokens // MODEL["SEQ"])
        return found if depth == 1 else dict(found, PREFETCH=depth)

    def cells(self):
        """{(bandwidth, tokens, depth): {figures and boxes}}"""
        places = [(bandwidth, tokens, depth) for bandwidth in self.bandwidths
                  for tokens in self.tokens for depth in self.depths]
        questions = [(self.settings(tokens, depth), kind, MACHINE % bandwidth)
                     for bandwidth, tokens, depth in places for kind in ("JSON", "TIMELINE")]
        answers = self.planner.all(questions)
        return {place: cell(answers[2 * i], answers[2 * i + 1]) for i, place in enumerate(places)}

    def javascript(self):
        """Cells in the order of the three lists, the last one fastest."""
        data = {"bandwidths": list(self.bandwidths), "tokens": list(self.tokens),
                "depths": list(self.depths), "lanes": list(LANES), "model": MODEL,
                "cells": list(self.cells().values())}
        return ("// Planned by `make plan`'s program; made by grader/course/site_data.py.\n"
                "window.ShardLab = window.ShardLab || {};\nShardLab.timelineData = %s;\n"
                % json.dumps(data, separators=(",", ":")))


def cell(plan, line):
    times = plan["times"]
    return {**{name: times[name] for name in
               ("step", "compute", "communication", "exposed", "idle")},
            "unsharded": plan["ranks"][0]["memory"]["unsharded parameters"][2],
            "boxes": boxes(line, MODEL["LAYERS"])}
