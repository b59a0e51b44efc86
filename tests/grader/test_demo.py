"""`make demo`, `demo-oom` and `examples`: they run the student's files, say which are replaced and
why, and where a run that fails comes from.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

from helpers import GRADER, ROOT, ReferenceCopy, build_folder, hears_ctrl_c, processes_with
import demo
import manifest
import runner

TASKS = manifest.load(ROOT)
FILES = [task.file for task in TASKS]
SKELETON = os.path.join(ROOT, "skeleton")
SMALL = "--steps 4 --layers 1 --dim 16 --heads 2 --batch 64"
LIMIT = 120


def clean():
    """The environment without what `make test` leaves in it."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "SIMGPU_REPORT", "TERM", "SEED",
                            "WERROR")}
    return dict(kept, SIMGPU_THREADS="1") # threads that wait for each other spin


def without_waiting(err):
    """What the demo says, whether or not a grading of another test builds in the same tree."""
    return "".join(line for line in err.splitlines(True)
                   if not line.startswith("Another grading "))


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Demo(ReferenceCopy):
    """The real program, with a copy of the reference in which files can be spoiled."""

    def start(self, action="demo", *more, flags=SMALL, impl=None, **environment):
        build = os.path.relpath(os.path.join(ROOT, build_folder()), ROOT)
        build = os.path.join(ROOT, build) if build.startswith("..") else build
        return subprocess.Popen(
            [sys.executable, os.path.join(GRADER, "demo.py"), action, "--impl", impl or self.copy,
             "--build", build, "--ranks", "2", "--flags=" + flags] + list(more),
            cwd=ROOT, env=dict(clean(), **environment), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=hears_ctrl_c)

    def run_demo(self, *arguments, **more):
        """(exit status, standard output, standard error)"""
        process = self.start(*arguments, **more)
        try:
            out, err = process.communicate(timeout=LIMIT * runner.time_factor())
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return process.returncode, out, without_waiting(err)

    def spoil(self, name, old, new):
        with open(os.path.join(self.copy, name), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(old, text)
        text = text.replace(old, new, 1)
        with open(os.path.join(self.copy, name), "w", encoding="utf-8") as file:
            file.write(text)
        return 1 + text[:text.index(new)].count("\n")

    def shown(self, name, line):
        return "%s/%s:%d" % (os.path.basename(self.copy), name, line)

    # ---- Which files run ----

    def test_an_empty_skeleton_trains_with_all_six_replaced_and_named(self):
        for name in FILES: # the student's folder may hold work by now: the one that is generated
            shutil.copy(os.path.join(SKELETON, name), self.copy)
        status, out, err = self.run_demo()
        self.assertEqual((status, err), (0, ""))
        shown = re.escape(os.path.basename(self.copy))
        for task in TASKS:
            self.assertRegex(out, r"(?m)^  %s +part %d\.\d+ is not written yet\s+"
                             r"\(%s/%s:\d+\)$" % (task.file, task.number, shown, task.file))
        self.assertIn("None of the six files", out)
        self.assertIn("This ran with the reference's six files", out)

    def test_all_six_are_the_students(self):
        status, out, err = self.run_demo()
        self.assertEqual((status, err), (0, ""))
        self.assertIn("All six files are yours", out)
        self.assertIn("This ran with your six files.", out)
        self.assertEqual(out.count(": equal") + out.count("   equal"), 4)
        self.assertEqual([line for line in out.splitlines() if len(line) > 80], [])

    def test_a_page_shows_one_step_in_time(self):
        page = os.path.join(self.folder, "demo.html")
        status, out, err = self.run_demo("demo", "--html", page)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.rstrip("\n").rpartition("\n")[2], "Page:  " + page)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        for said in ("<svg", "ms per step", "% of communication hidden", "bound by", "W = 2",
                     "are yours", "all-gather h.0"):
            self.assertTrue(said in html, "%r is not on the page" % said)
        # No page is left of an earlier run where this one fails.
        self.spoil("optimizer.c", "c->lr, c->beta1", "0.0f * c->lr, c->beta1")
        self.assertEqual(self.run_demo("demo", "--html", page)[0], 1)
        self.assertFalse(os.path.exists(page))

    def test_both_times_are_printed_where_there_is_a_clock(self):
        line = (r"(?m)^The last step took \d+\.\d+ ms simulated \(laptop\), "
                r"\d+\.\d ms on this computer\.$")
        status, out, err = self.run_demo(SIMGPU_MACHINE="laptop")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, line)
        out = self.run_demo(SIMGPU_MACHINE="none")[1]
        self.assertNotIn("simulated (", out)

    def test_the_reference_needs_no_folder_of_sources(self):
        status, out, err = self.run_demo(impl=os.path.join(ROOT, "reference"))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("All six files are the reference's.", out)

    def test_one_complete_file_runs_and_its_mistake_shows(self):
        """Five files of the skeleton and an optimizer that does not move the weights."""
        for name in FILES:
            if name != "optimizer.c":
                shutil.copy(os.path.join(SKELETON, name), self.copy)
        self.spoil("optimizer.c", "c->lr, c->beta1", "0.0f * c->lr, c->beta1")
        status, out, err = self.run_demo()
        self.assertIn("optimizer.c. The reference's run instead of:", out)
        self.assertEqual(status, 1, out + err)
        self.assertIn("NOT EQUAL", out)
        self.assertIn("with FSDP the first steps are not those of the unsharded run", err)
        self.assertIn("make grade IMPL=%s" % self.copy, err)

    def test_a_file_that_changes_is_linked_anew(self):
        """The same folder, complete, then with a gap, then complete again."""
        with open(os.path.join(self.copy, "forward.c"), encoding="utf-8") as file:
            text = file.read()
        for gap in (False, True, False):
            with open(os.path.join(self.copy, "forward.c"), "w", encoding="utf-8") as file:
                file.write(text + '\nvoid gap(void);\nvoid gap(void)\n{\n    NOT_YET("3.1");\n}\n'
                           if gap else text)
            status, out, err = self.run_demo("examples")
            self.assertEqual(status, 0, err)
            self.assertEqual("forward.c     part 3.1 is not written yet" in out, gap)
            self.assertEqual("your six files" in out, not gap)

    def test_a_file_that_does_not_compile_is_named_with_its_line(self):
        line = self.spoil("backward.c", "Status fsdp_finish_backward(", "Status 7finish(")
        status, out, err = self.run_demo("examples")
        self.assertEqual(status, 0, err)
        self.assertIn("instead of:\n  backward.c", out)
        self.assertIn("does not compile. %s" % self.shown("backward.c", line),
                      " ".join(out.split()))

    def test_what_a_file_says_commands_no_terminal(self):
        evil = "\x1b[2J\x07\x9b31m \u202e"
        self.spoil("backward.c", "#include", "_Static_assert(0, \"%s\");\n#include" % evil)
        self.spoil("forward.c", "#include", "#pragma message(\"%s\")\n#include" % evil)
        status, out, err = self.run_demo("examples")
        self.assertEqual(status, 0, err)
        self.assertIn("backward.c", out)
        for character in "\x1b\x07\x9b\u202e":
            self.assertNotIn(character, out + err)

    def test_a_file_that_cannot_be_linked_is_named(self):
        """Each of two files, which are linked one by one then; the others are not written yet."""
        for name in FILES:
            if name not in ("forward.c", "api.c"):
                shutil.copy(os.path.join(SKELETON, name), self.copy)
        self.spoil("api.c", "Status fsdp_full_state_default(",
                   "Status fsdp_full_states(Module *root, StateVisitor sink, void *arg);\n"
                   "Status fsdp_full_states(")
        self.spoil("forward.c", "cudaStreamWaitEvent(", "elsewhere(")
        self.spoil("forward.c", "\nstatic ", "\ncudaError_t elsewhere(cudaStream_t stream, "
                   "cudaEvent_t event, unsigned flags);\nstatic ")
        status, out, err = self.run_demo("examples")
        self.assertEqual(status, 0, err)
        out = " ".join(out.split())
        self.assertIn("None of the six files", out)
        self.assertIn("api.c it does not define fsdp_full_state_default, which other files call",
                      out)
        self.assertRegex(out, r"forward\.c it cannot be linked: undefined reference to .elsewhere")

    # ---- What goes wrong while it runs ----

    def test_a_missing_wait_is_reported_with_the_students_line(self):
        self.spoil("forward.c",
                   "cudaStreamWaitEvent(unit->ctx->compute_stream, flat->all_gather_done, 0)",
                   "cudaGetLastError()")
        status, out, err = self.run_demo(flags=SMALL.replace("--steps 4", "--steps 100000"))
        self.assertEqual(status, 1, out + err)
        self.assertIn("[race between streams]", err)
        self.assertEqual(len(set(re.findall(r"simgpu: rank (\d+)", err))), 1) # not once a rank
        last = err[err.rindex("The training failed"):]
        self.assertIn("two operations on the same memory", last)
        self.assertRegex(last, r"Your line: %s/forward\.c:\d+ \(fsdp_all_gather\)"
                         % re.escape(os.path.basename(self.copy)))
        self.assertIn("make grade TASK=3 IMPL=%s" % self.copy, last)

    def test_a_crash_is_reported_with_the_students_line(self):
        line = self.spoil("forward.c", "    if (reshards_after_forward(unit))",
                          "    *(volatile int *)8 = 1;\n    if (reshards_after_forward(unit))")
        status, out, err = self.run_demo()
        self.assertEqual(status, 1, out + err)
        self.assertIn("crashed (segmentation fault)", err)
        self.assertIn("Your line: %s (fsdp_post_forward_default)"
                      % self.shown("forward.c", line), err)

    def test_an_error_passed_on_is_reported_with_the_students_line(self):
        line = self.spoil("optimizer.c", "Status fsdp_adamw_step_default(FsdpAdamW *opt)\n{\n",
                          "Status fsdp_adamw_step_default(FsdpAdamW *opt)\n{\n"
                          "    if (opt->t == 1) return fail(ERR_CUDA, \"of the second step\");\n")
        status, out, err = self.run_demo()
        self.assertEqual(status, 1, out + err)
        self.assertIn("Your line: %s" % self.shown("optimizer.c", line + 2), err)
        self.assertIn("make grade TASK=5", err)

    def test_a_step_that_does_not_end_is_reported_with_the_students_line(self):
        line = self.spoil("backward.c", "Status fsdp_finish_backward(FsdpRoot *root)\n{\n",
                          "Status fsdp_finish_backward(FsdpRoot *root)\n{\n"
                          "    while (root->ctx->mesh.shard.rank == 1) {}\n")
        status, out, err = self.run_demo(SHARDLAB_STEP_LIMIT="3")
        self.assertEqual(status, 1, out + err)
        self.assertIn("was still running at", " ".join(err.split()))
        self.assertIn("Your line: %s (fsdp_finish_backward)"
                      % self.shown("backward.c", line + 2), err)

    def test_what_is_never_freed_is_an_error(self):
        self.spoil("api.c", "    CUDA_TRY(cudaStreamDestroy(ctx->all_gather_stream));\n", "")
        status, out, err = self.run_demo()
        self.assertEqual(status, 1, out + err)
        self.assertIn("The training failed: simgpu reports", err)

    def test_an_exit_in_the_middle_is_no_success(self):
        for status in (0, 2):
            shutil.copy(os.path.join(ROOT, "reference", "optimizer.c"), self.copy)
            self.spoil("optimizer.c", "Status fsdp_adamw_step_default(FsdpAdamW *opt)\n{\n",
                       "Status fsdp_adamw_step_default(FsdpAdamW *opt)\n{\n"
                       "    if (opt->t == 1) _exit(%d);\n" % status)
            self.spoil("optimizer.c", "#include <math.h>", "#include <math.h>\n#include <unistd.h>")
            ended, out, err = self.run_demo()
            self.assertEqual(ended, 1, out + err)
            self.assertIn("The training failed", err)

    # ---- Out of memory ----

    def test_alone_it_runs_out_of_memory_and_on_four_it_trains(self):
        status, out, err = self.run_demo("oom")
        self.assertEqual((status, err), (0, ""))
        alone, _, four = out.partition("== On four GPUs of 64 MB, with FSDP ==")
        self.assertIn("out of device memory", alone)
        self.assertIn("%s/meta_init.c:" % os.path.basename(self.copy), alone)
        self.assertNotIn("step", alone)
        losses = [float(text) for text in re.findall(r"loss (\d\.\d+)", four)]
        self.assertLess(losses[-1], losses[0])
        self.assertIn("Each GPU holds 19.3 MB", four)

    def test_a_bug_in_the_first_part_is_no_success(self):
        with open(os.path.join(self.copy, "meta_init.c"), encoding="utf-8") as file:
            text = file.read()
        at = text.index("{\n", text.index("Status meta_materialize(")) + 2
        with open(os.path.join(self.copy, "meta_init.c"), "w", encoding="utf-8") as file:
            file.write(text[:at] + "    *(volatile int *)8 = 1;\n" + text[at:])
        line = 1 + text[:at].count("\n")
        status, out, err = self.run_demo("oom")
        self.assertEqual(status, 1, out + err)
        self.assertIn("Your line: %s (meta_materialize)" % self.shown("meta_init.c", line), err)
        self.assertNotIn("On four GPUs", out)

    # ---- Being stopped ----

    def test_ctrl_c_leaves_no_process(self):
        process = self.start(flags=SMALL.replace("--steps 4", "--steps 1000000"))
        try:
            self.assertIn("All six", process.stdout.readline())
            deadline = time.monotonic() + LIMIT * runner.time_factor()
            program = "/%s" % os.path.basename(self.copy) # of the build tree's folder
            while len(processes_with(program + "-")) < 3 and time.monotonic() < deadline:
                time.sleep(0.05) # the launcher and two ranks
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=30 * runner.time_factor())
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(without_waiting(err).strip(), "demo: stopped")
        self.assertEqual(processes_with(program + "-"), [])


class Interrupted(unittest.TestCase):
    """Ctrl-C at any moment: the ranks end before the folder goes that has their reports."""

    LAUNCH = """#!/bin/sh
trap 'ls -d "${SIMGPU_REPORT%%/*}" > "%s/ended"; exit 143' TERM
echo $$ > "%s/began"
while :; do sleep 0.05; done
"""

    def test_while_the_ranks_are_started(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bin"))
            launch, began = os.path.join(folder, "bin", "launch"), os.path.join(folder, "began")
            with open(launch, "w", encoding="utf-8") as file:
                file.write(self.LAUNCH % (folder, folder))
            os.chmod(launch, 0o755)
            self.addCleanup(lambda: [os.kill(left, signal.SIGKILL)
                                     for left in processes_with(launch)])

            def interrupt(thread):
                deadline = time.monotonic() + 30 * runner.time_factor()
                while not os.path.exists(began) and time.monotonic() < deadline:
                    time.sleep(0.01)
                raise KeyboardInterrupt

            with unittest.mock.patch("threading.Thread.start", interrupt):
                with self.assertRaises(KeyboardInterrupt):
                    demo.Run(types.SimpleNamespace(build=folder), 2, ["program"]).wait()
            self.assertEqual(processes_with(launch), [])
            with open(os.path.join(folder, "ended"), encoding="utf-8") as file:
                reports = file.read().strip()
            self.assertIn("shardlab-demo-", reports) # it was there when the launcher ended
            self.assertFalse(os.path.exists(reports))


class Questions(unittest.TestCase):
    """Questions that make no sense: one line, before anything is built."""

    def ask(self, *arguments):
        done = subprocess.run(
            [sys.executable, os.path.join(GRADER, "demo.py"), "demo", "--impl", SKELETON]
            + list(arguments), cwd=ROOT, env=clean(), capture_output=True, text=True, check=False,
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
