"""How `make bench` runs programs: interleaved, each in a process group of its own, and what else
ran on the machine meanwhile.

Interface: Shop(build): program(command), launched(ranks, command), kill; Variant, run_rounds;
Load: begin, foreign, loaded; machine(build, blas), available_memory(), commit(); BenchError.
"""

import json
import os
import platform
import re
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOO_BUSY = 0.05 # of all cores, by other programs: above it wall time means nothing
LIMIT = 900     # seconds of one program
# What would change what a run costs, or where its ranks look for each other.
NOT_PASSED = re.compile(r"(SIMGPU|NCCL|OMP|OPENBLAS|DNNL|SLURM|OMPI)_|MAKE|MFLAGS|"
                        r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|SHARE_GPU|GPULOG_\w+|IMPL|"
                        r"TASK|BUILD)$")


class BenchError(Exception):
    """Nothing can be measured; the text says why, in a line."""


# ---- The machine ----

def cores():
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def read_lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def processor():
    """The CPU's model, with the numbers that tell apart those of one name."""
    fields = {}
    for line in read_lines("/proc/cpuinfo"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    numbers = [name.split()[-1] + " " + fields[name] for name in ("cpu family", "model")
               if name in fields]
    return fields.get("model name", platform.machine()) + \
        (" (%s)" % ", ".join(numbers) if numbers else "")


def machine(build):
    """What a record must share with another one to be compared with it."""
    setup = dict(line.split(" := ", 1) for line in read_lines(os.path.join(build, "config.mk"))
                 if " := " in line)
    return {"cpu": processor(), "cores": cores(), "compiler": setup.get("COMPILER", "unknown"),
            "blas": setup.get("BLAS", "unknown")}


def available_memory():
    """Bytes; 0: unknown."""
    for line in read_lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    """The commit, and whether files were changed since."""
    try:
        name = output_of("git", "rev-parse", "--short=10", "HEAD")
        changed = bool(output_of("git", "status", "--porcelain"))
    except OSError:
        name, changed = "", False
    return (name or "no commit") + (", files changed since" if changed else "")


def busy_seconds(lines):
    """Seconds of all cores in which something ran, or in which a hypervisor ran something else;
    from /proc/stat. None where there is none."""
    for line in lines:
        parts = line.split()
        if parts and parts[0] == "cpu":
            times = [int(word) for word in parts[1:9]] + [0] * 8
            user, nice, system, _, _, interrupts, soft, stolen = times[:8]
            return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
    return None


def own_seconds():
    """CPU seconds of this process and of all that it has started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Load:
    """What other programs used of the cores since it was made."""

    def __init__(self):
        self.wall, self.own = time.monotonic(), own_seconds()
        self.busy = busy_seconds(read_lines("/proc/stat"))
        self.average = os.getloadavg()[0]

    def foreign(self):
        """The mean number of cores; None: unknown."""
        now, wall = busy_seconds(read_lines("/proc/stat")), time.monotonic() - self.wall
        if now is None or self.busy is None or wall <= 0:
            return None
        return max(0.0, (now - self.busy - (own_seconds() - self.own)) / wall)


def is_loaded(foreign, load, n):
    """Whether wall time means nothing: by what other programs used of n cores or, where that is
    unknown, by the load before."""
    return foreign > TOO_BUSY * n if foreign is not None else load > 0.25 * n


# ---- Programs ----

@dataclass
class Variant:
    """One of the things that are compared: a command that prints figures."""
    key: str
    title: str
    command: list
    env: dict = field(default_factory=dict)
    read: object = None # of what was printed, a dict of figures


class Shop:
    """Runs programs, one at a time."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.process = None
        self.environment = {name: value for name, value in os.environ.items()
                            if not NOT_PASSED.match(name)}

    def path(self, *parts):
        return os.path.join(self.build, *parts)

    def launched(self, ranks, command):
        return [self.path("bin", "launch"), "-n", str(ranks)] + command

    def run(self, command, env=None, statuses=(0,)):
        """What it printed; its CPU seconds with those of all its processes, and its seconds."""
        wall, cpu = time.monotonic(), own_seconds()
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=dict(self.environment, **(env or {})), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True)
        try:
            out, said = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BenchError("`%s` takes longer than %d s" % (" ".join(command), LIMIT))
        except BaseException:
            self.kill()
            raise
        if self.process.returncode not in statuses:
            lines = [line for line in (said + "\n" + out).splitlines() if line.strip()]
            raise BenchError("`%s` ends with %d: %s" % (" ".join(command), self.process.returncode,
                                                       lines[0] if lines else "it says nothing"))
        return out, own_seconds() - cpu, time.monotonic() - wall

    def kill(self):
        """Ends the program with its group. launch's ranks have groups of their own, and end when
        launch does."""
        if self.process is None or self.process.poll() is not None:
            return
        signal.signal(signal.SIGINT, signal.SIG_IGN) # Ctrl-C twice is once
        for word, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
            try:
                os.killpg(self.process.pid, word)
                self.process.communicate(timeout=seconds)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
            break
        try:
            os.killpg(self.process.pid, signal.SIGKILL) # what is left of the group
        except (ProcessLookupError, PermissionError):
            pass


def read_json(text):
    """The line of bench/train_step.c and bench/pytorch_step.py."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise BenchError("a program printed no figures: %r" % text[-200:])


def run_rounds(shop, variants, rounds, say):
    """{key: [figures of each round]}, interleaved: A B C, A B C, …"""
    found = {variant.key: [] for variant in variants}
    for i in range(rounds):
        say("round %d of %d" % (i + 1, rounds))
        for variant in variants:
            out, cpu, wall = shop.run(variant.command, variant.env)
            figures = (variant.read or read_json)(out)
            found[variant.key].append(dict(figures, process_cpu=cpu, process_wall=wall))
    return found
