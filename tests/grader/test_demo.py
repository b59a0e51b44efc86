"""`make demo`, `demo-oom` and `examples`: they run the student's files, say which are replaced and
why, and where a run that fails comes from.
"""

import os
import re
import shutil
import signal
import subprocess
import types
import unittest
import unittest.mock

from helpers import (ROOT, ReferenceCopy, TempFolder, build_folder, hears_ctrl_c, outside_make,
                     processes_with, program, run, wait_for)
import demo
import manifest
import runner

TASKS = manifest.load(ROOT)
FILES = [task.file for task in TASKS]
COUNT = manifest.how_many() # of them, in a word
SKELETON = os.path.join(ROOT, "skeleton")
SMALL = "--steps 4 --layers 1 --dim 16 --heads 2 --batch 64"
LIMIT = 120


def clean():
    """The environment without what `make test` leaves in it."""
    return dict(outside_make("SIMGPU_REPORT", "TERM", "SEED", "WERROR"),
                SIMGPU_THREADS="1") # threads that wait for each other spin


def without_waiting(err):
    """What the demo says, whether or not a grading of another test builds in the same tree."""
    return "".join(line for line in err.splitlines(True)
                   if not line.startswith("Another grading "))


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Demo(ReferenceCopy):
    """The real program, with a copy of the reference in which files can be spoiled."""

    def start(self, action="demo", *more, flags=SMALL, impl=None, **environment):
        return subprocess.Popen(
            program("demo.py", action, "--impl", impl or self.copy, "--build", build_folder(),
                    "--ranks", "2", "--flags=" + flags, *more), cwd=ROOT,
            env=dict(clean(), **environment),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, preexec_fn=hears_ctrl_c)

    def run_demo(self, *arguments, status=0, **more):
        """(standard output, standard error) of a run that ends with the status."""
        process = self.start(*arguments, **more)
        try:
            out, err = process.communicate(timeout=LIMIT * runner.time_factor())
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        self.assertEqual(process.returncode, status, out + err)
        return out, without_waiting(err)

    def run_well(self, *arguments, **more):
        """What it prints where nothing is wrong."""
        out, err = self.run_demo(*arguments, **more)
        self.assertEqual(err, "")
        return out

    def shown(self, name, line):
        return "%s/%s:%d" % (os.path.basename(self.copy), name, line)

    # ---- Which files run ----

    def test_an_empty_skeleton_trains_with_all_six_replaced_and_named(self):
        for name in FILES: # the student's folder may hold work by now: the one that is generated
            shutil.copy(os.path.join(SKELETON, name), self.copy)
        out = self.run_well()
        shown = re.escape(os.path.basename(self.copy))
        for task in TASKS:
            self.assertRegex(out, r"(?m)^  %s +part %d\.\d+ is not written yet\s+"
                             r"\(%s/%s:\d+\)$" % (task.file, task.number, shown, task.file))
        self.assertIn("None of the %s files" % COUNT, out)
        self.assertIn("This ran with the reference's %s files" % COUNT, out)

    def test_all_six_are_the_students(self):
        out = self.run_well()
        self.assertIn("All %s files are yours" % COUNT, out)
        self.assertIn("This ran with your %s files." % COUNT, out)
        self.assertEqual(out.count(": equal") + out.count("   equal"), 4)
        self.assertEqual([line for line in out.splitlines() if len(line) > 80], [])

    def test_a_page_shows_one_step_in_time(self):
        page = os.path.join(self.folder, "demo.html")
        out = self.run_well("demo", "--html", page)
        self.assertEqual(out.rstrip("\n").rpartition("\n")[2], "Page:  " + page)
        html = self.read(page)
        for said in ("<svg", "ms per step", "% of communication hidden", "bound by", "W = 2",
                     "are yours", "all-gather h.0"):
            self.assertTrue(said in html, "%r is not on the page" % said)
        # No page is left of an earlier run where this one fails.
        self.rewrite("optimizer.c", "c->lr, c->beta1", "0.0f * c->lr, c->beta1")
        self.run_demo("demo", "--html", page, status=1)
        self.assertFalse(os.path.exists(page))

    def test_both_times_are_printed_where_there_is_a_clock(self):
        line = (r"(?m)^The last step took \d+\.\d+ ms simulated \(laptop\), "
                r"\d+\.\d ms on this computer\.$")
        out = self.run_well(SIMGPU_MACHINE="laptop")
        self.assertRegex(out, line)
        self.assertNotIn("simulated (", self.run_demo(SIMGPU_MACHINE="none")[0])

    def test_the_reference_needs_no_folder_of_sources(self):
        out = self.run_well(impl=os.path.join(ROOT, "reference"))
        self.assertIn("All %s files are the reference's." % COUNT, out)

    def test_one_complete_file_runs_and_its_mistake_shows(self):
        """Five files of the skeleton and an optimizer that does not move the weights."""
        for name in FILES:
            if name != "optimizer.c":
                shutil.copy(os.path.join(SKELETON, name), self.copy)
        self.rewrite("optimizer.c", "c->lr, c->beta1", "0.0f * c->lr, c->beta1")
        out, err = self.run_demo(status=1)
        self.assertIn("optimizer.c. The reference's run instead of:", out)
        self.assertIn("NOT EQUAL", out)
        self.assertIn("with FSDP the first steps are not those of the unsharded run", err)
        self.assertIn("make grade IMPL=%s" % self.copy, err)

    def test_a_file_that_changes_is_linked_anew(self):
        """The same folder, complete, then with a gap, then complete again."""
        path = os.path.join(self.copy, "forward.c")
        text = self.read(path)
        for gap in (False, True, False):
            self.write(path, text + '\nvoid gap(void);\nvoid gap(void)\n{\n    NOT_YET("3.1");\n}\n'
                       if gap else text)
            out, err = self.run_demo("examples")
            self.assertEqual("forward.c     part 3.1 is not written yet" in out, gap)
            self.assertEqual("your %s files" % COUNT in out, not gap)

    def test_a_file_that_does_not_compile_is_named_with_its_line(self):
        line = self.rewrite("backward.c", "Status fsdp_finish_backward(", "Status 7finish(")
        out, err = self.run_demo("examples")
        self.assertIn("instead of:\n  backward.c", out)
        self.assertIn("does not compile. %s" % self.shown("backward.c", line),
                      " ".join(out.split()))

    def test_what_a_file_says_commands_no_terminal(self):
        evil = "\x1b[2J\x07\x9b31m \u202e"
        self.rewrite("backward.c", "#include", "_Static_assert(0, \"%s\");\n#include" % evil)
        self.rewrite("forward.c", "#include", "#pragma message(\"%s\")\n#include" % evil)
        out, err = self.run_demo("examples")
        self.assertIn("backward.c", out)
        for character in "\x1b\x07\x9b\u202e":
            self.assertNotIn(character, out + err)

    def test_a_file_that_cannot_be_linked_is_named(self):
        """Each of two files, which are linked one by one then; the others are not written yet."""
        for name in FILES:
            if name not in ("forward.c", "api.c"):
                shutil.copy(os.path.join(SKELETON, name), self.copy)
        self.rewrite("api.c", "Status fsdp_full_state_default(",
                     "Status fsdp_full_states(Module *root, StateVisitor sink, void *arg);\n"
                     "Status fsdp_full_states(")
        self.rewrite("forward.c", "cudaStreamWaitEvent(", "elsewhere(")
        self.rewrite("forward.c", "\nstatic ", "\ncudaError_t elsewhere(cudaStream_t stream, "
                     "cudaEvent_t event, unsigned flags);\nstatic ")
        out, err = self.run_demo("examples")
        out = " ".join(out.split())
        self.assertIn("None of the %s files" % COUNT, out)
        self.assertIn("api.c it does not define fsdp_full_state_default, which other files call",
                      out)
        self.assertRegex(out, r"forward\.c it cannot be linked: undefined reference to .elsewhere")

    # ---- What goes wrong while it runs ----

    def test_a_missing_wait_is_reported_with_the_students_line(self):
        self.rewrite("forward.c",
                     "cudaStreamWaitEvent(unit->ctx->compute_stream, flat->all_gather_done, 0)",
                     "cudaGetLastError()")
        out, err = self.run_demo(flags=SMALL.replace("--steps 4", "--steps 100000"), status=1)
        self.assertIn("[race between streams]", err)
        self.assertEqual(len(set(re.findall(r"simgpu: rank (\d+)", err))), 1) # not once a rank
        last = err[err.rindex("The training failed"):]
        self.assertIn("two operations on the same memory", last)
        self.assertRegex(last, r"Your line: %s/forward\.c:\d+ \(fsdp_all_gather\)"
                         % re.escape(os.path.basename(self.copy)))
        self.assertIn("make grade TASK=3 IMPL=%s" % self.copy, last)

    def test_a_crash_is_reported_with_the_students_line(self):
        """In a folder that is named like one of simgpu's."""
        mine = os.path.join(self.folder, "memory")
        os.rename(self.copy, mine)
        self.copy = mine
        line = self.rewrite("forward.c", "    if (reshards_after_forward(unit))",
                            "    *(volatile int *)8 = 1;\n    if (reshards_after_forward(unit))")
        out, err = self.run_demo(status=1)
        self.assertIn("crashed (segmentation fault)", err)
        self.assertIn("Your line: %s (fsdp_post_forward_default)"
                      % self.shown("forward.c", line), err)

    def test_an_error_passed_on_is_reported_with_the_students_line(self):
        line = self.change("optimizer.c", "fsdp_adamw_step_default",
                           'if (opt->t == 1) return fail(ERR_CUDA, "of the second step");')
        out, err = self.run_demo(status=1)
        self.assertIn("Your line: %s" % self.shown("optimizer.c", line), err)
        self.assertIn("make grade TASK=5", err)

    def test_a_step_that_does_not_end_is_reported_with_the_students_line(self):
        line = self.change("backward.c", "fsdp_finish_backward",
                           "while (root->ctx->mesh.shard.rank == 1) {}")
        out, err = self.run_demo(SHARDLAB_STEP_LIMIT="3", status=1)
        self.assertIn("was still running at", " ".join(err.split()))
        self.assertIn("Your line: %s (fsdp_finish_backward)"
                      % self.shown("backward.c", line), err)

    def test_what_is_never_freed_is_an_error(self):
        self.rewrite("api.c", "    if (ctx->all_gather_stream != NULL) "
                     "CUDA_TRY(cudaStreamDestroy(ctx->all_gather_stream));\n", "")
        out, err = self.run_demo(status=1)
        self.assertIn("The training failed: simgpu reports", err)

    def test_an_exit_in_the_middle_is_no_success(self):
        for status in (0, 2):
            shutil.copy(os.path.join(ROOT, "reference", "optimizer.c"), self.copy)
            self.change("optimizer.c", "fsdp_adamw_step_default",
                        "if (opt->t == 1) _exit(%d);" % status)
            self.rewrite("optimizer.c", "#include", "#include <unistd.h>\n#include")
            _, err = self.run_demo(status=1)
            self.assertIn("The training failed", err)

    # ---- Out of memory ----

    def test_alone_it_runs_out_of_memory_and_on_four_it_trains(self):
        out = self.run_well("oom")
        alone, _, four = out.partition("== On four GPUs of 64 MB, with FSDP ==")
        self.assertIn("out of device memory", alone)
        self.assertIn("%s/meta_init.c:" % os.path.basename(self.copy), alone)
        self.assertNotIn("step", alone)
        losses = [float(text) for text in re.findall(r"loss (\d\.\d+)", four)]
        self.assertLess(losses[-1], losses[0])
        self.assertIn("Each GPU holds 19.3 MB", four)

    def test_a_bug_in_the_first_part_is_no_success(self):
        line = self.change("meta_init.c", "meta_materialize", "*(volatile int *)8 = 1;")
        out, err = self.run_demo("oom", status=1)
        self.assertIn("Your line: %s (meta_materialize)" % self.shown("meta_init.c", line), err)
        self.assertNotIn("On four GPUs", out)

    # ---- Being stopped ----

    def test_ctrl_c_leaves_no_process(self):
        process = self.start(flags=SMALL.replace("--steps 4", "--steps 1000000"))
        try:
            self.assertIn("All " + COUNT, process.stdout.readline())
            name = "/%s-" % os.path.basename(self.copy) # of the build tree's folder
            wait_for(lambda: len(processes_with(name)) >= 3, # the launcher and two ranks
                     process, LIMIT * runner.time_factor())
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=30 * runner.time_factor())
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(without_waiting(err).strip(), "demo: stopped")
        self.assertEqual(processes_with(name), [])


class Interrupted(TempFolder):
    """Ctrl-C at any moment: the ranks end before the folder goes that has their reports."""

    LAUNCH = """#!/bin/sh
trap 'ls -d "${SIMGPU_REPORT%%/*}" > "%s/ended"; exit 143' TERM
echo $$ > "%s/began"
while :; do sleep 0.05; done
"""

    def test_while_the_ranks_are_started(self):
        launch = self.write("bin/launch", self.LAUNCH % (self.folder, self.folder), 0o755)
        self.addCleanup(lambda: [os.kill(left, signal.SIGKILL) for left in processes_with(launch)])

        def interrupt(thread):
            wait_for(lambda: os.path.exists(self.path("began")), None, 30 * runner.time_factor())
            raise KeyboardInterrupt

        with unittest.mock.patch("threading.Thread.start", interrupt):
            with self.assertRaises(KeyboardInterrupt):
                demo.Run(types.SimpleNamespace(build=self.folder), 2, ["program"]).wait()
        self.assertEqual(processes_with(launch), [])
        reports = self.read("ended").strip()
        self.assertIn("shardlab-demo-", reports) # it was there when the launcher ended
        self.assertFalse(os.path.exists(reports))


class Questions(unittest.TestCase):
    """Questions that make no sense: one line, before anything is built."""

    def ask(self, *arguments):
        done = run(program("demo.py", "demo", "--impl", SKELETON, *arguments), environment=clean(),
                   timeout=60 * runner.time_factor())
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.returncode, done.stderr

    def test_ranks(self):
        for ranks in ("0", "abc", "-1", "65", "4.0", ""):
            status, err = self.ask("--ranks=" + ranks)
            self.assertEqual(status, 2)
            self.assertIn("RANKS=%s:" % ranks, err)

    def test_data(self):
        for path, why in (("/nowhere/text", "No such file"), (ROOT, "Is a directory")):
            status, err = self.ask("--data", path)
            self.assertEqual(status, 2)
            self.assertIn("DATA=%s: %s" % (path, why), err)

    def test_flags(self):
        self.assertEqual(self.ask("--flags=--steps '3")[0], 2)

    def test_folder(self):
        status, err = self.ask("--impl", "/nowhere/mine")
        self.assertEqual(status, 2)
        self.assertIn("/nowhere/mine is not a folder", err)


class Places(unittest.TestCase):
    """Which line is the student's."""

    def setUp(self):
        self.files = demo.Files(TASKS, "mine", "", own=[TASKS[2], TASKS[3]])

    def test_of_a_report_the_innermost_own_call(self):
        report = {"class": "race", "title": "a race", "text": "", "calls": [
            {"file": "nn/linear.c", "line": 7}, {"file": "mine/api.c", "line": 3},
            {"file": "mine/forward.c", "line": 60, "function": "fsdp_unshard"},
            {"file": "mine/backward.c", "line": 9}]}
        ending = demo.Ending(0, "", [report], [])
        self.assertEqual(demo.what_happened(ending, self.files),
                         ("simgpu reports: a race", ("mine/forward.c:60 (fsdp_unshard)",
                                                     "forward.c")))

    def test_a_rank_that_runs_comes_before_those_that_wait(self):
        said = ("[rank 0] no step; the rank was waiting in x at mine/forward.c:5 (f)\n"
                "[rank 1] no step; the rank was still running at mine/backward.c:6 (b)\n")
        text, place = demo.what_happened(demo.Ending(124, said, [], []), self.files)
        self.assertEqual(place, ("mine/backward.c:6 (b)", "backward.c"))
        self.assertIn("rank 1", text)

    def test_a_full_device_is_no_mistake_and_other_reports_are(self):
        self.assertEqual(demo.mistakes([{"class": "out-of-memory"}, {"class": "leak"}]),
                         [{"class": "leak"}])


if __name__ == "__main__":
    unittest.main()
