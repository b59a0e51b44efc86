"""Emits a result from a command line:

    python3 grader/emit FORMAT RESULTS [--out FILE] [--summary FILE] [--strict]

RESULTS is what grade.py wrote (build/grade/results.json). --summary (only github) is the file to
which the step summary is appended: GITHUB_STEP_SUMMARY's, where that is set. --strict makes the
exit status 1 unless every test passed.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.dirname(HERE)

import emit # behind the line that says where it is
from emit import common
import settings


def main():
    parser = argparse.ArgumentParser(prog="emit", description="Emit a result for a platform.")
    parser.add_argument("format", choices=sorted(emit.FORMATS))
    parser.add_argument("results")
    parser.add_argument("--out", metavar="FILE", help="where to (standard output)")
    parser.add_argument("--summary", metavar="FILE", help="append GitHub's step summary to FILE",
                        default=os.environ.get("GITHUB_STEP_SUMMARY"))
    parser.add_argument("--strict", action="store_true",
                        help="exit status 1 unless every test passed")
    options = parser.parse_args()
    course = settings.load()
    document = common.load(options.results)
    text = emit.emit(options.format, document, course)
    if options.out:
        emit.write(options.out, text)
    else:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.flush()
    if options.summary and options.format == "github":
        with open(options.summary, "a", encoding="utf-8") as file:
            file.write(emit.github.summarize(document, course))
    passed = document["status"] == "graded" and all(
        test["status"] == "passed" for test in document["tests"])
    return 1 if options.strict and not passed else 0


if __name__ == "__main__":
    sys.exit(main())
