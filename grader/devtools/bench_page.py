"""The page of `make bench`: what was measured, as Markdown.

Each figure is a median with its smallest and largest in brackets. Where other programs ran, the
columns of wall time have a mark.

Interface: page(facts, parts, claims), write(folder, date, text), summary(claims).
"""

import glob
import os
import tempfile

from bench_judge import UNCERTAIN

DAGGER = "†" # of what means nothing on a loaded machine


def number(x, digits=3):
    """So many significant digits, and no exponent."""
    if x == 0:
        return "0"
    text = "%.*g" % (digits, x)
    return "%.0f" % x if "e" in text or abs(x) >= 10 ** digits else text


def spread(s, unit=1.0, digits=3):
    least, middle, most = (number(x * unit, digits) for x in (s.least, s.middle, s.most))
    return middle if least == most else "%s (%s–%s)" % (middle, least, most)


def percent(s):
    return "%.0f %% (%.0f–%.0f)" % (100 * s.middle, 100 * s.least, 100 * s.most)


def size(n):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit:
            return "%d %s" % (n // unit, name)
    return "%d B" % n


def table(head, rows):
    lines = ["| %s |" % " | ".join(head), "|" + "---|" * len(head)]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows]) + "\n"


def header(facts):
    """The machine, and whether wall time means anything."""
    foreign = "unknown" if facts["foreign"] is None else "%.2f cores" % facts["foreign"]
    rows = [["machine", "%s, %d cores, %.1f GiB" % (facts["machine"]["cpu"],
                                                   facts["machine"]["cores"], facts["memory"])],
            ["compiler", facts["machine"]["compiler"]],
            ["BLAS", facts["blas"]],
            ["commit", facts["commit"]],
            ["command", "`%s`, %.0f s" % (facts["command"], facts["seconds"])],
            ["load before, after", "%.2f, %.2f" % facts["load"]],
            ["other programs meanwhile", foreign]]
    text = "# %s: make bench, %s\n\n" % (facts["when"][:10], facts["level"])
    text += table(["what", ""], rows)
    text += ("\nA figure is the median of the rounds, with the smallest and the largest in "
             "brackets; rounds are interleaved.\nCPU time is user and system time of all "
             "processes, after one step of warm-up; how to read the rest is in\n"
             "[bench/README.md](../README.md).\n")
    if facts["loaded"]:
        text += ("\n**%s The machine was loaded: other programs used %s of %d. No wall time and no "
                 "tokens/s below means\nanything; CPU times are too long by some percent.**\n"
                 % (DAGGER, foreign, facts["machine"]["cores"]))
    return text


def claims_part(claims):
    rows = [[claim.what, spread(claim.spread),
             "%s–%s" % (number(claim.known.least), number(claim.known.most)),
             ("≥ " if claim.at_least else "≤ ") + number(claim.bound), claim.why()]
            for claim in claims]
    counts = "A claim counts only where the median of many rounds is known to less than the margin."
    return "\n## Bounds\n\n%s\n\n%s" % (
        counts, table(["figure", "measured", "median of many rounds", "bound", ""], rows))


def steps_part(part, mark):
    model = part["model"]
    tokens = part["rows"][0]["tokens"]
    text = ("\n## A training step: %s\n\n%d layers, %d heads, width %d, vocabulary %d; %d "
            "sequences of %d tokens in all (B·T = %d), shared by\nthe ranks; %d steps per round. "
            "The floor, the matrix products alone on one thread: %s ms of CPU time; cut into\n"
            "simgpu's blocks, also on one thread: %s of that.\n\n"
            % (model.title, model.layers, model.heads, model.dim, model.vocab, model.batch,
               model.sequence, tokens, part["steps"], spread(part["floor"], 1e3),
               spread(part["blocks"])))
    rows = [[row["title"], spread(row["cpu"], 1e3), percent(row["share"]), spread(row["wall"], 1e3),
             "%.0f" % (tokens / row["wall"].middle), "%.0f" % (row["peak"].middle / 2**20),
             spread(row["start_user"], 1.0, 2) + " + " + number(row["start_sys"].middle, 2),
             number(1e3 * row["first"].middle)] for row in part["rows"]]
    text += table(["", "CPU per step, ms", "floor / CPU", "wall per step, ms" + mark,
                   "tokens/s" + mark, "peak per rank, MiB", "start-up, user + system, s",
                   "first step, CPU ms"], rows)
    text += "\n<details><summary>The floor's products</summary>\n\n"
    text += table(["form", "m", "n", "k", "per step", "CPU, µs", "GFLOP/s"],
                  [[form, str(m), str(n), str(k), str(count), number(1e6 * seconds),
                    number(2e-9 * m * n * k / seconds)]
                   for form, m, n, k, count, seconds in part["shapes"]])
    return text + "\n</details>\n"


def startup_part(part, mark):
    rows = [[title, spread(s["start_user"]), spread(s["start_sys"]), spread(s["start_wall"])]
            for title, s in part["rows"]]
    return ("\n## Starting up: %s\n\nUntil the first step can begin. Page faults are system "
            "time.\n\n%s" % (part["model"].title,
                            table(["", "user, s", "system, s", "wall, s" + mark], rows)))


def collectives_part(tables, mark):
    text = ("\n## Collectives against memcpy\n\nOf as many bytes as the larger buffer has. CPU "
            "time of a rank, µs, and how many times memcpy's; then wall time, µs.\n")
    for ranks, found in tables:
        rows = []
        for n in sorted({n for _, n in found}):
            copy = found["memcpy", n][1]
            row = [size(n), spread(copy, 1e6)]
            for name in ("all-gather", "reduce-scatter", "all-reduce"):
                wall, cpu = found[name, n]
                row += ["%s, %s×" % (spread(cpu, 1e6), number(cpu.middle / copy.middle, 2)
                                     if copy.middle else "?"), number(1e6 * wall.middle)]
            rows.append(row)
        text += "\nW = %d\n\n" % ranks
        text += table(["bytes", "memcpy, CPU", "all-gather, CPU", "wall" + mark,
                       "reduce-scatter, CPU", "wall" + mark, "all-reduce, CPU", "wall" + mark],
                      rows)
    return text


def compared_table(name, rows):
    return table([name, "CPU per step, ms", "over the first", "peak per rank, MiB"],
                 [[title, spread(cpu, 1e3), spread(ratio), "%.0f" % (peak.middle / 2**20)]
                  for title, cpu, ratio, peak in rows])


def growth_part(part):
    sizes = part["sizes"]
    return ("\n## Growth\n\nThe first model, %d sequences of %d tokens over W ranks, one thread "
            "each.\n\n%s\nThe same model on one GPU without FSDP, %d sequences of %d tokens, by "
            "its layers.\n\n%s"
            % (sizes["batch"], sizes["sequence"], compared_table("ranks", part["ranks"]),
               part["model"].batch, part["model"].sequence,
               compared_table("layers", part["depth"])))


def checks_part(part):
    return ("\n## Checks and the clock\n\nThe first model on %d ranks.\n\n%s"
            % (part["ranks"], compared_table("settings", part["rows"])))


def loops_part(rows, mark):
    return "\n## The kit's own loops\n\n" + table(
        ["command", "CPU, s", "wall, s" + mark],
        [[what, spread(cpu), spread(wall)] for what, cpu, wall in rows])


def page(facts, parts, claims):
    """parts: {section: what bench_sections made}."""
    mark = " " + DAGGER if facts["loaded"] else ""
    text = header(facts) + claims_part(claims)
    for part in parts.get("steps", ()):
        text += steps_part(part, mark)
    if parts.get("startup"):
        text += startup_part(parts["startup"], mark)
    text += collectives_part(parts["collectives"], mark) + growth_part(parts["growth"]) + \
        checks_part(parts["checks"])
    if parts.get("loops"):
        text += loops_part(parts["loops"], mark)
    return text


def write(folder, date, text):
    """The page under a name that no earlier one has, at once; its path."""
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".bench-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        taken = len(glob.glob(os.path.join(folder, date + "-bench*.md")))
        for n in range(1, taken + 2):
            path = os.path.join(folder, date + "-bench%s.md" % ("-%d" % n if n > 1 else ""))
            try:
                os.link(temporary, path) # fails where the name is taken; a rename would replace it
                return path
            except FileExistsError:
                continue
        raise OSError("no name is free for %s-bench.md in %s" % (date, folder))
    finally:
        os.unlink(temporary)


def summary(claims):
    """What the terminal shows at the end."""
    lines = ["  %-52s %-24s %s %-5s %s" % (claim.what, spread(claim.known),
                                           "≥" if claim.at_least else "≤", number(claim.bound),
                                           claim.why()) for claim in claims]
    uncertain = sum(claim.verdict() == UNCERTAIN for claim in claims)
    return "\n".join(lines + ["  %d bounds, %d of them not certain" % (len(claims), uncertain)])
