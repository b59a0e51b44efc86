"""What the programs of a submission may read and write: each runs by confine (confine.c), which
the kernel holds, whoever the grader is.

They write in a folder of their own, which goes when they end, and read themselves, the submission's
.c and .h files and the given code, whose lines simgpu's reports show, and what the system has
installed: not the reference, the tests, or other submissions.

Interface: Confinement(builder, tasks).words(scratch, program) (what a command line begins with),
.told() (for the results), .missing() (a sentence where the kernel has no Landlock, or "").
"""

import glob
import json
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Whose lines a report may show, and the machine of the traces.
GIVEN = ("include", "lib", "simgpu", "gpulog", "tests/trace")
ALWAYS = ("that a path is there, its size and times can be seen",
          "sockets with a path, where their permissions allow it")
# What is enforced from an ABI of Landlock on, and by nothing before it: the filter of calls does
# the rest (handouts/instructors.md).
SINCE = ((1, "files: reading and writing them"),
         (6, "signals and abstract sockets between gradings of one account"))
NO_FILTER = ("modes, owners, times and attributes of files", "UDP and other sockets",
             "limits of other processes")


def libraries(builder):
    """The folders of one's own that libraries are in, as setup.sh found them."""
    try:
        with open(os.path.join(ROOT, builder.build, "config.mk"), encoding="utf-8") as file:
            return re.findall(r"-rpath,(\S+)", file.read())
    except OSError:
        return []


class Confinement:
    def __init__(self, builder, tasks):
        self.program = os.path.join(ROOT, builder.confine)
        self.options = ["--without", ROOT]
        self.options += ["--cuda"] * (builder.backend == "cuda")
        self.options += ["--trace"] * bool(os.environ.get("SANITIZE"))
        own = [piece.source(builder.impl) for task in tasks for piece in task.pieces()]
        own += [path for path in glob.glob(os.path.join(glob.escape(builder.impl), "*.[ch]"))
                if not os.path.islink(path)]
        for path in own + [os.path.join(ROOT, folder) for folder in GIVEN] + libraries(builder):
            self.options += ["--read", path]
        self.enforced = self.ask()

    def ask(self):
        """What the kernel enforces, as confine says: Landlock's ABI, and whether calls are
        filtered."""
        try:
            done = subprocess.run([self.program] + self.options + ["--report"], check=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            return json.loads(done.stdout)
        except (OSError, ValueError, subprocess.CalledProcessError) as problem:
            from builder import Infrastructure
            raise Infrastructure("tests cannot be confined: %s" % problem)

    def words(self, scratch, program):
        return [self.program] + self.options + ["--read", program, "--write", scratch, "--"]

    def told(self):
        """For the results: what is enforced, and what is not."""
        lacking = [what for abi, what in SINCE if self.enforced["landlock"] < abi]
        lacking += [] if self.enforced["seccomp"] else NO_FILTER
        lacking += ["files of /proc"] if "--cuda" in self.options else []
        return dict(self.enforced, not_enforced=lacking + list(ALWAYS))

    def missing(self):
        if self.enforced["landlock"]:
            return ""
        return ("grade: this kernel has no Landlock (Linux 5.13): only the rights of its "
                "account (--run-as) limit which files a test writes.")
