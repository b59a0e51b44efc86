"""How a planned step scales: each doubling of the GPUs from SWEEP's first number to its last, as a
table and as an SVG.

*Weak* scaling: each GPU has as many sequences as BATCH gives it at the smallest size (1 without
BATCH). *Strong* scaling: all GPUs together have as many as the largest size has then, so that each
of fewer GPUs has more. Both meet at the largest size. A point that does not fit into a GPU is
hollow; one that needs terabytes more than any GPU has, so that it cannot be planned, is left out.

Interface: main(program, settings, folder) -> exit status; sizes(text), draw(points, title) -> SVG.
"""

import json
import math
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from html import escape

import layout
import runner
from files import write_atomically

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 56
KINDS = ("weak", "strong")
COLOURS = {"weak": "#2563a8", "strong": "#b3541e"}
LIMIT = 600.0 # seconds of a plan


class BadSweep(Exception):
    """What was asked for makes no sense; the text says what, in a line."""


class TooLarge(BadSweep):
    """A GPU would need more memory than the planner has addresses for."""


@dataclass
class Point:
    kind: str
    gpus: int
    batch: int
    seconds: float
    tokens: float # per second and GPU
    mfu: float
    exposed: float # part of the step
    fits: bool


def sizes(text):
    """The numbers of GPUs from SWEEP=8..4096."""
    match = re.fullmatch(r"(\d{1,5})\.\.(\d{1,5})", text)
    first, last = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    if not 1 <= first < last:
        raise BadSweep("SWEEP=%s: must be two numbers of GPUs, as 8..4096" % text[:40])
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    if found[-1] != last:
        raise BadSweep("SWEEP=%s: %d does not become %d by doubling" % (text, first, last))
    return found


def per_gpu(settings, first):
    text = settings.get("BATCH", str(first))
    if not text.isdigit() or int(text) < first or int(text) % first:
        raise BadSweep("BATCH=%s sequences do not divide into the sweep's first %d GPUs"
                       % (text[:40], first))
    return int(text) // first


def plan(program, settings):
    """The planner's figures; BadSweep with what it says where it makes none."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        done = subprocess.run(
            [program] + ["%s=%s" % pair for pair in settings.items()]
            + ["JSON=" + path, "ADVICE=no"],
            env=runner.clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", check=False,
            timeout=LIMIT * runner.time_factor())
        if done.returncode == 1 and "out of device memory" in done.stderr:
            raise TooLarge("a GPU would need terabytes")
        if done.returncode:
            raise BadSweep(re.sub(r"^plan: ", "", done.stderr.strip() or "the planner failed"))
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def point_of(kind, found):
    step = found["times"]["step"]
    return Point(kind, found["gpus"], found["batch"], step / 1e12,
                 found["tokens_per_second_per_gpu"], found["mfu"], found["times"]["exposed"] / step,
                 found["reserved"] <= found["offered"])


# ---- Drawing ----

def scales(points):
    """(x of a number of GPUs, y of an MFU, the axis's largest MFU)"""
    first, last = min(p.gpus for p in points), max(p.gpus for p in points)
    most = math.ceil(max(p.mfu for p in points) * 10 + 1e-9) / 10
    across = (WIDTH - LEFT - RIGHT) / math.log2(last / first)
    return (lambda gpus: LEFT + across * math.log2(gpus / first),
            lambda mfu: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * mfu / most, most)


def axes(points, x, y, most):
    parts = []
    for i in range(int(most * 10 + 0.5) + 1):
        at = y(i / 10)
        parts.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>' % (
            LEFT, WIDTH - RIGHT, at, at))
        parts.append('<text x="%d" y="%.1f" text-anchor="end">%d %%</text>' % (
            LEFT - 8, at + 4, 10 * i))
    for gpus in sorted({p.gpus for p in points}):
        parts.append('<text x="%.1f" y="%d" text-anchor="middle">%d</text>' % (
            x(gpus), HEIGHT - BOTTOM + 20, gpus))
    parts.append('<text x="%.1f" y="%d" text-anchor="middle">GPUs</text>' % (
        (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12))
    parts.append('<text x="%d" y="%d">MFU</text>' % (8, TOP - 12))
    return parts


def draw(points, title):
    """The points as an SVG of its own."""
    x, y, most = scales(points)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
             'font-size="12">' % (WIDTH, HEIGHT), "<title>%s</title>" % escape(title),
             '<rect width="100%" height="100%" fill="white"/>',
             '<text x="%d" y="18" font-size="14">%s</text>' % (LEFT, escape(title))]
    parts += axes(points, x, y, most)
    for i, kind in enumerate(KINDS):
        own = [p for p in points if p.kind == kind]
        parts.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' % (
            COLOURS[kind], " ".join("%.1f,%.1f" % (x(p.gpus), y(p.mfu)) for p in own)))
        for p in own:
            parts.append('<circle cx="%.1f" cy="%.1f" r="4" stroke="%s" fill="%s"><title>%s</title>'
                         "</circle>" % (x(p.gpus), y(p.mfu), COLOURS[kind],
                                        COLOURS[kind] if p.fits else "white",
                                        escape("%d GPUs, %s: %.3f ms, %.0f tokens/s per GPU" % (
                                            p.gpus, kind, 1e3 * p.seconds, p.tokens))))
        parts.append('<text x="%d" y="%d" fill="%s">%s scaling</text>' % (
            WIDTH - RIGHT + 16, TOP + 14 + 18 * i, COLOURS[kind], kind))
    parts.append('<text x="%d" y="%d">hollow: does not fit</text>' % (
        WIDTH - RIGHT + 16, TOP + 14 + 18 * len(KINDS)))
    return "\n".join(parts + ["</svg>"]) + "\n"


# ---- All of it ----

def take(program, settings, gpus):
    """The points, each told when it is known."""
    each = per_gpu(settings, gpus[0])
    print("%-6s %5s %7s %11s %12s %7s %9s" % (
        "", "GPUs", "batch", "ms", "tokens/s/GPU", "MFU", "exposed"))
    points = []
    for kind in KINDS:
        for n in gpus:
            batch = each * (n if kind == "weak" else gpus[-1])
            try:
                found = plan(program, dict(settings, GPUS=n, BATCH=batch))
            except TooLarge:
                print("%-6s %5d %7d   does not fit, by terabytes: left out" % (kind, n, batch),
                      flush=True)
                continue
            point = point_of(kind, found)
            points.append(point)
            print("%-6s %5d %7d %11.3f %12.0f %5.1f %% %7.1f %%%s" % (
                kind, n, batch, 1e3 * point.seconds, point.tokens, 100 * point.mfu,
                100 * point.exposed, "" if point.fits else "   does not fit"), flush=True)
    if len({point.gpus for point in points}) < 2:
        raise TooLarge("fewer than two of these sizes can be planned: a GPU would need terabytes")
    return points


def main(program, settings, folder):
    """Sweeps, with the settings of a plan and SWEEP, SVG; exit status."""
    settings = dict(setting.partition("=")[::2] for setting in settings)
    text, path = settings.pop("SWEEP", ""), settings.pop("SVG", "")
    path = path or os.path.join(folder, "sweep.svg")
    try:
        for name in ("GPUS", "JSON", "TIMELINE", "FIT", "RANKS", "RUN"):
            if name in settings:
                raise BadSweep("SWEEP cannot be combined with %s" % name)
        gpus = sizes(text)
        points = take(program, settings, gpus)
        title = "%s on %s, %s" % (settings.get("MODEL", "gpt2"), settings.get("MACHINE", "h100x8"),
                                  settings.get("STRATEGY", "fsdp"))
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        write_atomically(path, draw(points, title))
    except BadSweep as problem:
        layout.tell("plan: %s" % problem)
        return 2
    except OSError as problem:
        layout.tell("plan: %s cannot be written: %s" % (path, problem.strerror))
        return 1
    print("\nDrawn: %s" % path)
    return 0
