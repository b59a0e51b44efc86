#!/usr/bin/env python3
"""Draws two pictures of what the reference does, for the README and the handouts: memory.svg, what
one GPU holds during a training step of the model of `make demo-oom`, with FSDP on four ranks and
without it; step.svg, when one GPU does what during a step, with prefetch and without it.

Both are measured: tests/trace/steps.c trains a model on four ranks, and for the first on one, where
nothing is sharded, and prints every allocation and the times of a modelled machine. The drawings
are grader/plot.py's and grader/timeline.py's, with a style sheet within, so that a picture has its
own ground and reads in light and in dark pages.

Interface: figure.py [--build DIR] [--out FOLDER]; draw(sharded, alone), draw_step(with_prefetch,
without) -> SVG as text.
"""

import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import plot
import timeline
import trace
from builder import Builder, Infrastructure
from files import write_atomically

OUT = os.path.join("handouts", "figures")
WORLD = 4
DEVICE = 64 << 20 # bytes of a GPU of `make demo-oom`
LIMIT = 300       # seconds that a training may take
TOP, BOTTOM, HEIGHT = 66, 366, 458
WORDS = {"kept": "its shards: parameters, gradients, moments", "params": "unsharded parameters",
         "grads": "unsharded gradients", "rest": "activations and the rest"}

STYLE = """
text { fill: #1b1f24; font: 15px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
.title { font-size: 17px; font-weight: 600; } .tick { fill: #57606a; font-size: 14px; }
.strong { font-weight: 600; } .ground { fill: #ffffff; }
.grid { stroke: #d0d7de; stroke-width: 0.8; } .axis { stroke: #57606a; }
.phase0 { fill: #eef3fa; } .phase1 { fill: #f8f1ea; }
.k-kept { fill: #8c959f; } .k-params { fill: #0072b2; } .k-grads { fill: #d55e00; }
.k-rest { fill: #e9c46a; }
.halo { fill: none; stroke: #ffffff; stroke-width: 4; stroke-opacity: 0.75; }
.line-alone { fill: none; stroke: #1b1f24; stroke-width: 2.2; }
.line-device { fill: none; stroke: #a40e26; stroke-width: 2; stroke-dasharray: 7 4; }
.device { fill: #a40e26; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ed; } .tick { fill: #9da7b3; } .ground { fill: #0f1419; }
.grid { stroke: #38414c; } .axis { stroke: #9da7b3; }
.phase0 { fill: #17212e; } .phase1 { fill: #271f19; }
.k-kept { fill: #6b7683; } .k-params { fill: #3d9edb; } .k-grads { fill: #f08337; }
.k-rest { fill: #cfae57; }
.halo { stroke: #0f1419; } .line-alone { stroke: #e6e9ed; }
.line-device { stroke: #ff8a93; } .device { fill: #ff8a93; } }
"""


STEP_STYLE = """
text, text.small { font-size: 12px; } text.tick { font-size: 11px; }
text.box, text.box-k { font-size: 10px; }
text.box { fill: #ffffff; } .k-sent0 { fill: #0072b2; } .k-sent1 { fill: #d55e00; }
.s-k, .s-o { fill: #c6cdd5; } .s-f { fill: #c3e3d1; } .s-b { fill: #bda6d6; }
.line-bound { stroke: #00735a; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
text.box { fill: #0f1419; } .k-sent0 { fill: #3d9edb; } .k-sent1 { fill: #f08337; }
.s-k, .s-o { fill: #465261; } .s-f { fill: #2b5543; } .s-b { fill: #6a4f8a; }
.line-bound { stroke: #45cfa9; } }
"""


class Failed(Exception):
    """There is no picture; the text says why."""


# ---- Measuring ----

def run(command, **more):
    """What a command printed."""
    try:
        done = subprocess.run(command, cwd=ROOT, env=dict(os.environ, **more), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise Failed("%s took longer than %d s" % (command[0], LIMIT))
    if done.returncode != 0:
        raise Failed("%s failed:\n%s" % (" ".join(command), done.stdout[-2000:]))
    return done.stdout


def measure(build):
    """The reference's traces: of the demo's model on four ranks, and on one; of a smaller one with
    prefetch, and without."""
    builder = Builder(os.path.join(ROOT, "reference"), build, "simgpu")
    wrong = trace.link(builder, "reference", [])
    if wrong:
        raise Failed("%s does not build:\n%s" % (trace.program_of(builder, "reference"), wrong))
    program = os.path.join(ROOT, trace.program_of(builder, "reference"))
    return ([trace.parse(run([program, "--only", trace.TEST], SHARDLAB_TRACE_WORLD=str(world)))
             for world in (WORLD, 1)],
            [trace.parse(run([program, "--only", test]))
             for test in (trace.TEST, trace.WITHOUT_PREFETCH)])


# ---- Drawing ----

def mega(count):
    return "%.1f MB" % (count / 1e6)


def swatches(svg, y, kinds):
    """A row of the legend."""
    x = float(plot.LEFT)
    for kind in kinds:
        svg.rect(x, y - 12, 22, 14, "k-" + kind)
        svg.text(x + 29, y, WORDS[kind])
        x += 420


def draw(sharded, alone):
    """The picture of the last step."""
    step = sharded.steps - 1
    course, other = plot.Course(sharded, 0, step), plot.Course(alone, 0, step)
    if course.marks != other.marks:
        raise Failed("the two trainings do not have the same forwards and backwards")
    numel = sum(unit.numel for unit in sharded.units)
    peak, whole = sharded.table[0, step].peak, alone.table[0, step].peak
    svg = plot.Svg(HEIGHT, "Memory of one GPU during a training step, with FSDP and without",
                   "With FSDP on %d GPUs each holds at most %s; one GPU without it %s, which is "
                   "more than the 64 MiB that it has."
                   % (WORLD, plot.exact(peak), plot.exact(whole)))
    svg.parts[0] = svg.parts[0].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    svg.parts.append("<style>%s</style>" % STYLE)
    svg.rect(0, 0, plot.WIDTH, HEIGHT, "ground")
    edges = plot.edges_of(course, other, plot.LEFT, plot.WIDTH - plot.RIGHT)
    areas = plot.phases(course, edges)
    for i, (_, left, right) in enumerate(areas):
        svg.rect(left, TOP, right - left, BOTTOM - TOP, "phase%d" % (i % 2))
    scale = plot.Scale(svg, TOP, BOTTOM, whole)
    plot.stacked(svg, course.place(edges), scale)
    svg.marked([(x, scale.y(sum(level))) for x, level in other.place(edges)], "line-alone")
    svg.marked([(plot.LEFT, scale.y(DEVICE)), (plot.WIDTH - plot.RIGHT, scale.y(DEVICE))],
               "line-device")
    svg.text(plot.LEFT, 24, "Memory of one GPU during a training step of GPT-2 with %.1f million "
             "parameters" % (numel / 1e6), "title")
    for words, left, right in areas:
        svg.text((left + right) / 2, TOP - 9, words, anchor="middle")
    middle = plot.LEFT + 14
    svg.text(middle, scale.y(whole * 0.85), "without FSDP: %s at its peak" % mega(whole), "strong")
    svg.text(middle, scale.y(DEVICE) + 19, "what the GPU has: 64 MiB", "device")
    svg.text(middle, scale.y(peak) - 24, "with FSDP, on each of %d GPUs: %s at its peak"
             % (WORLD, mega(peak)), "strong")
    svg.text((plot.LEFT + plot.WIDTH) / 2, BOTTOM + 20,
             "operations, in the order in which they were queued", "tick", "middle")
    swatches(svg, BOTTOM + 52, ("kept", "params"))
    swatches(svg, BOTTOM + 78, ("rest", "grads"))
    return svg.done() + "\n"


def draw_step(with_prefetch, without):
    """The picture of the last step in time."""
    drawn = timeline.draw(with_prefetch, without, ("FSDP with prefetch", "without prefetch"))
    head, rest = drawn.split("\n", 1)
    ground = '<rect width="100%" height="100%" class="ground"/>'
    return "%s\n<style>%s%s</style>\n%s\n%s\n" % (
        head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '), STYLE, STEP_STYLE,
        ground,
        rest)


def main():
    parser = argparse.ArgumentParser(description="Draw the pictures of README and handouts.")
    parser.add_argument("--build", default="build", metavar="DIR", help="the build tree (build)")
    parser.add_argument("--out", default=os.path.join(ROOT, OUT), metavar="FOLDER",
                        help="where they go (%s)" % OUT)
    options = parser.parse_args()
    try:
        memory, steps = measure(options.build)
        write_atomically(os.path.join(options.out, "memory.svg"), draw(*memory))
        write_atomically(os.path.join(options.out, "step.svg"), draw_step(*steps))
        return 0
    except (Failed, Infrastructure, trace.BadTrace, OSError) as problem:
        print("figure: %s" % problem, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
