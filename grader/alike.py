"""Which tests fail for one and the same cause, as far as what they say shows it.

A mistake in one line makes many tests fail. Each shows the same report with its own ranks, sizes
and numbers; a person needs it once. Two tests have the same cause where they meet the same part
that is not written, where no test of the file can run for the same reason, where simgpu's reports
are of one class and name the same lines of the student's file, where the same likely cause is
printed, where the same line of a file refuses to go on, where their ranks run in the same functions
when the time is over, or where they say the same apart from ranks, addresses and the test's own
line.

Interface: cause(result, own) -> something to compare, None where there is no cause to tell;
NOT_YET, RUNNING, short_message(message), is_todo(result), looks_right(results),
left_out(result), not_judged(message),
foremost(rows).
"""

import re

# What check_not_yet says: path:line: part 3.2 of function is not written yet (NOT_YET).
NOT_YET = re.compile(r"(?P<place>[^\s\]]+\.c:\d+): part (?P<part>L?\d+\.\d+[a-z]?) of "
                     r"(?P<function>\w+) is not written yet")

# What a test adds that has found an earlier part right (tests/support/trouble.c).
HOLDS = re.compile(r"(?<=; )L?\d+\.\d+[a-z]?(?= looks right)")

# How a test says that this machine has too few GPUs for it.
LEFT_OUT = re.compile(r"left out from W = \d+ on: (.*)")

# How a test says that it is not judged, in front of what happened in it (grade.py).
NOT_JUDGED = re.compile(r"(Needs all \w+ files, [^\n]*?) What happened:\n")

LIKELY = re.compile(r"^Likely cause: (.*)", re.MULTILINE)
RUNNING = re.compile(r"was still running at [^\s:]+:\d+ \((\w+)\)")
REFUSED = re.compile(r" failed\s\((?:[^\s:()]*/)?([^\s:/()]+:\d+): ") # the file's place and reason

# What differs where two tests show the same: rule, rank, addresses, the test's line and draw.
RULE = re.compile(r"^in rule \w+: ", re.MULTILINE)
RANK = re.compile(r"\b(?:rank|device) \d+\b(?: of \d+)?|\b0x[0-9a-f]+\b|\(nil\)")
TEST = re.compile(r" \((?:tests|tasks)/[\w/.]+:\d+\)|\n\(drawn.*\)|\nThe reference took .*")
NUMBER = re.compile(r"(?<![\w.:])\d[\d.e+-]*")
LONG = 3 # line ends of a message that is a report, whose numbers are sizes


def short_message(message):
    """The message, or of a NOT_YET only which part is not written."""
    found = NOT_YET.search(message)
    if found:
        return "part %s is not written yet: %s, in %s" % (found.group("part"), found.group("place"),
                                                          found.group("function"))
    return message


def is_todo(result):
    """Whether the test fails because a part is not written yet."""
    return result["status"] == "failed" and bool(NOT_YET.search(result["message"]))


def looks_right(results):
    """The parts that tests have found right before they met one that is not written: a sentence, or
    ""."""
    parts = sorted({part for result in results if is_todo(result)
                    for part in HOLDS.findall(result["message"])})
    if not parts:
        return ""
    return "%s look%s right." % (" and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]])),
                                 "s" if len(parts) == 1 else "")


def left_out(result):
    """Why no world of the test fits on this machine's GPUs (tests/support/suite.c); or ""."""
    found = result["status"] == "skipped" and LEFT_OUT.match(result["message"])
    return found.group(1) if found else ""


def foremost(rows):
    """Of rows that did not pass the one to look at first (cause.py); None where there is none."""
    rows = [row for row in rows if not left_out(row)]
    return next((row for row in rows if row["task"] == rows[0]["task"] and row.get("foremost")),
                rows[0] if rows else None)


def not_judged(message):
    """Of a message that says that the test is not judged, this sentence alone; or ""."""
    found = NOT_JUDGED.match(message)
    return found.group(1) if found else ""


def report_of(result, own):
    """Of the report that the message shows: its class and the lines that it names, the student's
    if there are any; or None."""
    for report in result.get("reports") or []:
        title = report.get("title")
        if not title or report.get("follows") or title not in result["message"]:
            continue
        calls = ["%s:%s" % (call.get("file"), call.get("line")) for call in report.get("calls", [])]
        places = calls + [str(span.get("where")) for span in report.get("ranges", [])]
        places = [place for place in places if own and place.startswith(own + "/")] or calls
        return report.get("class"), title, frozenset(places)
    return None


def cause(result, own=""):
    """What to compare; `own`: what messages call the student's folder."""
    if result["status"] == "passed" or not result["message"]:
        return None
    if NOT_YET.search(result["message"]) or result.get("shared"):
        return result["status"], short_message(result["message"])
    report = report_of(result, own)
    if report:
        return ("report",) + report
    message = NOT_JUDGED.sub("", result["message"], count=1)
    for different in RULE, TEST, RANK:
        message = different.sub("", message)
    likely = LIKELY.search(message)
    if likely:
        return "likely", NUMBER.sub("#", likely.group(1))
    refused = REFUSED.search(message)
    if refused:
        return "refused", refused.group(1)
    if RUNNING.search(message):
        return "running", frozenset(RUNNING.findall(message))
    if message.count("\n") >= LONG:
        message = NUMBER.sub("#", message)
    return "message", message
