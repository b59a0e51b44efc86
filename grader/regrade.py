"""One grading in a process of its own, whose table nobody sees: what hint.py and watch.py look at.

grade.py is started as `make grade` starts it, with a results file elsewhere. What the file says
afterwards, made safe to show (emit/common.py), is the answer. Of what it prints on stderr the
caller gets the lines that the results file does not have: that the kit is built first, that another
grading runs, what the compiler warns of.

Interface: Regrading(options, name, number, relay).done(), .stop(), .document(); ask(parser) adds
the options of hint.py and watch.py, choose(options, tasks) checks them; no_test_ran(task, rows).
"""

import os
import signal
import subprocess
import sys
import threading

import grade
import manifest
from emit import common

GRADER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(GRADER)
STOP_LIMIT = 20.0 # seconds that a grading may take to end in order


def ask(parser):
    """The options that say what is graded."""
    parser.add_argument("--impl", required=True, metavar="DIR", help="folder of the task files")
    parser.add_argument("--task", default="", metavar="N|name", help="only this task")
    parser.add_argument("--lab", default="", metavar="N|name|all", help="this lab, or all labs")
    parser.add_argument("--build", default="build", metavar="DIR", help="build tree (build)")
    parser.add_argument("--backend", default="simgpu", choices=("simgpu", "cuda", "emulated-cuda"),
                        help="what the files are built against (simgpu)")
    parser.add_argument("--limit", type=grade.seconds, default=0.0, metavar="SECONDS",
                        help="how long a test may take, as grade.py has it")


def choose(options, tasks):
    """The tasks asked for, of all. Raises grade.BadUsage for a folder or a task that is not."""
    asked = grade.parse(["--impl=" + options.impl, "--task=" + options.task,
                         "--lab=" + options.lab])
    grading = grade.Grading(asked, tasks)
    grading.choose()
    return grading.tasks


def no_test_ran(task, rows):
    """The message that all tests of a task have because its file cannot be used; or ""."""
    own = {test.name for test in task.own()}
    messages = {(row["status"], row["message"]) for row in rows if row["name"] in own}
    if len(messages) != 1:
        return ""
    status, message = messages.pop()
    # A test that died says so itself, in a sentence about the test program.
    own = [name for piece in task.pieces() for name in (
        piece.file, os.path.basename(piece.in_kit("skeleton")))]
    told = status == "error" and any(name in message for name in own) and \
        not message.startswith("The test program")
    return message if told else ""


class Regrading:
    """One run of grade.py; `number` for one task alone. The results go to build/NAME."""

    def __init__(self, options, name, number=None, relay=print):
        self.out = os.path.join(ROOT, options.build, name, "results.json")
        self.number = number
        self.relay = relay
        try:
            os.unlink(self.out) # what an earlier one said is no answer
        except OSError:
            pass
        command = [sys.executable, os.path.join(GRADER, "grade.py"), "--impl=" + options.impl,
                   "--build", options.build, "--backend", options.backend, "--out", self.out]
        if sys.stdout.isatty(): # somebody waits for it, though its own stdout is no terminal
            command.append("--quick")
        kind, _ = manifest.asked(options)
        if number or kind is manifest.LAB:
            command += ["--" + kind.word, str(number or "all")]
        if options.limit:
            command += ["--limit", str(options.limit)]
        # In a session of its own, so that Ctrl-C reaches the caller alone, who ends this in order.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            text = line.decode("utf-8", "replace").rstrip("\n")
            if not text.startswith("grade: "): # these are in the results file too
                try:
                    self.relay(text)
                except OSError:
                    pass # nobody reads any more, as the caller will notice

    def done(self, timeout=None):
        """Whether it has ended, after waiting for at most so long (None: until it has)."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self.reader.join(STOP_LIMIT)
        return True

    def stop(self):
        """Ends it: it stops its tests itself when it is told to."""
        if self.process.poll() is None:
            self.process.terminate()
            if not self.done(STOP_LIMIT):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.done()

    def document(self):
        """What came of it."""
        return common.load(self.out)
