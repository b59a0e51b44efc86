"""The page of a grading, where one is asked for: what it takes beside the results, and when.

A page is for looking at. Whatever goes wrong with it or with the training that it draws is told,
and changes no score; an earlier grading's page does not stay beside newer results.

Interface: Show(grading, path).drop() before the grading, .trace() at its end while the folder is
still locked, .write() -> the page's path after it. For path "" all three do nothing.
Files: trace.py (the training), page.py (the page).
"""

import os
import time

import layout
import runner

LIMIT = {"cuda": 600.0}  # seconds the training may take
LIMIT_ELSEWHERE = 60.0


class Show:
    def __init__(self, grading, path):
        self.grading = grading
        self.path = path
        self.outcome = None

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
        if not self.path:
            return
        import trace # with page.py as much as the rest of the grader, and seldom asked for
        builder, options = self.grading.builder, self.grading.options
        limit = options.limit or (LIMIT.get(builder.backend, LIMIT_ELSEWHERE)
                                  * runner.time_factor())

        def run(program, account, test):
            caps = runner.Caps(int(options.memory * (1 << 30)), account=account)
            verdicts, output = runner.run_tests([os.path.join(trace.ROOT, program)], [test],
                                                limit, caps)
            self.grading.keep_output(program, output)
            return verdicts[test], output
        try:
            self.outcome = trace.take(builder, self.own(), self.grading.all_tasks, run,
                                      self.grading.account)
        except (runner.Stopped, KeyboardInterrupt):
            raise
        except Exception as problem: # no score depends on a trace
            self.outcome = trace.Outcome(why="There is nothing to draw: %s" % problem)

    def write(self):
        """Writes the page; its path as people type it, or "" where there is none."""
        if not self.path:
            return ""
        titles = {task.number: task.title for task in self.grading.all_tasks}
        try:
            import page
            page.write(self.path, self.grading.document("graded"), self.outcome,
                       time.strftime("%Y-%m-%d %H:%M %Z"), titles)
        except Exception as problem: # the score stands without a page
            layout.tell("grade: the page %s was not written: %s" % (self.path, problem))
            return ""
        inside = os.path.relpath(self.path)
        return self.path if inside.startswith("..") else inside
