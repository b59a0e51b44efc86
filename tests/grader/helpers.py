"""What the grader's tests share: where the kit is, folders that go away, and a kit with made-up
suites.

Interface: ROOT, GRADER, COURSE, DEVTOOLS, build_folder(), read(), program(), outside_make(), run(),
TempFolder, ReferenceCopy, FakeKit, speak(), in_terminal(command, folder, columns, **environment),
processes_with(word), wait_for(what), hears_ctrl_c().
"""

import compileall
import fcntl
import glob
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GRADER = os.path.join(ROOT, "grader")
COURSE, DEVTOOLS = os.path.join(GRADER, "course"), os.path.join(GRADER, "devtools")
sys.path[:0] = [folder for folder in (GRADER, COURSE, DEVTOOLS) if folder not in sys.path]
import settings
import trace


def build_folder():
    """Where the kit's suites are built; SHARDLAB_TEST_BUILD where that is not the usual place."""
    return os.path.join(ROOT, os.environ.get("SHARDLAB_TEST_BUILD", "build"))


def read(*parts):
    """The text of a file."""
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def program(name, *words):
    """The command of a program of the kit's grader/."""
    return [sys.executable, os.path.join(GRADER, name), *words]


def outside_make(*but):
    """The environment without what a make that runs these tests has put there, and without these
    variables."""
    return {name: value for name, value in os.environ.items()
            if "MAKE" not in name and name != "MFLAGS" and name not in but}


def run(command, folder=ROOT, timeout=60, status=None, merged=False, environment=os.environ,
        **more):
    """Runs a command to its end. status: what it must end with; merged: what it says on standard
    error stands in its output; more: variables of its environment."""
    done = subprocess.run(command, cwd=folder, timeout=timeout, check=False, text=True,
                          env=dict(environment, PYTHONDONTWRITEBYTECODE="1", **more),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT if merged else subprocess.PIPE)
    if status not in (None, done.returncode):
        raise AssertionError("status %d of %s:\n%s%s" % (done.returncode, command, done.stdout,
                                                        done.stderr or ""))
    return done


class TempFolder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="shardlab-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def read(self, name):
        return read(self.path(name))

    def popen(self, command, **more):
        """Starts a command in the folder; more: variables of its environment."""
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "SHARDLAB_TIME_FACTOR": "1"}
        return subprocess.Popen(command, cwd=self.folder, env={**os.environ, **environment, **more},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def append(self, name, text):
        self.write(name, self.read(name) + text)


class ReferenceCopy(TempFolder):
    """A test with a copy of the reference, to be spoiled and graded in the kit's own build tree.

    It lies in the same place for all tests of a class, as a student's folder does, so that a file
    which is as it was in the test before need not be compiled again."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = os.path.realpath(tempfile.mkdtemp(prefix="shardlab-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.place, True)

    def setUp(self):
        super().setUp()
        self.copy = os.path.join(self.place, os.path.basename(self.place))
        shutil.rmtree(self.copy, ignore_errors=True)
        # With the time of now: for make alone they are new, and for the grader, which compares the
        # texts, they are not.
        shutil.copytree(os.path.join(ROOT, "reference"), self.copy, copy_function=shutil.copy)
        type(self).addClassCleanup(self.forget_builds)

    def rewrite(self, file, old, new):
        """Puts `new` in the first place of `old`: the line where it begins."""
        path = os.path.join(self.copy, file)
        before, found, after = self.read(path).partition(old)
        self.assertTrue(found, "%r is not in %s" % (old, file))
        self.write(path, before + new + after)
        return 1 + before.count("\n")

    def change(self, file, function, code):
        """Puts code at the beginning of a function: its line."""
        heads = re.findall(r"(?m)^\w[^;={}\n]*\b%s\([^;{}]*\)\n\{\n" % function,
                           self.read(os.path.join(self.copy, file)))
        self.assertEqual(len(heads), 1, "%s is not defined once in %s" % (function, file))
        return self.rewrite(file, heads[0], heads[0] + "    " + code + "\n") + heads[0].count("\n")

    def grade(self, *options, impl=None, **more):
        """(results by test name, the document, what was printed)"""
        out = self.path("out", "results.json")
        done = run(program("grade.py", "--impl", impl or self.copy, "--build", build_folder(),
                           "--out", out, *options), timeout=280, status=0, **more)
        suites = os.path.join(build_folder(), "impl", os.path.basename(self.copy))
        self.assertEqual(processes_with(suites), [])
        document = json.loads(self.read(out))
        return {test["name"]: test for test in document["tests"]}, document, done.stdout

    def forget_builds(self):
        """Removes what the copy left in the build tree."""
        name = os.path.basename(self.copy) + "-*"
        for folder in glob.glob(os.path.join(build_folder(), "impl", name)):
            shutil.rmtree(folder, ignore_errors=True)


# The beginning of every made-up suite: the protocol, and what it does is up to the test.
SPEAKER = '''#!%s -SE
import json, os, signal, sys, time
TESTS = %r
if sys.argv[1:] == ["--list"]:
    print("\\n".join(TESTS))
    sys.exit(0)
wanted = sys.argv[2::2] or TESTS
fd, nonce = int(os.environ["SHARDLAB_RESULTS_FD"]), os.environ["SHARDLAB_NONCE"]
told = 0
def raw(text):
    os.write(fd, text.encode())
def say(test, status="passed", message="", **more):
    global told
    told += 1
    raw(json.dumps(dict({"nonce": nonce, "test": test, "status": status, "message": message,
                         "seconds": 0.25}, **more)) + "\\n")
def end(count=None):
    raw(json.dumps({"nonce": nonce, "end": told if count is None else count}) + "\\n")
def rest(but=()):
    for test in wanted:
        if test not in but:
            say(test)
    end()
'''


def speak(tests, body):
    """The text of a suite with these tests that does `body`."""
    return SPEAKER % (sys.executable, list(tests)) + body


def hears_ctrl_c():
    """What a shell starts in the background ignores SIGINT, and so do these tests then."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def processes_with(word):
    """Living processes that have the word in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/%s/cmdline" % name, "rb") as file:
                    if word.encode() in file.read():
                        found.append(int(name))
            except OSError:
                pass
    return found


def wait_for(what, process=None, seconds=60):
    """Waits until what() is true, and no longer than the process, which makes it so, runs."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end or process and process.poll() is not None:
            raise AssertionError("it did not come")
        time.sleep(0.02)


def in_terminal(command, folder, columns=80, **more):
    """Runs a command in a terminal of so many columns: (exit status, what it printed there)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment.update(dict({"PYTHONDONTWRITEBYTECODE": "1", "SHARDLAB_TIME_FACTOR": "1"}, **more))
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs,
                               stderr=theirs, start_new_session=True)
    os.close(theirs)
    taken = bytearray()

    def take():
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError: # the last of them has closed it
                return
            if not data:
                return
            taken.extend(data)
    reader = threading.Thread(target=take, daemon=True)
    reader.start()
    try:
        status = process.wait(timeout=120)
        reader.join(30)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return status, taken.decode("utf-8", "replace").replace("\r\n", "\n")


FAKE_MAKEFILE = '''.SECONDARY:
BUILD := build
IMPL_KEY := $(notdir $(IMPL))
IMPL_DIR := $(IMPL)
deps:
HARNESS_LIB := $(BUILD)/lib/libharness.a
LIBS := $(BUILD)/lib/libshardlab.a
TASKS_LIB := $(BUILD)/lib/libtasks.a
DEVICES := $(BUILD)/bin/devices
$(DEVICES):
	@mkdir -p $(@D)
	@(echo '#!/bin/sh'; echo 'echo 2 made-up devices') > $@ && chmod +x $@
CONFINE := $(BUILD)/bin/confine
# Without Landlock: the made-up suites, which are scripts, write where they like. test_confine.py
# has the real one.
$(CONFINE): grader/confine.c
	@mkdir -p $(@D) && cc -o $@.real $< -lseccomp
	@printf '%s\\n' '#!/bin/sh' 'while [ "$$1" != -- ]; do [ "$$1" = --report ] && ' \
	    'echo "{\\"landlock\\": 7, \\"seccomp\\": true}" && exit; shift; done' \
	    'exec "$$0.real" --abi 0 "$$@"' > $@ && chmod +x $@
$(BUILD)/lib/%.a $(BUILD)/obj/tasks/%.o:
	@mkdir -p $(@D) && touch $@
define rule
$(BUILD)/impl/$(1)/%.o: $(2)
	@mkdir -p $$(@D)
	cc -c $$< -o $$@
endef
$(eval $(call rule,$(IMPL_KEY),$(BUILD)/impl/$(IMPL_KEY)/%.i))
ifneq ($(IMPL_KEY),reference)
$(eval $(call rule,reference,reference/%.c))
endif
SUITES := suites$(if $(filter reference,$(IMPL_KEY)),/reference)
$(BUILD)/impl/$(IMPL_KEY)/suite/%: $(SUITES)/%.py $(BUILD)/impl/$(IMPL_KEY)/one.o
	@mkdir -p $(@D)
	cc -shared -fPIC $(BUILD)/impl/$(IMPL_KEY)/one.o -Wl,-z,defs -o $@.so
	@cp $< $@ && chmod +x $@
$(BUILD)/impl/$(IMPL_KEY)/suite/two: $(SUITES)/two.py # whether one.o can be made or not
	@mkdir -p $(@D) && cp $< $@ && chmod +x $@
'''


def copy_or_link(source, target):
    """A copy; of the grader's modules links, which cost less, and which no test writes through."""
    return os.link(source, target) if "/grader/" in source else shutil.copy2(source, target)


class FakeKit(TempFolder):
    """A kit in miniature: the real grader, a task `one` of 60 and a task `two` of 40 points whose
    last 10 belong to a test of both files together, and suites that the test writes: those that
    are run, and those that the reference runs for the limits of time.

    Each is a copy of one that has been graded: what belongs to the kit is built there, and what the
    reference takes is known. What a test writes is newer, and made again."""

    graded = None # the folder of that one

    def setUp(self):
        super().setUp()
        if FakeKit.graded is None:
            FakeKit.graded = tempfile.TemporaryDirectory(prefix="shardlab-test-")
            mine, self.folder = self.folder, os.path.realpath(FakeKit.graded.name)
            self.make_kit()
            run(self.command(), self.folder, status=0, SHARDLAB_TIME_FACTOR="1")
            for name in ("out", "build/impl/mine", "build/hints.json"):
                shutil.rmtree(self.path(name), ignore_errors=True)
            self.folder = mine
        shutil.copytree(FakeKit.graded.name, self.folder, dirs_exist_ok=True,
                        copy_function=copy_or_link)

    def write(self, name, text, mode=0o644):
        if os.path.exists(self.path(name)):
            os.unlink(self.path(name)) # it may be a link
        return super().write(name, text, mode)

    def make_kit(self):
        shutil.copytree(GRADER, self.path("grader"), ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self.path("grader"), quiet=2)
        table = os.path.relpath(trace.TABLE, ROOT)
        self.write(table, read(ROOT, table))
        self.write("Makefile", FAKE_MAKEFILE)
        self.task(1, "one", [("a", 10), ("b", 20), ("c", 30)], [])
        self.task(2, "two", [("d", 30)], [("e", 10)])
        for name in ("one", "two"):
            self.write("reference/%s.c" % name, "int %s(void) { return 0; }\n" % name)
            self.write("mine/%s.c" % name, "int %s(void) { return 1; }\n" % name)
        for name, tests in (("one", "abc"), ("two", "d"), ("together", "e")):
            self.suite(name, tests, "rest()")
            self.suite("reference/" + name, tests, "rest()") # what the reference does in it

    def task(self, number, name, own, together):
        def entry(test, points):
            return {"name": test, "points": points, "title": "%s holds." % test,
                    "hint": "Why %s?" % test}
        tests = [entry(*test) for test in own]
        tests += [dict(entry(*test), together=True) for test in together]
        self.write("tasks/%d_%s/task.json" % (number, name), json.dumps({
            "number": number, "name": name, "title": name.title(), "files": [name + ".c"],
            "points": sum(test["points"] for test in tests),
            "handout": "handouts/%d_%s.md" % (number, name), "tests": tests}))

    def suite(self, name, tests, body):
        self.write("suites/%s.py" % name, speak(tests, body + "\n"))

    def course(self, **more):
        """The course: no hidden tests, and its tests run as the grader."""
        self.write("grader/course/course.json", json.dumps({
            **settings.DEFAULTS, "hidden": {"seed": 1, "tests": []}, "run_as": "", **more}))

    def command(self, *arguments, impl="mine"):
        """The command that grades."""
        return [sys.executable, self.path("grader", "grade.py"), "--impl", impl, "--out",
                self.path("out", "results.json")] + list(arguments)

    def start(self, *arguments, impl="mine", **more):
        """Starts the grader."""
        return self.popen(self.command(*arguments, impl=impl), **more)

    def document(self):
        return json.loads(self.read("out/results.json"))

    def grade(self, *arguments, **more):
        """Grades to the end: (exit status, what it printed, the results by test name, the
        document)."""
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=60)
        self.err = err
        document = self.document()
        return process.returncode, out, {test["name"]: test for test in document["tests"]}, document
