#!/usr/bin/env python3
"""Whether simgpu's times are the same nanoseconds however a program runs: `make check-times`.

A training of four ranks (train_gpt2, a few small steps) leaves a trace of all its operations. It
runs as built, on one processor, beside as many busy processes as there are processors and four
more, and the same once more compiled by -O0 (all but the vectorised kernels, in a build tree of its
own). Every slice, counter and arrow must be the same: its rank, its track, its name, and its time
in nanoseconds.

Exit status: 0 all the same; 1 they differ, and where; 3 where the machine is at fault.

Interface: check_times.py NAME=PROGRAM… --launch LAUNCHER [--text FILE…]
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

LIMIT = 900 # seconds
RANKS = 4
STEPS = ["--steps", "3", "--layers", "2", "--dim", "64", "--sample", "16"]
BUSY = "while True: pass"


class Differs(Exception):
    """Two runs are not alike; the text says where."""


def pinned():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def run(program, options, one_core, path):
    command = [options.launch, "-n", str(RANKS), program] + STEPS + options.text
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT, check=False,
                          env=dict(os.environ, SIMGPU_TRACE=path, SIMGPU_MACHINE="h100x8"),
                          preexec_fn=pinned if one_core else None)
    if done.returncode != 0 or not os.path.exists(path):
        said = done.stdout.decode(errors="replace")[-800:]
        raise OSError("%s left no trace:\n%s" % (program, said))


def times(path):
    """How often each event is in a trace, without the numbers of processes and of arrows."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    names = {}
    for event in events:
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
            names[event["pid"], event.get("tid") if "thread" in event["name"] else None] = \
                event["args"]["name"]
    counted = collections.Counter()
    for event in events:
        if event["ph"] == "M":
            continue
        key = {name: value for name, value in event.items() if name not in ("pid", "tid", "id")}
        where = names.get((event["pid"], None)), names.get((event["pid"], event.get("tid")))
        counted[json.dumps([where, key], sort_keys=True)] += 1
    return counted


def compare(name, want, got):
    differ = sorted((want - got).keys()), sorted((got - want).keys())
    if any(differ):
        raise Differs("%s: %d events are not as in the first run, such as\n  %s\n"
                      "  in place of\n  %s"
                      % (name, len(differ[0]) + len(differ[1]), (differ[1] or ["none"])[0],
                         (differ[0] or ["none"])[0]))


def under_load(how_many, action):
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(how_many)]
    try:
        return action()
    finally:
        for process in busy:
            process.kill()
            process.wait()


def try_all(options, folder):
    """(runs, events of one), all of them alike."""
    want, runs = None, 0
    for name, program in options.programs:
        for one_core in (False, True):
            for load in (0, len(os.sched_getaffinity(0)) + 4):
                path = os.path.join(folder, "%d.json" % runs)
                under_load(load, lambda: run(program, options, one_core, path))
                got = times(path)
                os.remove(path)
                want = want or got
                title = "%s, %s, %s" % (name, "one core" if one_core else "all cores",
                                        "%d busy processes" % load if load else "no other load")
                compare(title, want, got)
                runs += 1
                print("%s: %d events, the same nanoseconds" % (title, sum(got.values())),
                      flush=True)
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+", metavar="NAME=PROGRAM",
                        type=lambda text: text.split("=", 1))
    parser.add_argument("--launch", required=True)
    parser.add_argument("--text", nargs="+", default=["handouts/3_forward.md"])
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="check-times-") as folder:
            runs = try_all(options, folder)
    except Differs as problem:
        print("check-times: %s" % problem, file=sys.stderr)
        return 1
    except (OSError, subprocess.SubprocessError) as problem:
        print("check-times: not run: %s" % problem, file=sys.stderr)
        return 3
    print("%d runs of %d ranks: all times equal" % (runs, RANKS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
