#!/usr/bin/env python3
"""What a training step would take on GPUs that nobody has: builds the planner (plan/) with the
student's files that are complete, and the reference's others, and runs it.

Interface: plan.py --impl DIR [--build DIR] NAME=VALUE …; `make plan`. Exit status: the planner's; 3
where the kit is at fault.
"""

import argparse
import os
import subprocess
import sys

import compare
import layout
import manifest
import runner
from builder import ROOT, Infrastructure


def main():
    parser = argparse.ArgumentParser(description="Plan a training step on many GPUs.")
    parser.add_argument("--impl", required=True, metavar="DIR", help="folder of the task files")
    parser.add_argument("--build", default="", metavar="DIR",
                        help="build tree (the Makefile's own)")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE",
                        help="MODEL=gpt2-xl and others (handouts/plan.md)")
    options = parser.parse_args()
    options.backend = "simgpu"
    program = lambda builder: "%s/impl/%s/bin/plan" % (builder.build, builder.key)
    try:
        builder, own = compare.build(options, lambda it: [program(it)])
    except (Infrastructure, manifest.BadManifest) as problem:
        layout.tell("plan: %s" % problem)
        return 3
    print("With %s.\n" % ("your " + ", ".join(name + ".c" for name in own) if own
                          else "the reference's files"), flush=True)
    return subprocess.run([os.path.join(ROOT, program(builder))] + options.settings,
                          env=runner.clean_environment(), stdin=subprocess.DEVNULL,
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
