#!/usr/bin/env python3
"""What a training step would take on GPUs that nobody has: builds the planner (plan/) with the
student's files that are complete, and the reference's others, and runs it.

With SWEEP=8..4096 it plans each doubling in between, and draws how the step scales (sweep.py);
with COMPARE="strategy=zero2,zero3" each of these, as a table (plan_table.py).

Interface: plan.py --impl DIR [--build DIR] NAME=VALUE …; `make plan`. Exit status: the planner's; 2
for a question that makes no sense; 3 where the kit is at fault.
"""

import argparse
import os
import subprocess
import sys

import compare
import demo
import layout
import manifest
import plan_table
import runner
import sweep
from builder import ROOT, Builder, Infrastructure
from confinement import Confinement


def build_program(options):
    """The program's path, whose files run in it (demo.Files; None: the reference's), and how it is
    to be confined."""
    builder = Builder(options.impl, options.build, "simgpu")
    builder.find_key()
    given = builder.key == "reference" # an archive has only its objects
    if not given and not os.path.isdir(builder.impl):
        raise demo.BadUsage(manifest.no_folder(options.impl))
    program = demo.program_of(builder, "plan")
    with builder.locked_folder():
        sources = ["plan/" + name for name in os.listdir(os.path.join(ROOT, "plan"))
                   if name.endswith(".c")]
        builder.common([piece.name for task in manifest.load_all(ROOT) for piece in task.pieces()],
                       [], demo.given_to(builder, sources))
        with builder.compiling():
            files = None if given else demo.choose_files(builder, manifest.load(ROOT))
            own = [] if given else files.names().split() + compare.written(builder, options.impl)
        status, output = demo.link_with(builder, " ".join(own), [program])
        if status != 0 and files:
            demo.link(builder, files, [program])
        elif status != 0:
            raise Infrastructure("the planner does not build:\n%s" % output.strip()[-4000:])
    return os.path.join(ROOT, program), files, Confinement(builder, manifest.load_all(ROOT))


def prepare(options):
    """The program's path; says whose files run."""
    program, files, _ = build_program(options)
    if files:
        files.say(sys.stdout)
    else:
        print("All %s files are the reference's.\n" % manifest.how_many(), flush=True)
    return program


def main():
    parser = argparse.ArgumentParser(description="Plan a training step on many GPUs.")
    parser.add_argument("--impl", required=True, metavar="DIR", help="folder of the task files")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE",
                        help="MODEL=gpt2-xl and others (handouts/plan.md)")
    options = parser.parse_args()
    try:
        program = prepare(options)
    except demo.BadUsage as problem:
        layout.tell("plan: %s" % problem)
        return 2
    except (Infrastructure, manifest.BadManifest) as problem:
        layout.tell("plan: %s" % problem)
        return 3
    if any(setting.startswith("COMPARE=") for setting in options.settings):
        return plan_table.main(program, options.settings)
    names = [setting.partition("=")[0] for setting in options.settings]
    if "SWEEP" in names or "SVG" in names:
        return sweep.main(program, options.settings,
                          os.path.join(ROOT, options.build or "build", "plan"))
    return subprocess.run([program] + options.settings, env=runner.clean_environment(),
                          stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
