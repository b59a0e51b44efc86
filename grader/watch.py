#!/usr/bin/env python3
"""Grades once, and then the task whose file was saved, each time one is; says what has changed.

The six files are looked at every 0.2 seconds: time, size and number (inode) of each. To be told by
the system (inotify) would be quicker by a blink, but it misses changes on network and shared
folders, follows the old file where an editor puts a new one in its place, and is not in Python's
standard library. A file counts as saved when it has stayed the same for 0.1 seconds; one that is
gone gets a second to come back.

A save stops a grading that has to do with that file, and it begins again; other saves wait their
turn. Only the first grading, which may build the kit, runs to its end.

The tests of all six files together belong to task 6. They run with it, and after the save of
another file as soon as all own tests of all tasks pass; else their last result is kept, and it is
said that they were not run. With --task only one task is watched.

Interface: watch.py --impl DIR [--task N|name | --lab N|name|all] [--build DIR]; `make watch`.
Ctrl-C ends it, with status 0. Status 2: asked for something that makes no sense; 3: the kit is at
fault. Files: regrade.py (a grading), report.py (the lines).
"""

import argparse
import errno
import os
import signal
import sys
import time

import grade
import layout
import manifest
import seeds
from regrade import ROOT, Regrading, ask, choose, no_test_ran
from report import NOT_YET, Report, foremost, points

LOOK = 0.2    # seconds between two looks at the files
QUIET = 0.1   # how long a file must stay as it is to be called saved
RETURN = 1.0  # how long an editor may take to put a new file in an old one's place


# ---- The files ----


class Files:
    """The files that are watched, and how each looked when it was graded last."""

    def __init__(self, folder, names):
        self.paths = {name: os.path.join(folder, name) for name in names}
        self.known = {name: self.look(name) for name in names}

    def look(self, name):
        """How the file looks; None where it is not there."""
        try:
            found = os.stat(self.paths[name])
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def changed(self):
        """Whether any file looks other than it did."""
        return any(self.look(name) != known for name, known in self.known.items())

    def saved(self, wait, clock=time.monotonic):
        """The files that were saved since the last call, once they stay as they are; wait(seconds)
        is called in between."""
        looks = {name: self.look(name) for name in self.paths}
        since = begun = clock()
        while clock() - since < QUIET or (
                None in [looks[name] for name in looks if self.known[name]]
                and clock() - begun < RETURN):
            wait(QUIET / 4)
            again = {name: self.look(name) for name in self.paths}
            if again != looks:
                looks, since = again, clock()
        names = [name for name in self.paths if looks[name] != self.known[name]]
        self.known = looks
        return names


# ---- What is known of a task ----


class Score:
    """The tests of one task as they were graded last."""

    def __init__(self, task):
        self.task = task
        self.rows = []       # the last of each test
        self.compared = {}   # test: whether it passed when tests last ran
        self.broken = ""     # why no test ran

    def earned(self):
        return sum(row["score"] for row in self.rows)

    def finished(self):
        """Whether all own tests pass."""
        own = {test.name for test in self.task.own()}
        return bool(self.rows) and all(row["status"] == "passed" for row in self.rows
                                       if row["name"] in own)

    def take(self, rows):
        """Notes new rows; (points before, names that pass now, names that no longer do), or None
        where there is nothing to compare with."""
        before, earlier = self.compared, self.earned_before()
        self.rows = rows
        self.broken = no_test_ran(self.task, rows)
        if self.broken:
            return None
        self.compared = {row["name"]: row["status"] == "passed" for row in rows}
        if not before:
            return None
        return (earlier,
                [name for name, passed in self.compared.items() if passed and not before.get(name)],
                [name for name, passed in self.compared.items() if not passed and before.get(name)])

    def earned_before(self):
        """The points when tests last ran."""
        worth = {test.name: test.points for test in self.task.tests}
        return sum(worth[name] for name, passed in self.compared.items() if passed)


# ---- Watching ----


class Watch:
    def __init__(self, options, tasks, report):
        self.options = options
        self.tasks = tasks
        self.report = report
        self.scores = {task.number: Score(task) for task in tasks}
        self.files = Files(options.impl, [name for task in tasks for name in self.names(task)])
        self.queue = []       # tasks to be graded, with the reason
        self.stale = False    # the tests of all files were not run since a file changed
        self.ended = False    # Ctrl-C
        self.shown = os.path.basename(os.path.abspath(options.impl))

    def names(self, task):
        """Where a task's files are, which need not be in IMPL."""
        return [os.path.abspath(piece.source(self.options.impl)) for piece in task.pieces()]

    def together(self):
        """The task that has the tests of all six files, where it is watched beside others."""
        found = [task for task in self.tasks if task.together()]
        return found[0] if found and len(self.tasks) > 1 else None

    def wait(self, seconds):
        if not self.ended:
            time.sleep(seconds)

    def grade(self, task, interrupted):
        """Grades a task, or all. The document; None where it was stopped by `interrupted`()."""
        if len(self.tasks) == 1:
            task = self.tasks[0]
        grading = Regrading(self.options, "watch", task.number if task else None, self.report.say)
        try:
            while not grading.done(LOOK):
                if self.ended or interrupted():
                    return None
        finally:
            grading.stop()
        return None if self.ended else grading.document()

    def begin(self):
        """The first grading: where everything stands. False where it could not be made."""
        self.report.say("Grading %s …" % self.shown)
        document = self.grade(None, lambda: False)
        if document is None:
            return True
        if document["status"] != "graded":
            layout.tell("watch: %s" % document["message"])
            return False
        for task in self.tasks:
            score = self.scores[task.number]
            score.take([row for row in document["tests"] if row["task"] == task.number])
            self.standing(task, score)
        self.total()
        return True

    def run(self):
        """Until Ctrl-C. The exit status."""
        if not self.begin():
            return 3
        if not self.ended:
            first = self.tasks[0]
            what = first.shown(self.options.impl) if first.in_own_folder() else "%s in %s" % (
                first.file if len(self.tasks) == 1 else "%d files" % len(self.tasks), self.shown)
            self.report.say("Watching %s: save one to have it graded; Ctrl-C ends this." % what)
        while not self.ended:
            if self.files.changed():
                self.note_saves()
            elif self.queue:
                self.next()
            else:
                self.wait(LOOK)
        self.total()
        return 0

    def note_saves(self):
        """Puts the tasks of what was saved into the queue."""
        names = self.files.saved(self.wait)
        for task in self.tasks:
            saved = [name for name in self.names(task) if name in names]
            if saved:
                self.add(task, "%s %s" % ("/".join(saved[0].split("/")[-2:]),
                                          "saved" if self.files.known[saved[0]] else "is gone"))
                if task is not self.together():
                    self.stale = self.together() is not None

    def add(self, task, reason):
        """Queues a task; one that waits already keeps its turn."""
        if task not in [waiting for waiting, _ in self.queue]:
            self.queue.append((task, reason))

    def next(self):
        """Grades the first of the queue and says what came of it."""
        task, reason = self.queue[0]
        alone = not (task.together() and len(self.tasks) > 1)
        files = [name for other in ([task] if alone else self.tasks) for name in self.names(other)]

        def interrupted():
            return any(self.files.look(name) != self.files.known[name] for name in files)
        document = self.grade(task, interrupted)
        if document is None: # it stays the first; what was saved is noted before it runs again
            return
        self.queue.pop(0)
        self.report.say()
        self.report.say("%s  %s" % (time.strftime("%H:%M:%S"), reason))
        if document["status"] != "graded":
            self.report.paragraph("The grading itself failed, not your code: %s"
                                  % document["message"], 2)
            return
        if not alone:
            self.stale = False
        score = self.scores[task.number]
        self.changes(task, score, score.take(document["tests"]))
        if not self.queue:
            self.all_files()
        self.total()

    def all_files(self):
        """After the last of the queue: the tests of all six files, if they are to run."""
        if not self.stale:
            return
        task = self.together()
        count = len(task.together())
        if all(score.finished() for score in self.scores.values()):
            self.add(task, "all other tests pass: next the tests that use all files")
        else:
            self.report.paragraph("Not run: %d test%s of task %d that use%s all files; %s when all "
                                  "others pass, or when %s is saved."
                                  % (count, "" if count == 1 else "s", task.number,
                                     "s" if count == 1 else "",
                                     "it runs" if count == 1 else "they run", task.file), 2)

    # -- what is said --

    def standing(self, task, score):
        """Where a task stands, in a line."""
        self.report.say("  %s %5s of %s points" % (
            ("%s  %s" % (task.heading(), task.title)).ljust(26), points(score.earned()),
            points(task.points)))
        if score.broken:
            self.report.paragraph(score.broken, 6)

    def changes(self, task, score, compared):
        """What a save has changed."""
        if score.broken:
            self.report.say("  %s: %s of %s points, no test ran" % (task.heading(),
                            points(score.earned()), points(task.points)))
            self.report.paragraph(score.broken, 4)
            return
        earlier, better, worse = compared or (None, [], [])
        now = points(score.earned())
        self.report.say("  %s: %s of %s points" % (
            task.heading(), now if earlier is None else "%s → %s" % (points(earlier), now),
            points(task.points)))
        for words, names in (("now ok: ", better), ("no longer ok: ", worse)):
            if names:
                every = len(names) == len(score.rows) > 1
                self.report.paragraph(words + ("all %d tests" % len(names) if every
                                               else ", ".join(names)), 4)
        failing = [row for row in score.rows if row["status"] != "passed"]
        if failing:
            first = foremost(failing) or failing[0]
            failing.remove(first)
            self.report.forget()
            self.report.test(first)
            if not NOT_YET.search(first["message"]): # a hint is for who has written something
                self.report.advice(first)
            self.report.where_to_read(first)
        if failing:
            self.report.paragraph("also not ok: %s" % ", ".join(row["name"] for row in failing), 4)

    def total(self):
        """The score of everything that is watched."""
        earned = sum(score.earned() for score in self.scores.values())
        known = all(score.rows for score in self.scores.values())
        alone = self.tasks[0].heading().lower() if len(self.tasks) == 1 else None
        if known:
            self.report.score(earned, sum(task.points for task in self.tasks), alone)
        else:
            self.report.say("Stopped before the first grading was done.")


def parse(arguments):
    parser = argparse.ArgumentParser(description="Grade again whenever a file is saved.")
    ask(parser)
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    try:
        tasks = choose(options, manifest.load(ROOT, manifest.asked(options)[0]))
        seeds.choose() # one for all gradings: what changes is then the student's doing
    except (grade.BadUsage, seeds.BadSeed) as problem:
        layout.tell("watch: %s" % problem)
        return 2
    except manifest.BadManifest as problem:
        layout.tell("watch: %s" % problem)
        return 3
    shown = os.path.basename(os.path.abspath(options.impl))
    watch = Watch(options, tasks, Report(sys.stdout, shown))

    def end(number, frame):
        watch.ended = True
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        return watch.run()
    except OSError as problem:
        if problem.errno not in (errno.EPIPE, errno.EIO):
            raise
        # Nobody reads it any more: a closed pipe, a closed terminal.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
