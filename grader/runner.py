"""Runs test programs and hears their verdicts; what they run is not trusted.

A suite is a program that knows --list (prints its tests' names) and --only NAME (any number of
times; runs these alone). Its verdicts come over a pipe, never from stdout or an exit status: the
descriptor's number is in SHARDLAB_RESULTS_FD, and each line is a JSON object with the nonce of
SHARDLAB_NONCE, drawn for each start (each on one line):
    {"nonce": …, "test": name, "status": "passed|failed|timeout|error|skipped", "message": …,
     "seconds": …, "reports": text, "seed": number, "figures": [number, …]}
    {"nonce": …, "end": number of verdicts}
A test that has drawn something tells the seed (draw.h). Reports are JSON of simgpu, or of what is
tested: only what looks like reports is kept (clean_reports). Other lines, and other nonces, count
for nothing. Each start is a process group of its own; its processes are known by descent, group and
the mark in their environment. When it is over, or has more than its Caps allow, all are killed.

Interface: list_tests(command) -> names; run_tests(command, names, limit, caps, environment, grace,
heard, first_timeout) -> ({name: Verdict}, output); stop() from another thread ends what runs;
stop_on_signals(); Caps, Verdict, CannotRun, Stopped.
"""

import json
import os
import secrets
import resource
import selectors
import shutil
import signal
import subprocess
import threading
import time
import tempfile
from dataclasses import dataclass, field

import seeds
import segments

OUTPUT_LIMIT = 1 << 20   # bytes kept of what a program prints
LINE_LIMIT = 1 << 18     # bytes of one line of results
MESSAGE_LIMIT = 4000     # characters of a message
MOST_FIGURES = 16        # of a test (tests/support/suite.c)
REPORT_LIMIT = 16        # reports of a test, and calls or ranges of a report
STATUSES = ("passed", "failed", "timeout", "error", "skipped")

# Variables of the user's that would change what a simulated GPU or a program does.
FOREIGN = ("SIMGPU_", "GPULOG_", "NCCL_", "CUDA_", "CUBLAS_", "OMP_", "OMPI_", "SLURM_", "MAKE",
           "MFLAGS", "SHARDLAB_RESULTS", "SHARDLAB_NONCE", "SHARDLAB_LIMIT")
FOREIGN_NAMES = ("LD_PRELOAD", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                 "MASTER_ADDR", "MASTER_PORT", "CMOCKA_MESSAGE_OUTPUT", "CMOCKA_XML_FILE",
                 "CMOCKA_TEST_FILTER")


@dataclass
class Verdict:
    status: str
    message: str = ""
    seconds: float = 0.0
    reports: list = field(default_factory=list) # simgpu's, as dicts
    seed: int = None                            # what it has drawn from; None: it drew nothing
    figures: list = None                        # whole numbers that it told; None: none


@dataclass
class Caps:
    """What the processes of one start may use together, and as whom they run."""
    memory: int = 0          # bytes; 0: as much as there is
    processes: int = 256     # the largest test has 64 ranks
    cpu: int = 0             # seconds of the processor that each may use; 0: as many as it likes
    account: object = None   # whose they are (account.py); None: the grader's own
    confinement: object = None # what they may read and write (confinement.py); None: whatever


@dataclass
class Run:
    """What one start of a program came to."""
    verdicts: dict
    complete: bool      # the end marker came, and its count is right
    forged: str         # why the verdicts cannot be believed; "" where they can
    timed_out: bool
    stopped: str        # why it was stopped for using too much; "" where it was not
    how: str            # how the program ended, in words
    output: str


class CannotRun(Exception):
    """The program could not be started, or could not say which tests it has."""


class Stopped(Exception):
    """Somebody stopped the grading."""


# What runs now, so that stop() finds it: its Family.
running = set()
running_lock = threading.Lock()
stopping = threading.Event()


def stop():
    """Ends every program that runs, and starts no other."""
    with running_lock:
        stopping.set()
        for family in running:
            family.kill()


def stop_on_signals():
    """Makes the signals that end a program end it in order."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number, frame):
        for other in numbers:
            signal.signal(other, signal.SIG_IGN) # once is enough: let the end be an orderly one
        raise Stopped(signal.Signals(number).name)
    for number in numbers:
        signal.signal(number, stop)


def time_factor():
    """How much slower than usual this machine is said to be."""
    try:
        factor = float(os.environ.get("SHARDLAB_TIME_FACTOR", "1"))
    except ValueError:
        return 1.0
    return factor if 0 < factor < 1e6 else 1.0


def clean_environment():
    """The user's environment without what would change a test's course. On real GPUs the machine
    itself may need some of NCCL's and CUDA's variables: which network, which of the GPUs."""
    needed = ("NCCL_", "CUDA_", "GPULOG_") if os.environ.get("BACKEND") == "cuda" else ()
    return {name: value for name, value in os.environ.items()
            if name.startswith(needed) or not name.startswith(FOREIGN + ("TF32",))
            and name not in FOREIGN_NAMES}


def ending(status):
    """A process's end in words, from its Popen.returncode."""
    if status >= 0:
        return "it exited with status %d" % status
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "signal %d" % -status
    meaning = {"SIGSEGV": ", a bad memory access", "SIGBUS": ", a bad memory access",
               "SIGABRT": ", it aborted", "SIGFPE": ", a division by zero or similar",
               "SIGKILL": ", from outside or because memory ran out"}
    return "%s killed it%s" % (name, meaning.get(name, ""))


def list_tests(command):
    """The names that `command --list` prints."""
    try:
        done = subprocess.run(command + ["--list"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=clean_environment(),
                              timeout=20 * time_factor(), start_new_session=True, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise CannotRun("%s --list: %s" % (command[-1], problem))
    if done.returncode != 0:
        raise CannotRun("%s --list: %s" % (command[-1], ending(done.returncode)))
    return done.stdout.decode("utf-8", "replace").split()


class Output:
    """What a program printed: its beginning and its end, however much there was between them."""

    def __init__(self):
        self.head = bytearray()
        self.tail = bytearray()
        self.dropped = 0

    def add(self, data):
        half = OUTPUT_LIMIT // 2
        room = half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * half:
            self.trim()

    def trim(self):
        surplus = max(0, len(self.tail) - OUTPUT_LIMIT // 2)
        self.dropped += surplus
        del self.tail[:surplus]

    def text(self):
        self.trim()
        gap = b"\n[%d bytes left out]\n" % self.dropped if self.dropped else b""
        return bytes(self.head + gap + self.tail).decode("utf-8", "replace")


# What a report holds (simgpu/src/report/report_json.c), and of which kind it is.
REPORT_FIELDS = {"class": str, "title": str, "rank": int, "device": int, "pid": int,
                 "follows": bool, "calls": list, "ranges": list, "hardware": str, "question": str,
                 "read": str, "text": str}
PLACE_FIELDS = {"call": str, "file": str, "line": int, "function": str, "path": str, "stream": str,
                "rank": int, "allocation": str, "where": str, "begin": int, "end": int}


def carried(text):
    """The text with nothing that UTF-8 cannot carry: JSON can name half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")


def clean_fields(entry, fields):
    """Of a dict, what has one of these names and is of the kind that belongs to it."""
    kept = {}
    for name, kind in fields.items():
        value = entry.get(name)
        if kind is str and isinstance(value, str):
            kept[name] = carried(value[:MESSAGE_LIMIT])
        elif kind is list and isinstance(value, list):
            kept[name] = [clean_fields(place, PLACE_FIELDS) for place in value[:REPORT_LIMIT]
                          if isinstance(place, dict)]
        elif kind is not list and type(value) is kind and abs(value) < 1 << 63:
            kept[name] = value
        elif value is None and name in entry and kind is not list:
            kept[name] = None
    return kept


def clean_reports(text):
    """The reports among the lines of a text that anybody may have written."""
    reports = []
    for line in text.split("\n") if isinstance(text, str) else []:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("class"), str) and \
                isinstance(entry.get("title"), str):
            reports.append(clean_fields(entry, REPORT_FIELDS))
        if len(reports) == REPORT_LIMIT:
            break
    return reports


def clean_figures(value):
    """A list of whole numbers; None where it is anything else."""
    if isinstance(value, list) and len(value) <= MOST_FIGURES and \
            all(type(number) is int and abs(number) < 1 << 63 for number in value):
        return value
    return None


class Listener:
    """Takes the bytes of the results pipe and makes verdicts of the lines that are to be
    believed."""

    def __init__(self, nonce, names, heard=None):
        self.nonce = nonce
        self.heard = heard   # called with the name of a test whose verdict came
        self.names = set(names)
        self.verdicts = {}
        self.lines = 0       # verdicts heard
        self.end = None      # the end marker's count
        self.forged = ""
        self.cannot_run = "" # why the program was not started, where it was not
        self.rest = bytearray()

    def add(self, data):
        self.rest += data
        while True:
            cut = self.rest.find(b"\n")
            if cut < 0:
                break
            self.line(bytes(self.rest[:cut]))
            del self.rest[:cut + 1]
        if len(self.rest) > LINE_LIMIT:
            self.rest.clear() # no line of ours is as long

    def line(self, raw):
        try:
            entry = json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return
        if not isinstance(entry, dict) or entry.get("nonce") != self.nonce:
            return
        if "cannot_run" in entry:
            self.cannot_run = str(entry["cannot_run"])
            return
        if "end" in entry:
            self.end = entry["end"] if self.end is None else -1
            return
        name, status, seconds = entry.get("test"), entry.get("status"), entry.get("seconds", 0)
        if not isinstance(name, str) or name not in self.names or status not in STATUSES:
            self.forged = "a verdict came for a test that was not started (%s)" % str(name)[:60]
            return
        if self.end is not None:
            self.forged = "a verdict came after the end of the results"
        if name in self.verdicts:
            self.forged = "two verdicts came for %s" % name
        self.lines += 1
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e9:
            seconds = 0
        message = carried(str(entry.get("message") or ""))[:MESSAGE_LIMIT]
        self.verdicts[name] = Verdict(status, message,
                                      round(float(seconds), 3),
                                      clean_reports(entry.get("reports")),
                                      entry["seed"] if seeds.is_seed(entry.get("seed")) else None,
                                      clean_figures(entry.get("figures")))
        if self.heard:
            self.heard(name)


def expendable(pid, caps):
    """A test that fills the machine's memory is to be killed for it, and nobody else; and it leaves
    no core file of 80 GiB of simulated memory behind."""
    try:
        with open("/proc/%d/oom_score_adj" % pid, "w", encoding="ascii") as file:
            file.write("1000")
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        if caps and caps.cpu:
            resource.prlimit(pid, resource.RLIMIT_CPU, (caps.cpu, caps.cpu + 1))
    except (OSError, AttributeError, ValueError):
        pass # ended already, or a system that has no such thing


class Family:
    """A program that was started and the processes that came of it."""

    LOOK = 0.2 # seconds between two looks at the machine's processes

    def __init__(self, process, mark):
        self.process = process
        self.mark = mark.encode()
        self.began = None    # when the program began: in ticks since the machine's start
        self.seen = {}       # (pid, when it began): whether it belongs here
        self.next = 0.0

    def members(self):
        """The living ones: those that descend from the program, are in its group or session, or
        carry its mark; and those that did when they were seen last."""
        table = {}
        for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                    words = file.read().rpartition(")")[2].split()
                table[int(name)] = (words[0], int(words[1]), int(words[2]), int(words[3]),
                                    words[19])
            except (OSError, IndexError, ValueError):
                continue
        if self.began is None and self.process.pid in table:
            self.began = int(table[self.process.pid][4])
        for pid, (_, _, group, session, began) in table.items():
            if self.began is not None and int(began) < self.began:
                self.seen[pid, began] = False # it was there before
            elif not self.seen.get((pid, began)):
                # The mark may come a moment after the fork: only a yes is remembered for good.
                self.seen[pid, began] = (pid == self.process.pid or group == self.process.pid
                                         or session == self.process.pid
                                         or self.has_mark(pid))
        found = {pid for pid, entry in table.items() if self.seen[pid, entry[4]]}
        grown = True
        while grown:
            young = {pid for pid, entry in table.items() if entry[1] in found} - found
            found |= young
            grown = bool(young)
        for pid in found:
            self.seen[pid, table[pid][4]] = True
        return [pid for pid in found if table[pid][0] not in "ZX"]

    def has_mark(self, pid):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return self.mark in file.read()
        except OSError:
            return False

    def over(self, caps):
        """Why it is to be stopped, or ""; looks only now and then."""
        if not caps or time.monotonic() < self.next:
            return ""
        self.next = time.monotonic() + self.LOOK
        members = self.members()
        if caps.processes and len(members) > caps.processes:
            return "more than %d processes ran at once" % caps.processes
        if caps.memory and memory_of(members) > caps.memory:
            return "its processes used more than %.3g GiB of memory" % (caps.memory / (1 << 30))
        return ""

    def kill(self):
        """Ends them all. A process may fork while we look: look again until nobody is found."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        for _ in range(100):
            members = self.members()
            if not members:
                segments.remove()
                return
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            time.sleep(0.01)


def memory_of(pids):
    """Bytes that the processes use together. What they share (simulated devices, above all) counts
    once: as much as the one has that has most of it."""
    own = shared = 0
    for pid in pids:
        try:
            with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        figures = {line.split(":")[0]: int(line.split()[1]) << 10 for line in text.splitlines()
                   if line.startswith(("RssAnon:", "RssShmem:"))}
        own += figures.get("RssAnon", 0)
        shared = max(shared, figures.get("RssShmem", 0))
    return own + shared


def start_once(command, names, limit, caps, environment, heard, first_timeout):
    """One start of the program for these tests. `limit`: seconds it may go without a verdict;
    `environment`: what the program is told beside the usual; `heard`: called with each test's name
    when its verdict came; `first_timeout`: ends it as soon as a test says that its time is over."""
    nonce, mark = secrets.token_hex(16), "SHARDLAB_RUN=" + secrets.token_hex(16)
    arguments = [word for name in names for word in ("--only", name)]
    account = caps.account if caps else None
    # A folder for the reports and all else that it writes: it may do with it whatever it likes.
    try:
        folder = os.path.realpath(tempfile.mkdtemp(prefix="shardlab-scratch-"))
        reports = os.path.join(folder, "reports.jsonl")
        with open(reports, "wb"):
            pass
        if account:
            account.give(reports)
            account.give(folder)
    except OSError as problem:
        raise CannotRun("no folder for what a test writes: %s" % problem)
    program = command[0]
    if caps and caps.confinement:
        command = caps.confinement.words(folder, program) + command
    results, results_in = os.pipe()
    environment = dict(clean_environment(), **(environment or {}))
    environment.update(SHARDLAB_RESULTS_FD=str(results_in), SHARDLAB_NONCE=nonce,
                       SHARDLAB_RUN=mark.partition("=")[2], SIMGPU_REPORT=reports)
    try:
        # Under the lock, so that stop() sees every process that was started before it.
        with running_lock:
            if stopping.is_set():
                raise CannotRun("stopped")
            process = subprocess.Popen(command + arguments, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, pass_fds=[results_in],
                                       start_new_session=True,
                                       **(account.start() if account else {}))
            family = Family(process, mark)
            running.add(family)
    except (OSError, CannotRun) as problem:
        os.close(results)
        shutil.rmtree(folder, True)
        if account and isinstance(problem, PermissionError):
            raise CannotRun("the account %s may not run %s: the folders above it must be open to "
                            "others (chmod o+x)" % (account.name, program))
        raise CannotRun("%s cannot be started: %s" % (program, problem))
    finally:
        os.close(results_in)

    expendable(process.pid, caps)
    listener, output = Listener(nonce, names, heard), Output()
    takers = {results: listener.add, process.stdout.fileno(): output.add}
    try:
        timed_out, stopped = listen(family, takers, listener, limit, caps, first_timeout)
    finally:
        family.kill()
        process.wait()
        with running_lock:
            running.discard(family)
        drain(takers)
        os.close(results)
        process.stdout.close()
        shutil.rmtree(folder, True)
    if listener.cannot_run:
        raise CannotRun("%s cannot be started: %s" % (program, listener.cannot_run))
    if listener.end is not None and listener.end != listener.lines and not listener.forged:
        listener.forged = "%d verdicts came, but the program says that it sent %s" % (
            listener.lines, listener.end)
    return Run(listener.verdicts, listener.end is not None, listener.forged, timed_out,
               stopped, ending(process.returncode), output.text())


def listen(family, takers, listener, limit, caps, first_timeout=False):
    """Takes what comes until the program has ended, gave no verdict for too long, used too much, or
    has told a time-out where the first is enough.
    Returns (whether it gave no verdict for too long, what it used too much of)."""
    process = family.process
    heard, deadline = listener.lines, time.monotonic() + limit
    with selectors.DefaultSelector() as selector:
        for descriptor in takers:
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ)
        while process.poll() is None:
            if listener.lines != heard:
                heard, deadline = listener.lines, time.monotonic() + limit
                if first_timeout and any_timeout(listener.verdicts):
                    return False, ""
            if time.monotonic() >= deadline:
                return True, ""
            stopped = family.over(caps)
            if stopped:
                return False, stopped
            if not selector.get_map():
                # Both pipes are closed and the program lives: only its end or a limit is left.
                try:
                    process.wait(timeout=0.05)
                except subprocess.TimeoutExpired:
                    pass
                continue
            # A stray child can keep the pipes open: look after the program itself now and then.
            for key, _ in selector.select(timeout=0.05):
                if not take(key.fd, takers):
                    selector.unregister(key.fd)
    return False, ""


def take(descriptor, takers):
    """Takes one read's worth; False at the end."""
    try:
        data = os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return True
    takers[descriptor](data)
    return bool(data)


def drain(takers):
    """What was still in the pipes when everybody was dead."""
    for descriptor, taker in takers.items():
        for _ in range(64):
            try:
                data = os.read(descriptor, 1 << 16)
            except (BlockingIOError, OSError):
                break
            if not data:
                break
            taker(data)


def any_timeout(verdicts):
    return any(verdict.status == "timeout" for verdict in verdicts.values())


def run_tests(command, names, limit, caps=None, environment=None, grace=0.0, heard=None,
              first_timeout=False):
    """Runs the tests, each to a verdict: where the program dies or hangs in one of them, the others
    run in a fresh one. Returns the verdicts by name, and what the program printed, all starts
    together. `limit`: seconds a test may take; `grace`: how many it may take longer before it is
    stopped, for one that knows its limit and can say where its time went. `heard`: called with each
    name when its verdict came from the program. `first_timeout`: no test runs after the first that
    takes too long; those have no verdict then."""
    verdicts, outputs = {}, []
    left = list(names)
    while left:
        run = start_once(command, left, limit + grace, caps, environment, heard, first_timeout)
        outputs.append(run.output)
        if run.forged:
            # Somebody else speaks on the channel, so none of what it said is worth anything.
            for name in left:
                verdicts[name] = Verdict("error", "The results cannot be trusted: %s."
                                         % run.forged)
            break
        verdicts.update(run.verdicts)
        missing = [name for name in left if name not in run.verdicts]
        if first_timeout and any_timeout(run.verdicts):
            break
        if not missing:
            if not run.complete:
                verdicts[left[-1]] = Verdict("error", "The test program ended before it was done: "
                                             "%s." % run.how)
            break
        culprit = missing[0]
        if run.timed_out:
            verdicts[culprit] = Verdict("timeout", "No verdict within %g seconds; the test program "
                                        "was stopped." % limit, limit)
            if first_timeout:
                break
        elif run.stopped:
            verdicts[culprit] = Verdict("error", "The test was stopped: %s." % run.stopped)
        elif run.complete:
            # It is done and never ran some: a fresh start would leave them out again.
            for name in missing:
                verdicts[name] = Verdict("error", "The test program did not run this test.")
            break
        else:
            verdicts[culprit] = Verdict("error", "The test program ended during this test: %s.%s"
                                        % (run.how, last_words(run.output)))
        left = missing[1:]
    return verdicts, "".join(outputs)


def last_words(output):
    """The last line that a program printed, as the end of a message."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " Its last output: %s" % lines[-1][:300] if lines else ""
