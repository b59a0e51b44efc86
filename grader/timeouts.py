"""What a time-out costs whoever waits for it: one in full, the others in short.

A loop that never ends is met by most tests of a task, and each may take the full limit of seconds.
On a terminal, after the first time-out of a task its other tests have a short limit (pace.py). One
that this ends has no verdict yet: it runs once more with the full limit, alone, while no other test
of the grading runs; the quickest with the reference comes first. It need not run again where it was
in a function in which a test that takes the reference no longer has used up the full limit: then it
is a time-out by its own short run, and says so. A verdict of another kind counts at once, whatever
the limit. On a platform, and with a limit that somebody asked for, all tests have the full one.

Interface: Timeouts(quick).run(start, names, limit, late) -> ({name: Verdict}, output, {name:
seconds}); start(names, seconds, first_timeout) runs tests of a suite; late: a test of the same task
has had a time-out already.
"""

import contextlib
import threading

from alike import RUNNING
from runner import any_timeout


class Turns:
    """Any number of suites at once, or a test alone."""

    def __init__(self):
        self.changed = threading.Condition()
        self.running = 0
        self.alone = 0       # how many run alone (one) or wait to

    @contextlib.contextmanager
    def turn(self, alone=False):
        """While this lasts, a suite runs among others or a test runs alone. Who waits to run alone
        comes before every suite that has not begun."""
        with self.changed:
            self.alone += alone
            self.changed.wait_for(lambda: not (self.running if alone else self.alone))
            self.running += 1
        try:
            yield
        finally:
            with self.changed:
                self.running -= 1
                self.alone -= alone
                self.changed.notify_all()


class Endless:
    """In which functions tests have used up the full limit."""

    def __init__(self):
        self.known = {}      # function: (seconds of the reference, test)
        self.lock = threading.Lock()

    def note(self, name, verdict, limit):
        """A test that had the full limit."""
        own = limit.reference.get(name)
        with self.lock:
            for function in RUNNING.findall(verdict.message) if own is not None else []:
                self.known[function] = min(self.known.get(function, (own, name)), (own, name))

    def explains(self, name, verdict, limit):
        """(function, test) where a test that takes the reference no longer than this one has used
        up the full limit in a function in which this one was; or None."""
        own = limit.reference.get(name)
        with self.lock:
            for function in RUNNING.findall(verdict.message) if own is not None else []:
                if function in self.known and self.known[function][0] <= own:
                    return function, self.known[function][1]
        return None


class Timeouts:
    """How tests are run, in one grading."""

    def __init__(self, quick):
        self.quick = quick
        self.turns = Turns()
        self.endless = Endless()

    def run(self, start, names, limit, late=False):
        """Runs the tests of a suite, each to a verdict."""
        suite = Quick(self, start, limit) if self.quick else Patient(start, limit)
        if late:
            limit.measure()
        if limit.open:
            with self.turns.turn():
                suite.try_least(names)
        return suite.run(names, late)


class Patient:
    """One suite, each of whose tests has the full limit."""

    def __init__(self, start, limit):
        self.start = start
        self.limit = limit
        self.verdicts = {}
        self.limits = {}
        self.outputs = []

    def try_least(self, names, first_timeout=False):
        """Runs the tests before the reference was measured, which is done where one takes too long.
        What ran out of time and may have more has no verdict yet."""
        self.some(names, self.limit.seconds, first_timeout)
        ended = [name for name, verdict in self.verdicts.items() if verdict.status == "timeout"]
        if ended:
            least = self.limit.seconds
            self.limit.measure()
            for name in ended if self.limit.seconds > least else []:
                del self.verdicts[name], self.limits[name]

    def left(self, names):
        return [name for name in names if name not in self.verdicts]

    def run(self, names, late):
        if self.left(names):
            self.some(self.left(names), self.limit.seconds)
        return self.verdicts, "".join(self.outputs), self.limits

    def some(self, names, seconds, first_timeout=False):
        """Runs tests with a limit."""
        verdicts, output = self.start(names, seconds, first_timeout)
        self.verdicts.update(verdicts)
        self.limits.update((name, seconds) for name in verdicts)
        self.outputs.append(output)


class Quick(Patient):
    """One suite, run for somebody who waits."""

    def __init__(self, timeouts, start, limit):
        super().__init__(start, limit)
        self.turns, self.endless = timeouts.turns, timeouts.endless

    def try_least(self, names, first_timeout=True):
        super().try_least(names, first_timeout)

    def run(self, names, late):
        if not self.limit.reference: # that somebody asked for, or that nobody needed
            return super().run(names, late)
        with self.turns.turn():
            if not late and not any_timeout(self.verdicts):
                self.some(self.left(names), self.limit.seconds, True)
            self.note(names)
            self.rest(self.left(names))
        ended = [name for name in names if self.verdicts[name].status == "timeout"
                 and self.limits[name] < self.limit.seconds]
        for name in sorted(ended, key=self.limit.reference.get):
            self.once_more(name)
        return self.verdicts, "".join(self.outputs), self.limits

    def rest(self, names):
        """The tests after a time-out, those with the same limit together."""
        for seconds in sorted({self.limit.short(name) for name in names}):
            self.some([name for name in names if self.limit.short(name) == seconds], seconds)
        self.note(names)

    def note(self, names):
        for name in names:
            verdict = self.verdicts.get(name)
            if verdict and verdict.status == "timeout" and \
                    self.limits[name] >= self.limit.seconds:
                self.endless.note(name, verdict, self.limit)

    def once_more(self, name):
        """A test that the short limit has ended."""
        explained = self.endless.explains(name, self.verdicts[name], self.limit)
        if explained:
            self.verdicts[name].message += (
                "\n%s, which takes the reference no longer than this test, was still in %s after "
                "%g s, so this test was stopped earlier."
                % (explained[1], explained[0], self.limit.seconds))
            return
        with self.turns.turn(alone=True):
            self.some([name], self.limit.seconds)
        self.note([name])
