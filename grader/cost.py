"""What a complete solution's schedule costs: one line, and a paragraph of the results page.

A step of training GPT-2 medium runs dry on eight ranks (tests/trace/cost.c), and is timed from its
log on a modelled machine, outside of the ranks. The figures come with the test's verdict
(runner.py), where the code under test has no say, and are numbers or nothing: it writes no word of
the line. No points hang on it;
whatever goes wrong, there is no line.

Interface: take(builder, tasks, run, account) -> Cost or None; line(cost), why_slow(cost).
"""

import os
from dataclasses import dataclass

import trace
from files import write_atomically

TEST = "cost"
LIMIT = 20.0 # seconds, times SHARDLAB_TIME_FACTOR; it takes one
WHAT = "GPT-2 medium, float, B 8, T 1024, h100x8" # tests/trace/cost.c
MOST = 1 << 56 # picoseconds: 20 hours


def percent(part, whole):
    """Rounded; 99.6 % is not all of it."""
    return 100 if part == whole else min(99, int(100 * part / whole + 0.5))


@dataclass
class Figures:
    """Picoseconds; GFLOP/s."""
    step: int
    compute: int
    communication: int
    exposed: int
    peak_float: int
    peak_tf32: int

    def words(self):
        hidden = self.communication - self.exposed
        return "%.1f ms" % (self.step / 1e9), "%d %%" % (
            percent(hidden, self.communication) if self.communication else 100)


@dataclass
class Cost:
    own: object              # Figures
    reference: object = None # None: these are the reference's own, or it left none


def figures_of(numbers):
    """Figures from a verdict's numbers; None where they cannot be a schedule's."""
    if not isinstance(numbers, list) or len(numbers) != 6:
        return None
    if not all(type(number) is int and 0 <= number <= MOST for number in numbers):
        return None
    found = Figures(*numbers)
    if not 0 < found.step or max(found.compute, found.communication) > found.step \
            or found.exposed > found.communication or not 0 < found.peak_float <= found.peak_tf32:
        return None
    return found


def line(cost):
    step, hidden = cost.own.words()
    text = "%s: %s per step, %s of communication hidden" % (WHAT, step, hidden)
    if cost.reference:
        text += "; the reference %s, %s" % cost.reference.words()
    return text


def why_slow(cost):
    """Why this step takes so long, as sentences."""
    own = cost.own
    return ("Kernels run for %d %% of the step. They multiply in float, at most %.0f TFLOP/s on an "
            "H100. With TF32 it has %.0f TFLOP/s, but cuBLAS rounds floats to its 10 bits only if "
            "the program allows it (CUBLAS_TF32_TENSOR_OP_MATH), and the kit does not. So a "
            "step takes long, and communication is easily hidden behind it; with TF32 or bf16 "
            "there is a fraction of that time to send the same bytes in."
            % (percent(own.compute, own.step), own.peak_float / 1000, own.peak_tf32 / 1000))


# ---- Taking ----

def measure(builder, key, run, account):
    """(program, Figures or None): what the program linked for this key says."""
    program = trace.program_of(builder, key, TEST)
    verdict, _ = run(program, account, TEST)
    return figures_of(verdict.figures) if verdict.status == "passed" else None


def reference_cost(builder, run):
    """The reference's, from the build tree where it is as new as the program; None without one."""
    kept = os.path.join(trace.ROOT, builder.build, "trace", "reference_%s.txt" % TEST)
    if trace.link(builder, "reference", [], TEST):
        return None
    program = os.path.join(trace.ROOT, trace.program_of(builder, "reference", TEST))
    try:
        if os.path.getmtime(kept) > os.path.getmtime(program):
            with open(kept, encoding="ascii") as file:
                found = figures_of([int(word) for word in file.read(200).split()])
            if found:
                return found
    except (OSError, ValueError):
        pass # made again below
    found = measure(builder, "reference", run, None)
    if found:
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        write_atomically(kept, "%d %d %d %d %d %d\n" % (
            found.step, found.compute, found.communication, found.exposed, found.peak_float,
            found.peak_tf32))
    return found


def take(builder, tasks, run, account=None):
    """The cost of six complete files; None where it cannot be told."""
    if builder.backend != "simgpu":
        return None
    reference = reference_cost(builder, run)
    if builder.key == "reference":
        return Cost(reference) if reference else None
    if trace.link(builder, builder.key, [task.name for task in tasks], TEST):
        return None
    own = measure(builder, builder.key, run, account)
    return Cost(own, reference) if own else None
