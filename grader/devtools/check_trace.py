#!/usr/bin/env python3
"""Has a trace of simgpu's read by others: `make check-trace`.

A program of four ranks (build/…/trace/steps) runs with SIMGPU_TRACE. The file is parsed by the
classes that PyPI's `perfetto` made of Perfetto's own descriptions, in a virtual environment in the
build tree; every track must have a name, every slice an end, every arrow both of its ends. Where
TRACE_PROCESSOR names a trace_processor_shell, SQL finds slices and arrows in it, and no error; else
that part says "SQL not run".

Exit status: 0 when all went well; 1 for a trace that is wrong; 3 where the machine is at fault,
such as without a network for pip.

Interface: check_trace.py --build DIR --program PROGRAM
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv

LIMIT = 600
READER = """
import collections, json, sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
trace = perfetto.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
names, depth, flows, slices = {}, collections.Counter(), collections.Counter(), 0
used, counters = set(), 0
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        names[track.uuid] = track.process.process_name or track.thread.thread_name or track.name
        continue
    event = packet.track_event
    used.add(event.track_uuid)
    slices += event.type == event.TYPE_SLICE_BEGIN
    counters += event.type == event.TYPE_COUNTER
    depth[event.track_uuid] += event.type == event.TYPE_SLICE_BEGIN
    depth[event.track_uuid] -= event.type == event.TYPE_SLICE_END
    if depth[event.track_uuid] < 0:
        sys.exit("a slice ends that never began")
    flows.update(list(event.flow_ids) + list(event.terminating_flow_ids))
if any(depth.values()):
    sys.exit("a slice never ends")
if not all(names.get(track) for track in used):
    sys.exit("a track has no name")
if min(flows.values(), default=0) < 2:
    sys.exit("an arrow has one end")
print(json.dumps({"packets": len(trace.packet), "tracks": len(names), "slices": slices,
                  "arrows": len(flows), "counters": counters}))
"""
SQL = """SELECT (SELECT count(*) FROM slice WHERE dur > 0 OR category != 'event'),
                (SELECT count(*) FROM flow),
                (SELECT ifnull(sum(value), 0) FROM stats WHERE severity IN ('error', 'data_loss'));
"""


class Failed(Exception):
    """The trace is wrong; the text says how."""


class NoMachine(Exception):
    """The machine lacks something; the text says what."""


def run(command, **more):
    """(exit status, what it printed)"""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT, check=False, **more)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NoMachine("%s: %s" % (command[0], problem))
    return done.returncode, done.stdout.decode(errors="replace").strip()


def reader_python(build):
    """The Python of an environment that has `perfetto`."""
    folder = os.path.join(build, "check-trace", "venv")
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
    if run([python, "-c", "import perfetto.protos.perfetto.trace.perfetto_trace_pb2"])[0] == 0:
        return python
    status, said = run([python, "-m", "pip", "install", "-q", "perfetto", "protobuf"])
    if status != 0:
        raise NoMachine("pip cannot install perfetto:\n%s" % said[-800:])
    return python


def make_trace(program, path):
    status, said = run([program], env=dict(os.environ, SIMGPU_TRACE=path))
    if status != 0 or not os.path.exists(path):
        raise Failed("%s left no trace:\n%s" % (program, said[-800:]))


def ask_sql(path):
    """What trace_processor says, in a sentence."""
    shell = os.environ.get("TRACE_PROCESSOR")
    if not shell:
        return "SQL not run: TRACE_PROCESSOR names no trace_processor_shell"
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as query:
        query.write(SQL)
        query.flush()
        status, said = run([shell, "-q", query.name, path])
    numbers = [line for line in said.splitlines() if line.replace(",", "").isdigit()]
    if status != 0 or not numbers:
        raise Failed("trace_processor: %s" % said[-800:])
    slices, flows, errors = map(int, numbers[-1].split(","))
    if not slices or not flows or errors:
        raise Failed("trace_processor finds %d slices, %d arrows, %d errors"
                     % (slices, flows, errors))
    return "SQL: %d slices, %d arrows, no error" % (slices, flows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    path = os.path.join(options.build, "check-trace", "steps.perfetto-trace")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        python = reader_python(options.build)
        make_trace(options.program, path)
        status, said = run([python, "-c", READER, path])
        if status != 0:
            raise Failed(said[-800:])
        print("%s: perfetto's classes read it: %s" % (path, said))
        print(ask_sql(path))
    except Failed as problem:
        print("check-trace: %s" % problem, file=sys.stderr)
        return 1
    except (NoMachine, OSError) as problem:
        print("check-trace: not run: %s" % problem, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
