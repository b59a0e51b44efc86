"""A line on the terminal that says what takes so long: it comes late, changes, and goes away.

It is written to standard error where that is a terminal, and standard output too, which is then the
same one: whoever prints something there does it within cleared() (report.py does). Anywhere else
nothing is written, apart from one plain line when the kit is built.

Interface: Progress().during(text) as a context, text() -> what is going on; .cleared() as a
context; .begin(text), .end(). Building(progress, dry_run).start(), .cancel(): the kit is being
built; dry_run() -> (status, the commands that make would run).
"""

import contextlib
import os
import re
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PATIENCE = 1.5   # seconds that pass without a line
EVERY = 0.25     # seconds between two looks

BUILDING = "Building the kit, once"
COMPILES = re.compile(r" -c .*?-o (\S+\.o)\b") # a command that makes an object


class Progress:
    def __init__(self, stream=None):
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty() and (stream is not None or sys.stdout.isatty())
        self.lock = threading.RLock()
        self.length = 0        # columns of the line that stands there
        self.ended = None      # set when the present text is over
        self.thread = None

    def clear(self):
        with self.lock:
            if self.length:
                self.stream.write("\r%s\r" % (" " * self.length))
                self.stream.flush()
                self.length = 0

    @contextlib.contextmanager
    def cleared(self):
        """While this lasts, no line stands there and none is written."""
        with self.lock:
            self.clear()
            yield

    def write(self, text):
        with self.lock:
            text = text[:78]
            self.stream.write("\r%s" % text.ljust(self.length))
            self.stream.flush()
            self.length = max(self.length, len(text))

    def begin(self, text):
        """From now on, and once it has taken a while, text() is on the terminal."""
        if not self.shown:
            return
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.keep, args=(text, self.ended), daemon=True)
        self.thread.start()

    def keep(self, text, ended):
        pause = PATIENCE
        while not ended.wait(pause):
            pause = EVERY
            try:
                self.write(text())
            except OSError:
                return # the terminal is gone

    def end(self):
        if self.thread:
            self.ended.set()
            self.thread.join()
            self.thread = None
        try:
            self.clear()
        except OSError:
            pass

    @contextlib.contextmanager
    def during(self, text):
        self.begin(text)
        try:
            yield
        finally:
            self.end()


class Building:
    """What is said while make builds the kit, if that takes a while: on a terminal how many files
    are compiled."""

    def __init__(self, progress, dry_run):
        self.progress = progress
        self.dry_run = dry_run
        self.began = time.time()
        self.objects = None      # what was still to be compiled when the first line was due
        self.plain = None

    def start(self):
        self.began = time.time()
        if self.progress.shown:
            self.progress.begin(self.text)
        else:
            self.plain = threading.Timer(PATIENCE, print, [BUILDING + " …"],
                                         {"file": sys.stderr, "flush": True})
            self.plain.daemon = True
            self.plain.start()

    def text(self):
        if self.objects is None:
            self.objects = set(COMPILES.findall(self.dry_run()[1]))
        done = sum(self.made(path) for path in self.objects)
        count = ": %d of %d files" % (done, len(self.objects)) if self.objects else ""
        return "%s%s, %d s …" % (BUILDING, count, time.time() - self.began)

    def made(self, path):
        try:
            return os.stat(os.path.join(ROOT, path)).st_mtime >= self.began
        except OSError:
            return False

    def cancel(self):
        if self.plain:
            self.plain.cancel()
        self.progress.end()
