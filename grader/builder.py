"""Builds what a grading needs: the kit once, and the six files of a folder, whatever is in them.

A file that does not compile, or that oversteps what a task may use, is the student's fault (a
Failing); a kit that does not build is not (Infrastructure). Each file is compiled alone within
limits of time and memory, looked at before and after preprocessing and as an object, and linked
with the tests; what is compiled is the very text that was looked at (expand.py). The sums of its
source and object go into the result. Gradings in one build tree keep out of each other's way by
locks.

Interface: Builder(impl, build, backend).find_key(), .common(names, suites), .compile(task),
.link(suite, tasks), .reference_suites(names), .make(targets); Failing, Infrastructure.
Files: expand.py (the text that is compiled), submission.py (what a student's file may be made of),
names.py (what the kit's objects define).
"""

import contextlib
import difflib
import fcntl
import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import intact
import manifest
import runner
import submission
from expand import Expansion, compiler_environment, confined
from files import digest, write_atomically
from layout import cut
from names import names_in
from progress import Building, Progress
from source_text import typographic
from timeouts import Turns

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD_LIMIT = 900.0      # seconds a call of make may take
GIVEN_IS_MADE = ["GIVEN_IS_MADE=1"] # for make: only the folder's own files can be out of date
LONGEST = 1000           # characters of a compiler's line

# What compiling one student's file may take: seconds of the processor, and of the clock for each of
# those; memory of a process, in KiB; bytes of a file that is written, in blocks of 512.
COMPILE_LIMIT, PATIENCE = 60.0, 4
COMPILE_MEMORY, COMPILE_BLOCKS = 4 << 20, 64 << 11
# Where an account has less, that stays.
LIMITED = ('ulimit -v %d 2>/dev/null; ulimit -f %d 2>/dev/null; ulimit -S -t %d 2>/dev/null; '
           'ulimit -H -t %d 2>/dev/null; exec "$@"')
OVER_LIMIT = ((r"CPU time limit exceeded|took more than", "takes too long to compile"),
              (r"out of memory|virtual memory exhausted|Cannot allocate memory|bad_alloc",
               "needs more than 4 GiB of memory to compile"),
              (r"File size limit exceeded|File too large",
               "becomes more than 64 MiB when compiled"),
              (r"Killed signal", "takes too long to compile, or too much memory"))


# What the compiler, the linker and their parts say that lack something of the machine's.
LACKING = re.compile(r"No space left|Too many open files|Resource temporarily unavailable|"
                     r"Cannot fork|Disk quota|Read-only file system|[Kk]illed|"
                     r"terminated (?:with|program)|error while loading shared libraries|"
                     r"internal compiler error")
# A text that any compiler can compile.
PROBE = "".join('#include "%s"\n' % name for name in submission.headers_for(None))


# What gcc and clang say where a function may end without a value.
NO_RETURN = re.compile(r"control reaches end of non-void|does not return a value")


class Infrastructure(Exception):
    """The kit or the machine is at fault, not the student."""


@dataclass
class Failing:
    """Why tests could not run: a status and a sentence."""
    status: str
    message: str


class Builder:
    """Calls make for one implementation folder."""

    NEEDS_ALL = False # whether suites may call what TASKS_LIB (make/objects.mk) has not

    def __init__(self, impl, build, backend, compile_limit=COMPILE_LIMIT):
        self.impl = os.path.abspath(impl)
        self.build = build
        self.compile_limit = compile_limit * runner.time_factor()
        self.backend = backend
        # What make is given, what messages call the folder, and what the compiler does (find_key).
        inside = os.path.relpath(self.impl, ROOT)
        self.given = self.impl if inside.startswith("..") else inside
        self.shown = os.path.basename(self.impl)
        self.folder = self.given
        self.jobs = jobs_asked_for()
        self.key = self.devices = self.confine = None
        self.progress = Progress()
        self.turns = Turns()          # links by this grading, or only the reference's suites
        self.libraries = []           # what programs are linked with
        self.tasks_library = []       # what the tasks' suites are, where that is less (grade.py)
        self.lean = self.lacking = False # only that is made; a file calls what is not in it
        self.made_with = []           # the files that say how a task's object is compiled
        self.compiler = []            # its words, up to the file
        self.present = set()          # names that the tests, the kit and the reference have
        self.others = set()           # those, and what is declared and not made
        self.allowed = submission.declared(ROOT)
        self.expanded = {}            # {task name: its file for make}, whose text is there
        self.files = {}               # task name: what the result says of its file
        self.objects = {}             # task name: Elf

    def make(self, targets, jobs=None, extra=(), capped=False, impl=None):
        """Returns (exit status, what make and the compiler printed); as many jobs at a time as the
        make that called the grader was allowed, or as there are processors."""
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "IMPL",
                                       "BUILD", "TASK", "LAB")}
        environment["LC_ALL"] = "C" # messages in English, quotes in ASCII
        # -O: what a compiler or linker says comes in one piece, whatever another says meanwhile.
        command = ["make", "-s", "-k", "-O", "-j%d" % (jobs or self.jobs),
                   "--no-print-directory", "IMPL=" + (impl or self.given),
                   "BACKEND=" + self.backend] + list(extra)
        if self.build:
            command.append("BUILD=" + self.build)
        # A text that was checked is as old as can be, so that make does not make it again; and so
        # is its file: to make a text is a step on the way, past which it looks for what is newer.
        for name, source in sorted(self.expanded.items()):
            command += ["-o", self.text(name), "-o", source]
        return self.call(command + list(targets), environment, capped)

    def call(self, command, environment, capped):
        """The same for any program; capped: in the limits of a compilation of a student's file."""
        limit = BUILD_LIMIT * runner.time_factor()
        if capped:
            limit = self.compile_limit * PATIENCE
            seconds = int(self.compile_limit + 0.999)
            command = ["sh", "-c", LIMITED % (COMPILE_MEMORY, COMPILE_BLOCKS, seconds, seconds + 2),
                       "sh"] + command
        try:
            process = subprocess.Popen(command, cwd=ROOT, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as problem:
            raise Infrastructure("make cannot be started: %s" % problem)
        try:
            output = process.communicate(timeout=limit)[0]
        except BaseException as problem:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(problem, subprocess.TimeoutExpired):
                return 1, "%s took more than %g seconds" % (" ".join(command[-2:]), limit)
            raise
        return process.returncode, output.decode("utf-8", "replace")

    @contextlib.contextmanager
    def locked(self, name, what, exclusive=True):
        """Keeps other gradings in the same build tree away from what a lock of this name is for."""
        path = os.path.join(ROOT, self.build, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as problem:
            raise Infrastructure("%s cannot be written: %s" % (path, problem.strerror))
        try:
            waiting = False
            while True:
                try:
                    fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
                                | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if runner.stopping.is_set():
                        raise runner.Stopped("the end of the grading")
                    if not waiting and exclusive:
                        with self.progress.cleared():
                            print("Another grading %s: waiting for it …" % what, file=sys.stderr,
                                  flush=True)
                    waiting = True
                    time.sleep(0.05)
            yield
        finally:
            os.close(file) # which unlocks it

    def locked_build(self, exclusive):
        return self.locked("grade.lock", "is building in %s" % self.build, exclusive)

    def locked_folder(self):
        return self.locked("impl/%s/grade.lock" % self.key, "of the same folder is running")

    def compiling(self):
        """What compile() is called in: it looks at the reference's objects, which a grading of the
        reference may be making again."""
        return self.locked_build(self.key == "reference")

    def find_key(self):
        """What the Makefile calls things: this folder's name in the build tree, its path, the tree,
        the programs that name the devices and confine others, the libraries. Also sees whether what
        the machine had when the tree was built is still so: `deps`, which installs nothing while it
        is graded."""
        rule = ("grader-print-key: deps; $(info $(IMPL_KEY) $(IMPL_DIR) $(BUILD) $(DEVICES) "
                "$(CONFINE) $(words $(TASKS_LIB)) $(TASKS_LIB) $(HARNESS_LIB) $(LIBS))"
                "$(info $(MADE_WITH))"
                "$(info $(CC) $(BASE) $(HALF_DONE) $(IMPL_NAMES) $(CFLAGS) $(INCLUDES))@:")
        status, output = self.make(["grader-print-key"], extra=["NO_INSTALL=1", "--eval=" + rule])
        words, made_with, compiler = "", "", ""
        if status == 0 and output.count("\n") >= 3:
            words, made_with, compiler = output.splitlines()[-3:]
        words = words.split()
        if len(words) < 7:
            text = re.sub(r"^\S+:\d+: \*\*\* (.*?)\.?  Stop\.$", r"\1", output.strip())
            text = re.sub(r"\n?^make: \*\*\* .*$", "", text, flags=re.MULTILINE)
            raise Infrastructure(text or "the Makefile does not say where it builds")
        self.key, self.folder, self.build, self.devices, self.confine = words[:5]
        few = 6 + int(words[5])
        self.tasks_library, self.libraries = words[6:few], words[few:]
        self.made_with = [os.path.join(made_with.strip(), name) for name in ("c", "task")
                          if made_with.strip()]
        self.compiler = shlex.split(compiler)

    def name_devices(self):
        """What the tests will run on, in a line."""
        try:
            done = subprocess.run([os.path.join(ROOT, self.devices)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=runner.clean_environment(), check=False,
                                  timeout=60 * runner.time_factor())
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise Infrastructure("%s: %s" % (self.devices, problem))
        if done.returncode != 0:
            raise Infrastructure("%s; without BACKEND=%s the tests run on simulated GPUs"
                                 % (done.stderr.strip(), self.backend))
        return done.stdout.strip()

    def object(self, name, key=None):
        return "%s/impl/%s/%s.o" % (self.build, key or self.key, name)

    def text(self, name):
        """A file's preprocessed text."""
        return "%s/impl/%s/%s.i" % (self.build, self.key, name)

    def suite(self, name, key=None):
        return "%s/impl/%s/suite/%s" % (self.build, key or self.key, name)

    def reference_suites(self, names):
        """Builds suites that are linked only with the reference: their paths by name."""
        targets = {name: self.suite(name, "reference") for name in names}
        with self.turns.turn(alone=True):
            status, output = self.make_given(list(targets.values()), impl="reference",
                                             extra=GIVEN_IS_MADE)
        if status != 0:
            raise Infrastructure("the reference's tests do not build:\n%s"
                                 % output.strip()[-4000:])
        return {name: os.path.join(ROOT, target) for name, target in targets.items()}

    def make_given(self, targets, late=None, **more):
        """Makes what other gradings use too, as make() does; they need not wait for each other
        where it is made already. `late`: says, where it is not, what takes so long (Building)."""
        with self.locked_build(False):
            if self.make(targets + ["-q"], **more)[0] == 0:
                return 0, ""
        with self.locked_build(True):
            if late:
                late.start()
            try:
                return self.make(targets, **more)
            finally:
                if late:
                    late.cancel()

    def common(self, all_names, suites, more=()):
        """Everything that is not the student's: libraries, the reference, the tests (sources of
        suites, without the ending), and more targets."""
        targets = self.tasks_library if self.lean else self.libraries
        targets = targets + [self.devices, self.confine] + self.made_with + list(more)
        targets += ["%s/obj/%s.o" % (self.build, source) for source in suites]
        if self.key != "reference":
            targets += [self.object(name, "reference") for name in all_names]
        late = Building(self.progress, lambda: self.make(targets, extra=["-n"]))
        made = intact.Made(ROOT, self.build)
        try:
            made.look()
        except intact.Differs as problem:
            raise Infrastructure(str(problem))
        status, output = self.make_given(targets, late)
        if status != 0:
            raise Infrastructure("the kit itself does not build:\n%s" % output.strip()[-4000:])
        files = [target for target in targets if target.endswith((".a", ".o"))]
        try:
            with self.locked_build(False):
                self.present = names_in(files, os.path.join(ROOT, self.build, "names.json"))
                made.keep(files)
        except OSError as problem:
            raise Infrastructure("nm, which comes with the compiler, cannot read the built "
                                 "files: %s" % problem)
        self.others = self.present | (self.allowed if self.lean else set())

    def complete(self):
        """Makes the other libraries too, where a student's file calls what is in them."""
        if not self.lacking:
            return
        status, output = self.make_given(self.libraries, Building(
            self.progress, lambda: self.make(self.libraries, extra=["-n"])))
        if status != 0:
            raise Infrastructure("the kit itself does not build:\n%s" % output.strip()[-4000:])

    def with_libraries(self):
        """For make, where it links the student's files."""
        return ["ALL_LIBS=1"] if self.lacking else []

    def named(self, path):
        """A path of the compiler's as messages show it: folder/file.c for the student's."""
        folder = os.path.basename(os.path.dirname(path)) if in_labs(path) else self.shown
        return os.path.join(folder, os.path.basename(path)) if self.is_own(path) else path

    def is_own(self, path):
        """Whether a path that the compiler or the linker names is in the student's folder: as make
        calls it, as it is, or by its name alone, which debug information has where make's is a
        link."""
        folder = os.path.join(ROOT, os.path.dirname(path))
        return in_labs(path) or os.path.abspath(folder) in (self.impl,
                                                            os.path.join(ROOT, self.folder),
                                           os.path.join(ROOT, self.shown.replace("=", "_")))

    def compile(self, task):
        """Compiles the student's file. None, or why its tests cannot run; and the warnings."""
        path, shown = task.source(self.impl), task.shown(self.impl)
        self.files.pop(task.name, None)
        if not os.path.lexists(path):
            return Failing("error", self.missing(task.file)), ""
        wrong = submission.look_at_file(path, os.path.dirname(path))
        if wrong:
            return Failing("error", "%s %s." % (shown, wrong)), ""
        if not os.access(path, os.R_OK):
            return Failing("error", "%s cannot be read: check its permissions." % shown), ""
        source, failing, output = self.compile_text(task)
        if failing:
            return failing, ""
        made = os.path.join(ROOT, self.object(task.name))
        try:
            self.objects[task.name] = submission.Elf(made)
        except submission.NotElf as problem:
            raise Infrastructure("the compiler makes no objects that can be inspected: %s; is "
                                 "there an unusual option in CC or CFLAGS?" % problem)
        if self.lean and submission.called(self.objects[task.name], self.allowed) - self.present:
            self.lacking = True
        self.files[task.name] = {"task": task.number, "file": task.file, "source_sha256": source,
                                 "object_sha256": digest(made)}
        wrong = submission.look_at_object(self.objects[task.name], self.own_names(task),
                                          self.others, bool(os.environ.get("SANITIZE")))
        return Failing("error", "%s %s." % (task.file, wrong)) if wrong else None, output

    def compile_text(self, task):
        """Compiles the file as it is now: (the sum of its bytes, why it cannot be used or None,
        what the compiler said). Its time says nothing: an older file may replace a newer one. So
        the text that the object was made of is remembered by its sum."""
        made = os.path.join(ROOT, self.object(task.name))
        path = task.source(self.impl)
        inside = path.startswith(ROOT + "/labs/") # else the folder is as make calls it
        named = os.path.relpath(path, ROOT) if inside else os.path.join(self.folder, task.file)
        text = Expansion(self.compiler, named, os.path.dirname(path), self.confine,
                         lambda words: self.call(words, compiler_environment(), True))
        if text.failed:
            self.look_at_machine(text.output)
        wrong = text.wrong or text.failed and over_limit(text.output) \
            or submission.of_another(text.needs, task)
        if wrong:
            return "", Failing("error", "%s %s." % (task.file, wrong)), ""
        if text.failed:
            return "", Failing("error", self.first_error(text.output, task)), ""
        total = hashlib.sha256(text.text).hexdigest()
        try:
            with open(made + ".of", encoding="ascii") as file:
                same = file.read() == total
        except (OSError, ValueError):
            same = False
        if not same:
            # The sum goes first: if this is stopped half-way it must not vouch for what is left.
            for stale in (made + ".of", made):
                if os.path.exists(stale):
                    os.unlink(stale)
        kept = os.path.join(ROOT, self.text(task.name))
        if not same or not os.path.exists(kept):
            os.makedirs(os.path.dirname(made), exist_ok=True)
            write_atomically(made[:-2] + ".d", text.rule(self.text(task.name)))
            write_atomically(kept, text.text)
        self.expanded[task.name] = named
        if same and self.is_current(made):
            return text.source_sha256, None, ""
        status, output = self.make([self.object(task.name)], jobs=1, extra=GIVEN_IS_MADE,
                                   capped=True)
        if status != 0:
            self.look_for_gone(output)
            self.look_at_machine(output)
            return "", Failing("error", self.first_error(output, task)), ""
        write_atomically(made + ".of", total)
        return text.source_sha256, None, output if same else text.output + output

    def is_current(self, made):
        """Whether make would leave the object of an equal text as it is: by the same flags and the
        same compiler. Then it need not be called, six times in a grading."""
        try:
            return self.made_with != [] and os.stat(made).st_mtime_ns >= max(
                os.stat(os.path.join(ROOT, path)).st_mtime_ns for path in self.made_with)
        except OSError:
            return False

    def look_at_machine(self, output):
        """Whether it is the machine that lacked something when a file did not compile: then it
        lacks it for a text of a few lines, too."""
        if not over_limit(output) and not LACKING.search(output):
            return
        with tempfile.TemporaryDirectory(prefix="shardlab-probe-") as folder:
            probe = os.path.join(folder, "probe.c")
            with open(probe, "w", encoding="ascii") as file:
                file.write(PROBE if os.path.exists(os.path.join(ROOT, "include", "fsdp.h")) else "")
            words = confined(self.confine, self.compiler + ["-c", probe, "-o", probe + ".o"], [],
                             os.path.realpath(folder))
            status, said = self.call(words, compiler_environment(), True)
        if status != 0:
            raise Infrastructure("the compiler does not work on this machine just now, or within "
                                 "this account's limits (ulimit -a): %s"
                                 % first_line(said or output))

    def look_for_gone(self, output):
        """Whether the compiler or the linker misses what this grading or the kit has made."""
        for line in output.splitlines():
            gone = re.search(r"(?:([^\s']+): )?no such file or directory(?:: '(.+)')?$", line, re.I)
            path = gone and (gone.group(2) or gone.group(1))
            if path and path.startswith(self.build + "/"):
                raise Infrastructure("%s disappeared during the grading. Is another program "
                                     "building or removing %s? Grade again."
                                     % (path, self.build))

    def own_names(self, task):
        """What the task is to define: what the reference's file does."""
        path = os.path.join(ROOT, self.object(task.name, "reference"))
        return submission.Elf(path).defined()

    def first_error(self, output, task):
        """The compiler's first error as file:line: text."""
        if over_limit(output):
            return "%s %s." % (task.file, over_limit(output))
        found = re.search(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: "
                          r"(?P<text>.*)$", output, re.MULTILINE)
        if found:
            text = found.group("text")
            if NO_RETURN.search(text):
                inside = re.findall(r"In function '(\w+)'", output[:found.start()])
                text += (": a path through %s ends without a return. Is `return OK;` missing?"
                         % (inside[-1] if inside else "the function"))
            where, line = found.group("file"), int(found.group("line"))
            odd = typographic(task.source(self.impl), line, text) if self.is_own(where) else ""
            return "%s does not compile. %s:%d: %s%s" % (task.file, self.named(where), line,
                                                         cut(text, LONGEST), odd)
        return "%s does not compile. %s" % (task.file, first_line(output))

    def missing(self, file):
        """A sentence about a file that is not there, with what looks like it."""
        text = "%s has no %s" % (self.shown, file)
        alike = look_alike(file, os.listdir(self.impl))
        if alike:
            return "%s. There is %s: is that it? The name must be exactly %s." % (text, alike, file)
        return "%s, and no file with a similar name." % text

    def link(self, name, tasks):
        """Links a suite with the student's files of these tasks. None, or why it cannot run."""
        with self.turns.turn(), self.locked_build(False):
            status, output = self.make([self.suite(name)], jobs=1,
                                       extra=GIVEN_IS_MADE + self.with_libraries())
        if status == 0:
            return self.look_at_suite(name, tasks)
        self.look_for_gone(output)
        who = tasks[0].file if len(tasks) == 1 else "one of the %s files" % manifest.how_many()
        undefined = re.findall(r"(?:^|: )(?:([^:\n]+:\d+): )?undefined reference to [`']([^`']+)'",
                               output, re.MULTILINE)
        own = [(place, what) for place, what in undefined if place and self.is_own(place)]
        double = re.search(r"multiple definition of [`']([^`']+)'", output)
        if double and double.group(1) == "main":
            text = "%s has a main(), and the tests have their own: remove it." % who
        elif double:
            text = ("%s defines %s, which another file already defines: make yours static, or give "
                    "it another name." % (who, double.group(1)))
        elif own:
            place, what = own[0]
            place = self.named(place.rpartition(":")[0]) + ":" + place.rpartition(":")[2]
            text = "%s uses %s, and nothing defines it: is the name right?" % (place, what)
        elif undefined and undefined[0][0]:
            text = "%s does not define %s, which other files call." % (who, undefined[0][1])
        elif undefined: # no debug information: who calls it is not known
            text = "%s uses or should define %s, and nothing defines it." % (who, undefined[0][1])
        elif over_limit(output) or LACKING.search(output):
            raise Infrastructure("the linker does not work on this machine just now, or within "
                                 "this account's limits (ulimit -a): %s" % first_line(output))
        else:
            text = "%s cannot be linked with the tests: %s" % (who, first_line(output))
        return Failing("error", text)

    def look_at_suite(self, name, tasks):
        """Whether a linked suite may run: it holds these files and no others, nothing in them
        stands in for a library's function, and they call nothing they should not."""
        try:
            program = submission.Elf(os.path.join(ROOT, self.suite(name)))
        except submission.NotElf:
            program = None # a script, in tests of the grader
        for task in tasks:
            own = self.objects[task.name]
            if program:
                linked = submission.is_linked(own, program)
                if linked is False:
                    raise Infrastructure("the tests were linked with a different %s from the one "
                                         "to be graded: remove %s and grade again"
                                         % (task.file, self.build))
                self.files[task.name]["linked"] = linked
                taken = sorted(own.defined() & program.exported())
                if taken:
                    return Failing("error", "%s defines %s, which a library of the program "
                                   "also defines: make it static, or give it another name."
                                   % (task.file, taken[0]))
            wrong = submission.look_at_calls(own, submission.declared(ROOT, task),
                                             task.source(self.impl))
            if wrong:
                return Failing("error", "%s %s." % (task.file, wrong))
        return None


def in_labs(path):
    """Whether a path is that of a file of labs/ to be written or read by students."""
    return re.match(r"(?:.*/)?labs/[^/]+/(?:skeleton|reference)[^/]*\.c$", path) is not None


def jobs_asked_for():
    """How many jobs at a time the make that called the grader was allowed, by its -j; else as many
    as there are processors."""
    asked = re.search(r"(?:^|\s)-j(\d+)", os.environ.get("MAKEFLAGS", "").partition(" -- ")[0])
    return max(1, int(asked.group(1)) if asked else len(os.sched_getaffinity(0)))


def over_limit(output):
    """Which limit of a compilation was passed, from what the compiler says; or ""."""
    return next((text for pattern, text in OVER_LIMIT if re.search(pattern, output)), "")


def first_line(output):
    """The first line that says something."""
    lines = [line for line in output.splitlines() if line.strip()]
    return cut(lines[0], LONGEST) if lines else "make gave no further output."


def look_alike(file, names):
    """Which of the names may have been meant by `file`; what follows the first dot does not count,
    so that Forward.C and forward.c.txt are found."""
    def bare(name):
        return re.sub(r"[^a-z0-9]", "", name.partition(".")[0].lower())
    scored = [(difflib.SequenceMatcher(None, bare(file), bare(name)).ratio(), name)
              for name in sorted(names) if not name.endswith((".o", ".h"))]
    best = max(scored, default=(0, None))
    return best[1] if best[0] >= 0.7 else None
