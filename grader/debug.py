#!/usr/bin/env python3
"""gdb on one rank of one test, which is compiled with -O0: every variable and line is there.

The suite is built in a tree of its own (build/O0). The rank waits in its test until gdb has it
(tests/support/debug.c); the other ranks run, and the test's time limit is made long. gdb stops at a
function of the part that the test is meant for, or at --break.

Interface: debug.py --impl DIR --test NAME [--world N] [--rank N] [--break FUNCTION] [--build DIR]
[--wait]; `make gdb`. Without --world the first world that has the rank. gdb's commands come from
standard input. --wait: the rank waits for a gdb that is started elsewhere (.vscode/launch.json).
Exit status: gdb's; 2: a question that makes no sense, or no gdb; 3: it cannot be built.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys

import layout
import manifest
from builder import ROOT

WAITS = re.compile(r"rank \d+ of \d+ waits for a debugger: gdb -p (\d+)\n")


class Refused(Exception):
    """What is asked for makes no sense; the text says why."""


def find_test(name):
    """(the task, the test) of a name."""
    for task in manifest.load_all(ROOT):
        for test in task.tests:
            if test.name == name:
                return task, test
    raise Refused("there is no test %s; `make grade` lists the tests" % name if name else
                  "which test? TEST=name; `make grade` lists the tests")


def stop_at(task, test):
    """The function that gdb stops at first, where nobody says which."""
    functions = [task.functions.get(part, []) for part in test.parts]
    return next((names[0] for names in functions if names), "main")


def build(options, suite):
    """The suite's program, compiled with -O0; None: it cannot be built, which make has said."""
    tree = options.build + "/O0"
    words = ["make", "--no-print-directory", "-s", "-j%d" % (os.cpu_count() or 1),
             "IMPL=" + options.impl, "BUILD=" + tree, "CFLAGS=-O0 -g"]
    rule = "debug-print-suite: ; @printf '%s\\n' '$(BUILD)/impl/$(IMPL_KEY)/suite'"
    said = subprocess.run(words + ["--eval=" + rule, "debug-print-suite"], cwd=ROOT,
                          stdout=subprocess.PIPE, check=False)
    folder = said.stdout.decode("utf-8", "replace").strip().splitlines()
    if said.returncode != 0 or not folder:
        return None
    program = "%s/%s" % (folder[-1], suite)
    print("Building %s with -O0 …" % program, flush=True)
    made = subprocess.run(words + [program], cwd=ROOT, check=False)
    return os.path.join(ROOT, program) if made.returncode == 0 else None


def debug(program, options, function):
    """Runs the test until its rank waits, and gdb on that; gdb's exit status."""
    words = [program, "--only", options.test, "--rank", str(options.rank)]
    words += ["--world", str(options.world)] if options.world else []
    if options.wait: # whoever ends this ends the rank, too
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            signal.signal(number, lambda *_: sys.exit(0))
    suite = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True,
                             env=dict(os.environ, SHARDLAB_TIME_FACTOR="10000"))
    try:
        said = []
        for line in suite.stdout:
            said.append(line.decode("utf-8", "replace"))
            waits = WAITS.search(said[-1])
            if waits:
                break
        else:
            raise Refused("the test ended, and its rank %d never began:\n%s"
                          % (options.rank, "".join(said)))
        if options.wait:
            layout.tell(said[-1].rstrip("\n"), sys.stdout)
            for line in suite.stdout:
                layout.tell(line.decode("utf-8", "replace").rstrip("\n"), sys.stdout)
            return 0
        signal.signal(signal.SIGINT, signal.SIG_IGN) # Ctrl-C is gdb's
        return subprocess.run([
            "gdb", "-q", "-p", waits.group(1), "-ex", "set breakpoint pending on",
            "-ex", "break " + function, "-ex", "continue"], check=False).returncode
    finally:
        try:
            os.killpg(suite.pid, signal.SIGKILL)
        except OSError:
            pass # it has ended
        suite.stdout.close()
        suite.wait()


def parse(arguments):
    parser = argparse.ArgumentParser(description="Run gdb on one rank of one test.")
    parser.add_argument("--impl", required=True, metavar="DIR", help="folder of the task files")
    parser.add_argument("--build", default="build", metavar="DIR", help="build tree")
    parser.add_argument("--test", default="", metavar="NAME", help="the test")
    parser.add_argument("--world", type=int, default=0, metavar="N", help="how many ranks")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="which of them")
    parser.add_argument("--break", dest="function", default="", metavar="FUNCTION",
                        help="where gdb stops first")
    parser.add_argument("--wait", action="store_true",
                        help="wait for a gdb that is started elsewhere")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    try:
        task, test = find_test(options.test.strip())
        if options.rank < 0 or options.world < 0 or 0 < options.world <= options.rank:
            raise Refused("a world of %d ranks has no rank %d" % (options.world, options.rank))
        if not options.wait and not shutil.which("gdb"):
            raise Refused("there is no gdb here; on Debian and Ubuntu: apt-get install gdb")
        program = build(options, "together" if test.together else task.name)
        if not program:
            return 3
        return debug(program, options, options.function or stop_at(task, test))
    except Refused as problem:
        layout.tell("gdb: %s" % problem)
        return 2
    except manifest.BadManifest as problem:
        layout.tell("gdb: %s" % problem)
        return 3


if __name__ == "__main__":
    sys.exit(main())
