#!/usr/bin/env python3
"""The results of a grading as one page of HTML that stands alone.

The page holds no script and asks for nothing from anywhere: its Content-Security-Policy allows its
own style sheet, known by its sum, and nothing else. What programs under test have said stands in it
as text, cleaned, cut and escaped; no attribute is made of it.

    page.py RESULTS.json [--trace OUTPUT] [--staff] > page.html

Interface: make(document, outcome, now) -> text; write(path, …); make_demo(outcome, ranks, now),
write_demo(path, …); tidy(value).
Files: plot.py and timeline.py (the plots), trace.py (where their figures come from), page_style.py.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import shlex
import sys
import time
from html import escape

import cost as schedule_cost
import plot
import timeline
import runner
import trace
from emit import common
from files import write_atomically
from page_style import STYLE
from report import NOT_YET, all_but, foremost, looks_right, mark_of, short_message

WORDS = {"passed": "✓ passed", "failed": "✗ failed", "error": "✗ error",
         "timeout": "✗ time-out", "skipped": "– skipped", "todo": "○ todo",
         "infrastructure": "? no verdict"}
MOST_HINTS = 8
CAUSE = re.compile(r"^\s*Likely cause\b.*(?:\n[ \t]+\S.*)*", re.MULTILINE)
FILE_LIMIT = 64 << 20

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-%s'; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>%s</style>
</head>
<body>
"""


# ---- What is said ----

def words_of(value):
    """The texts of a field that is a text or a list of them."""
    entries = value if isinstance(value, list) else [value]
    return [common.clean(entry, 1000) for entry in entries[:MOST_HINTS]
            if isinstance(entry, str) and entry.strip()]


def tidy(value):
    """A document whose every field is of its kind, with what a page shows beside what emitters
    do."""
    document = common.tidy(value)
    raw = value if isinstance(value, dict) else {}
    entries = raw.get("tests") if isinstance(raw.get("tests"), list) else []
    document["tests"] = []
    for entry in entries[:common.MOST_TESTS]:
        test = common.tidy_test(entry)
        if not test:
            continue
        test["hints"] = (words_of(entry.get("hint")) + words_of(entry.get("more")))[:MOST_HINTS]
        for name in ("section", "ask", "look"):
            test[name] = common.clean(entry.get(name), 200 if name == "section" else 500)
        test["foremost"] = entry.get("foremost") is True
        reports = entry.get("reports") if isinstance(entry.get("reports"), list) else []
        test["reports"] = [runner.clean_fields(report, runner.REPORT_FIELDS)
                           for report in reports[:runner.REPORT_LIMIT] if isinstance(report, dict)]
        document["tests"].append(test)
    for name in ("impl", "backend", "seed"):
        kept = raw.get(name)
        document[name] = common.clean(kept, 200) if isinstance(kept, (str, int)) else ""
    document["alone"] = raw["task"] if type(raw.get("task")) is int else None
    document["word"] = "Lab" if raw.get("labs") is True else "Task"
    return document


def text(value, limit=common.MESSAGE_LIMIT):
    """Anything as text of the page."""
    return escape(common.clean(value, limit))


def tag(name, inner, kind=""):
    """An element; `inner` is HTML, `kind` is a word of ours."""
    return "<%s%s>%s</%s>" % (name, ' class="%s"' % kind if kind else "", inner, name)


def details(summary, inner):
    return "<details><summary>%s</summary>%s</details>" % (summary, inner)


def points(earned, full):
    return "%s/%s" % (common.points(earned), common.points(full))


# ---- The parts ----

def header(document, now):
    full, earned = document["max_score"], common.earned(document)
    title = "ShardLab: %s points" % points(earned, full)
    if document["status"] != "graded":
        title = "ShardLab: no score"
    if document["alone"]:
        title += " (%s %d only)" % (document["word"].lower(), document["alone"])
    facts = [("Graded", now), ("Folder", document["impl"]), ("Backend", document["backend"]),
             ("Devices", document["devices"]), ("Seed", document["seed"]),
             ("Took", "%.1f s" % document["seconds"]), ("Version", document["version"])]
    rows = "".join("<dt>%s</dt><dd>%s</dd>" % (name, text(value, 300))
                   for name, value in facts if value)
    said = tag("p", text(common.summary(document))) if document["status"] != "graded" else ""
    return title, tag("header", tag("h1", title) + said
                      + '<dl class="facts">%s</dl>' % rows)


def next_steps(document):
    """The first test that did not pass, and what to do about it."""
    wrong = [test for test in document["tests"] if test["status"] != "passed"]
    first = foremost(wrong)
    if first is None or document["status"] != "graded":
        said = tag("p", text(all_but(wrong)) if wrong else "All tests pass.") \
            if document["tests"] and not first else ""
        return tag("section", tag("h2", "Done") + said, "next done") if said else ""
    gap = NOT_YET.search(first["message"])
    parts = [tag("p", "%s %d, <code>%s</code>: %s" % (
        document["word"], first["task"], text(first["name"]), text(first["title"])))]
    if gap:
        own = looks_right([test for test in wrong if test["task"] == first["task"]])
        parts.append(tag("p", "%sWrite part %s, at <code>%s</code>." % (
            text(own + " ") if own else "", text(gap.group("part")), text(gap.group("place")))))
    else: # a message that asks itself has no hint beside it
        parts.append(message(first))
        if first["hints"] and not first["ask"]:
            parts.append(tag("p", "Ask yourself: %s" % text(first["hints"][0])))
    if first["look"] and not gap:
        parts.append(tag("p", "Look at %s." % text(first["look"])))
    again = "make grade %s=%d" % (document["word"].upper(), first["task"])
    if document["backend"] not in ("", "simgpu"):
        again += " BACKEND=" + document["backend"]
    if os.path.basename(os.path.abspath(document["impl"])) != "skeleton":
        again += " IMPL=" + shlex.quote(document["impl"])
    parts.append(tag("p", "Read <code>%s</code>%s, then <code>%s</code>." % (
        text(first["handout"]), ", “%s”" % text(first["section"]) if first["section"] else "",
        text(again))))
    return tag("section", tag("h2", "What to do next") + "".join(parts), "next")


def by_task(document):
    """[(number, tests)] in order."""
    groups = {}
    for test in document["tests"]:
        groups.setdefault(test["task"], []).append(test)
    return sorted(groups.items(), key=lambda group: (group[0] == 0, group[0]))


def name_of(number, titles, word):
    if not number:
        return "Tests that are not shown"
    return "%s %d%s" % (word, number, ": " + titles[number] if number in titles else "")


def overview(document, titles, drawn):
    rows = []
    for number, tests in by_task(document):
        passed = sum(test["status"] == "passed" for test in tests)
        rows.append('<tr><th scope="row"><a href="#task-%d">%s</a></th><td>%d of %d pass</td>'
                    '<td class="number">%s</td></tr>' % (
                        number, text(name_of(number, titles, document["word"])), passed, len(tests),
                        points(sum(test["score"] for test in tests),
                               sum(test["max_score"] for test in tests))))
    below = ('<p>Further down: <a href="#plots">memory and communication of a step</a>.</p>'
             if drawn else "")
    return ('<section><h2>%ss</h2><table><thead><tr><th scope="col">%s</th><th scope="col">'
            'Tests</th><th scope="col" class="number">Points</th></tr></thead><tbody>%s</tbody>'
            '</table>%s</section>' % (document["word"], document["word"], "".join(rows), below))


def message(test):
    """Why a test did not pass; a likely cause stands out."""
    said = short_message(test["message"])
    cause = CAUSE.search(said)
    if not cause:
        return tag("pre", text(said)) if said.strip() else ""
    before, after = said[:cause.start()].strip("\n"), said[cause.end():].strip("\n")
    parts = [tag("pre", text(part)) if part.strip() else "" for part in (before, after)]
    return parts[0] + tag("p", text(cause.group().strip()), "cause") + parts[1]


def hints(test):
    """Each level folded into the one before it."""
    folded = ""
    for level, hint in reversed(list(enumerate(test["hints"], 1))):
        folded = details("Hint%s" % (" %d" % level if len(test["hints"]) > 1 else ""),
                         tag("p", text(hint)) + folded)
    return folded


def line_of(words):
    return " ".join(common.clean(word, 500) for word in words if word)


def call_line(entry):
    """One call of a report."""
    rank = entry.get("rank")
    where = entry.get("file") and "at %s:%s" % (entry["file"], entry.get("line"))
    return line_of([isinstance(rank, int) and "rank %d:" % rank, entry.get("call"), where,
                    entry.get("function") and "in %s" % entry["function"],
                    entry.get("stream") and "on %s" % entry["stream"]])


def range_line(entry):
    """One range of memory of a report."""
    begin, end = entry.get("begin"), entry.get("end")
    both = isinstance(begin, int) and isinstance(end, int)
    return line_of([both and "bytes %d to %d of" % (begin, max(begin, end - 1)),
                    entry.get("allocation"),
                    entry.get("where") and "allocated at %s" % entry["where"]])


def report(entry):
    """One of simgpu's reports."""
    parts = []
    for name, line in (("calls", call_line), ("ranges", range_line)):
        lines = [said for said in map(line, entry.get(name) or []) if said]
        if lines:
            parts.append('<ul class="places">%s</ul>' % "".join(
                "<li><code>%s</code></li>" % text(said) for said in lines))
    for name, heading in (("hardware", ""), ("question", "Ask yourself: "), ("read", "Read: ")):
        if entry.get(name):
            parts.append(tag("p", heading + text(entry[name])))
    if entry.get("text"):
        parts.append(details("As simgpu printed it", tag("pre", text(entry["text"]))))
    rank = " (rank %d)" % entry["rank"] if isinstance(entry.get("rank"), int) else ""
    return details("simgpu’s report: %s – %s%s" % (text(entry.get("class"), 100),
                                                  text(entry.get("title"), 300), rank),
                   "".join(parts))


def test_rows(test, first):
    """A row for the verdict and, where there is more to say, one below it. first: the tests of the
    task that have its message, which is told once; one that several have is no test's own (a file
    that does not compile), and no hint of theirs helps."""
    row = ('<tr><td class="status %s">%s</td><th scope="row">%s<br><span class="quiet">%s</span>'
           '</th><td class="number">%s</td></tr>' % (
               mark_of(test), WORDS[mark_of(test)], text(test["name"]), text(test["title"]),
               points(test["score"], test["max_score"])))
    if test["status"] == "passed":
        return row
    if test["message"] and first[0] is not test:
        return row
    more = message(test)
    if NOT_YET.search(test["message"]): # a hint is for who has written something
        more = tag("p", text(short_message(test["message"])))
    elif len(first) == 1:
        more += hints(test) + "".join(map(report, test["reports"]))
    if len(first) > 1:
        names = ", ".join(other["name"] for other in first[1:])
        more += tag("p", "The same for %s." % text(names), "quiet")
    if test["section"]:
        more += tag("p", "Read <code>%s</code>, “%s”" % (text(test["handout"]),
                                                        text(test["section"])))
    return row + '<tr class="more"><td></td><td colspan="2">%s</td></tr>' % more if more else row


def task_part(number, tests, titles, word="Task"):
    handout = next((test["handout"] for test in tests if test["handout"]), "")
    head = "%s, %s" % (text(name_of(number, titles, word)), points(
        sum(test["score"] for test in tests), sum(test["max_score"] for test in tests)))
    table = ('<table><thead><tr><th scope="col">Status</th><th scope="col">Test</th>'
             '<th scope="col" class="number">Points</th></tr></thead><tbody>%s</tbody></table>'
             % "".join(test_rows(test, [other for other in tests if other["message"] ==
                                        test["message"] and other["status"] == test["status"]])
                       for test in tests))
    if all(test["status"] == "passed" for test in tests):
        table = details("All %d tests pass" % len(tests), table)
    return '<section id="task-%d"><h2>%s</h2>%s%s</section>' % (
        number, head, tag("p", "Handout: <code>%s</code>" % text(handout), "quiet")
        if handout else "", table)


# ---- Memory and communication ----

def figure(drawing, caption):
    return '<figure><div class="scroll">%s</div><figcaption>%s</figcaption></figure>' % (drawing,
                                                                                       caption)


def sums(shown, reference):
    """What was sent in a step, as a table."""
    step = shown.steps - 1
    mine, theirs = shown.sent(0, step), reference.sent(0, step) if reference else {}
    rows = []
    for kind in trace.COLLECTIVES:
        if kind in mine or kind in theirs:
            cells = ['<th scope="row">%s</th>' % kind]
            for sent in [mine] + ([theirs] if reference else []):
                cells += ['<td class="number">%s</td>' % "{:,}".format(value)
                          for value in sent.get(kind, (0, 0))]
            rows.append("<tr>%s</tr>" % "".join(cells))
    columns = ["Calls", "Bytes sent"] + (["Reference: calls", "Bytes sent"] if reference else [])
    head = "".join('<th scope="col" class="number">%s</th>' % column for column in columns)
    return ('<table><caption>Rank 0, step %d. 3 · (W-1)/W · padded is %s.</caption><thead><tr>'
            '<th scope="col">Collective</th>%s</tr></thead><tbody>%s</tbody></table>' % (
                step + 1, plot.exact(shown.theory_sent(3)), head, "".join(rows)))


def listed(files):
    files = ["<code>%s</code>" % text(file) for file in files]
    return files[0] if len(files) == 1 else "%s and %s" % (", ".join(files[:-1]), files[-1])


def whose(outcome, shown):
    """Which files ran, and on what."""
    units = shown.units
    said = ("%d steps of AdamW on a GPT-2 of %d blocks (%s parameters in %d units; with padding "
            "%s), W = %d." % (shown.steps, len(units) - 1,
                              "{:,}".format(sum(unit.numel for unit in units)), len(units),
                              "{:,}".format(shown.padded()), shown.world))
    if outcome.trace and outcome.own:
        said += " %s %s yours" % (listed(outcome.own), "is" if len(outcome.own) == 1 else "are")
        if outcome.given:
            said += "; %s %s the reference’s" % (listed(outcome.given),
                                                 "is" if len(outcome.given) == 1 else "are")
        said += "."
    return tag("p", said)


COLOURS = ("Blue are all-gathers (AG), orange reduce-scatters (RS), green the kernels of the "
           "forward, violet of the backward, grey of the optimizer. What lies above or below a "
           "kernel is hidden; a gap between kernels with a collective beside it is exposed.")


def time_of_demo(outcome):
    """The same for a demonstration, whose model is larger."""
    if timeline.schedule(outcome.trace) is None:
        return ""
    name = "with your files" if outcome.own else "with the reference’s files"
    return tag("h2", "One step in time") + figure(
        timeline.draw(outcome.trace, None, (name, "")),
        "Times are those of a modelled machine (<code>tests/trace/picture.machine</code>), which "
        "is as slow as a model for pictures is small; of this one, kernels take more, and "
        "communication is easily hidden. " + COLOURS + " Below is the memory of rank 0, by what it "
        "is for, on the same axis.")


def time_part(outcome, shown):
    """The step in time, where the trace has times."""
    if timeline.schedule(shown) is None:
        return ""
    name = "yours" if outcome.trace else "the reference"
    return tag("h3", "One step in time") + figure(
        timeline.draw(shown, outcome.unhidden, (name, "the reference without prefetch")),
        "Times are those of a modelled machine on which a block’s all-gather takes about nine "
        "tenths of its forward (<code>tests/trace/picture.machine</code>): they depend on your "
        "schedule, not on this computer. " + COLOURS + " In the forward, AG of a block "
        "should run during the block before it: <code>handouts/3_forward.md</code>, “The streams”. "
        "In the backward, AG of the next block and RS of the last one should both run beside the "
        "kernels, as they do not in the lower picture: <code>handouts/4_backward.md</code>, “The "
        "streams”.")


def cost_part(cost):
    """What a step of a real model costs; "" where that is not known."""
    if cost is None:
        return ""
    return tag("section", tag("h2", "What a step costs")
               + tag("p", tag("strong", text(schedule_cost.line(cost))))
               + tag("p", text(schedule_cost.why_slow(cost))))


def plots(outcome):
    """The section of plots; where there is no trace, why."""
    if outcome is None:
        return ""
    shown = outcome.trace or outcome.reference
    parts = ['<h2 id="plots">Memory and communication of a step</h2>']
    if outcome.why:
        first, _, rest = outcome.why.partition("\n")
        parts += [tag("p", text(first)), tag("pre", text(rest)) if rest.strip() else ""]
    if shown is None:
        return tag("section", "".join(parts))
    if not outcome.trace:
        parts.append(tag("p", "The plots show only the reference."))
    other = outcome.reference if outcome.trace else None
    kept = plot.exact(shown.theory_kept())
    parts += [whose(outcome, shown), time_part(outcome, shown)]
    parts += [
        tag("h3", "Memory of one rank over a step"),
        figure(plot.memory(shown, other),
               "Look at the blue and orange areas: at most two blocks’ parameters and gradients "
               "are unsharded at a time, apart from the root’s, so they stay below the green "
               "line, whatever the depth. If they climb like stairs, something keeps buffers: "
               "<code>handouts/3_forward.md</code> and <code>handouts/4_backward.md</code>, “The "
               "streams”. The dotted line is what a rank keeps between steps, 16 · padded / W = "
               "%s: <code>handouts/2_flat_param.md</code>, “The memory that this saves”. "
               "Activations, on top, are not part of the bound." % kept),
        tag("h3", "Peak memory per step and rank"),
        figure(plot.peaks(shown, other),
               "All bars should have the same height: a step that peaks higher than the one "
               "before it has not freed something, and a rank that peaks higher than another "
               "holds what it does not own. See <code>handouts/4_backward.md</code>, “Common "
               "mistakes”."),
        tag("h3", "Bytes that a rank sends per step"),
        figure(plot.traffic(shown, other),
               "With <code>reshard_after_forward</code>, as here, every parameter is gathered "
               "twice and its gradient reduce-scattered once: 3 · (W-1)/W of the model; without "
               "it, 2 · (W-1)/W. More means that something is gathered or reduced twice: "
               "<code>handouts/4_backward.md</code>, “Accounting”."),
        sums(shown, other)]
    return tag("section", "".join(parts))


def files_part(document):
    """Which bytes were graded."""
    rows = "".join('<tr><th scope="row">%s</th><td><code>%s</code></td></tr>' % (
        text(entry.get("file"), 40), text(entry.get("source_sha256"), 80))
        for entry in document["files"] if entry.get("file"))
    if not rows:
        return ""
    return ('<section><h2>Files that were graded</h2><table><thead><tr><th scope="col">File</th>'
            '<th scope="col">SHA-256 of the source</th></tr></thead><tbody>%s</tbody></table>'
            '</section>' % rows)


def make(value, outcome=None, now="", titles=None, staff=False, cost=None):
    """The page. value: a results document as JSON has it; outcome: trace.Outcome or None; titles:
    {task number: title}; staff: hidden tests are shown as the others are; cost: cost.Cost, or
    None."""
    document, titles = tidy(value), titles or {}
    if not staff:
        hidden = common.shown(document, {"visibility": {"hidden": "hidden"}})
        for test in hidden:
            if test["hidden"]:
                test.update(hints=[], section="", ask="", look="", reports=[])
        document["tests"] = hidden
    title, top = header(document, now)
    parts = [HEAD % (base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode(),
                     text(title), STYLE), top, "<main>", next_steps(document),
             overview(document, titles, outcome is not None) if document["tests"] else ""]
    parts += [task_part(number, tests, titles, document["word"])
              for number, tests in by_task(document)]
    parts += [cost_part(cost), plots(outcome), files_part(document), "</main>\n</body>\n</html>\n"]
    return "\n".join(part for part in parts if part)


def make_demo(outcome, ranks, now=""):
    """The page of a demonstration: one step of training, in time, of the model that it has for
    text. outcome: trace.Outcome."""
    title = "One step of training"
    facts = "".join("<dt>%s</dt><dd>%s</dd>" % (name, text(value, 300))
                    for name, value in (("Ran", now), ("Ranks", str(ranks))) if value)
    parts = [HEAD % (base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode(),
                     text(title), STYLE),
             tag("header", tag("h1", title) + '<dl class="facts">%s</dl>' % facts), "<main>"]
    if outcome.why:
        first, _, rest = outcome.why.partition("\n")
        parts += [tag("p", text(first)), tag("pre", text(rest)) if rest.strip() else ""]
    if outcome.trace:
        parts.append(tag("section", whose(outcome, outcome.trace)
                         + time_of_demo(outcome)))
    return "\n".join(part for part in parts + ["</main>\n</body>\n</html>\n"] if part)


def write_demo(path, *arguments):
    """Puts the page of a demonstration at the path."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    write_atomically(path, make_demo(*arguments))


def write(path, *arguments, **more):
    """Puts the page at the path: the whole of it, or nothing."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    write_atomically(path, make(*arguments, **more))


def main():
    parser = argparse.ArgumentParser(description="Make a page of a grading's results.")
    parser.add_argument("results", metavar="RESULTS", help="results.json")
    parser.add_argument("--trace", default="", metavar="FILE",
                        help="what the training printed: output/steps.txt beside the results")
    parser.add_argument("--staff", action="store_true", help="show hidden tests too")
    options = parser.parse_args()
    outcome = None
    try:
        with open(options.results, "rb") as file:
            value = json.loads(file.read(FILE_LIMIT).decode("utf-8", "replace"))
        if options.trace:
            with open(options.trace, encoding="utf-8", errors="replace") as file:
                outcome = trace.Outcome(trace.parse(file.read(2 * runner.OUTPUT_LIMIT)))
    except (OSError, ValueError, RecursionError, trace.BadTrace) as problem:
        print("page: %s: %s" % (options.trace or options.results, problem), file=sys.stderr)
        return 2
    now = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(os.path.getmtime(options.results)))
    sys.stdout.buffer.write(make(value, outcome, now, staff=options.staff).encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
