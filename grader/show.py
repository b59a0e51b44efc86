"""What a grading shows in addition to the results: what a step costs, and a page where it is asked
for.

All of it is for looking at. Whatever goes wrong with the page or with the training that it draws is
told, and changes no score; an earlier grading's page does not stay beside newer results.

Interface: Show(grading, path).drop() before the grading; .trace() and .take_cost() at its end while
the folder is still locked; .line() -> what a step costs, or ""; .write() -> the page's path, after
it. For path "" drop, trace and write do nothing.
Files: trace.py (the training), cost.py (a step's cost), page.py (the page).
"""

import os
import time

import layout
import manifest
import runner

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = {"cuda": 600.0}  # seconds the training may take
LIMIT_ELSEWHERE = 60.0


class Show:
    def __init__(self, grading, path):
        self.grading = grading
        self.path = path
        self.outcome = None
        self.cost = None

    def drop(self):
        """Removes an earlier page; OSError."""
        if self.path and os.path.lexists(self.path):
            os.unlink(self.path)

    def own(self):
        """Names of the tasks whose file is complete and may run."""
        grading = self.grading
        return [task.name for task in grading.tasks if task.name in grading.builder.objects
                and task.name not in grading.broken and not grading.gap(task)]

    def trace(self):
        """What training does with those files and the reference's others."""
        if not self.path or self.grading.kind is manifest.LAB:
            return # it is the six tasks' program
        import trace # with page.py as much as the rest of the grader, and seldom asked for
        builder, options = self.grading.builder, self.grading.options
        run = self.runner(options.limit or LIMIT.get(builder.backend, LIMIT_ELSEWHERE)
                          * runner.time_factor())
        try:
            self.outcome = trace.take(builder, self.own(), self.grading.all_tasks, run,
                                      self.grading.account)
        except (runner.Stopped, KeyboardInterrupt):
            raise
        except Exception as problem: # no score depends on a trace
            self.outcome = trace.Outcome(why="There is nothing to draw: %s" % problem)

    def runner(self, limit):
        """Who runs a test of a program within so many seconds: run(program, account, test)."""
        def run(program, account, test):
            caps = runner.Caps(int(self.grading.options.memory * (1 << 30)), account=account,
                               confinement=self.grading.confinement)
            verdicts, output = runner.run_tests([os.path.join(ROOT, program)], [test], limit, caps)
            self.grading.keep_output(program, output)
            return verdicts[test], output
        return run

    def take_cost(self):
        """What a step costs, where all six files have passed."""
        grading = self.grading
        if grading.alone or any(row["status"] != "passed" for row in grading.results()):
            return
        try:
            import cost
            with grading.progress.during(lambda: "Timing a step of GPT-2 medium …"):
                self.cost = cost.take(grading.builder, grading.all_tasks,
                                      self.runner(cost.LIMIT * runner.time_factor()),
                                      grading.account)
        except (runner.Stopped, KeyboardInterrupt):
            raise
        except Exception: # no score depends on it
            self.cost = None

    def line(self):
        """What a step costs; "" where that is not known."""
        if not self.cost:
            return ""
        import cost
        return cost.line(self.cost)

    def write(self):
        """Writes the page; its path as people type it, or "" where there is none."""
        if not self.path:
            return ""
        titles = {task.number: task.title for task in self.grading.all_tasks}
        try:
            import page
            page.write(self.path, self.grading.document("graded"), self.outcome,
                       time.strftime("%Y-%m-%d %H:%M %Z"), titles,
                       **({"cost": self.cost} if self.cost else {}))
        except Exception as problem: # the score stands without a page
            layout.tell("grade: the page %s was not written: %s" % (self.path, problem))
            return ""
        inside = os.path.relpath(self.path)
        return self.path if inside.startswith("..") else inside
