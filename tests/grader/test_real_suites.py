"""The grader and the real suites: the reference, the skeleton, and copies of the reference with
faults.

Each copy has one fault, or several that must not touch each other's tests. What is asserted is
which tests fail, with which status and sentence, and that all the others pass.
"""

import os
import re
import resource
import shutil
import unittest

from helpers import ROOT, ReferenceCopy, build_folder, program, run
import manifest

TASKS = manifest.load(ROOT)
FILES = [task.file for task in TASKS]
OWN = {task.name: [test.name for test in task.own()] for task in TASKS}
TOGETHER = [test.name for task in TASKS for test in task.together()]
FULL = sum(task.points for task in TASKS)


class RealSuites(ReferenceCopy):
    maxDiff = None

    def include(self, file, *headers):
        """Puts #include lines at the beginning of a file."""
        path = os.path.join(self.copy, file)
        self.write(path, "".join("#include <%s>\n" % header for header in headers)
                   + self.read(path))

    def grade(self, *options, task="", **more):
        return super().grade("--task", task, *options, **more)

    def all_pass(self, tests, names):
        self.assertEqual({name: (tests[name]["status"], tests[name]["message"]) for name in names
                          if tests[name]["status"] != "passed"}, {})

    def all_fail(self, tests, names, status, words):
        for name in names:
            self.assertEqual(tests[name]["status"], status, name + ": " + tests[name]["message"])
            self.assertIn(words, tests[name]["message"], name)
            self.assertEqual(tests[name]["score"], 0)

    # ---- Whole folders ----

    def test_the_reference_has_all_points(self):
        tests, document, out = self.grade(impl="reference")
        self.all_pass(tests, tests)
        self.assertEqual(document["score"], FULL)
        self.assertEqual(out.splitlines()[-1], "Score: %g/%g" % (FULL, FULL))

    def test_no_limit_on_files_costs_points(self):
        """Autolab's driver has one of 100 MiB, far below what simgpu's devices would take."""
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, usual)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 20, usual[1]))
        tests, document, _ = self.grade(impl="reference", task="3")
        self.all_pass(tests, tests)
        self.assertGreater(document["score"], 0)

    def test_a_copy_elsewhere_has_all_points(self):
        self.assertEqual(self.grade()[2].splitlines()[-1], "Score: %g/%g" % (FULL, FULL))

    def test_the_skeleton_has_none_and_compiles_without_a_warning(self):
        skeleton = self.path(os.path.basename(self.folder) + "s")
        shutil.copytree(os.path.join(ROOT, "skeleton"), skeleton,
                        ignore=lambda folder, names: set(names) - set(FILES))
        run(program("course/skeleton.py", "write", "--skeleton", skeleton), status=0)
        self.copy = skeleton
        tests, document, out = self.grade()
        self.assertEqual(document["score"], 0)
        self.all_fail(tests, TOGETHER, "skipped", "once the tests of tasks 1, 2, 3, 4")
        for name in set(tests) - set(TOGETHER):
            test = tests[name]
            self.assertEqual(test["status"], "failed", test["message"])
            self.assertRegex(test["message"], r"\.c:\d+: part \d\.\d+ of \w+ is not written yet")
        self.assertIn("What to do next: task 1, %s" % OWN["meta_init"][0], out)
        self.assertEqual(out.splitlines()[-1], "Score: 0/%g" % FULL)

    def test_the_skeleton_with_gaps_2_has_none_and_its_first_gap_is_named(self):
        self.copy = self.path(os.path.basename(self.folder) + "g")
        run(program("course/skeleton.py", "write", "--gaps", "2", "--skeleton", self.copy),
            status=0)
        tests, document, out = self.grade()
        self.assertEqual(document["score"], 0)
        letters = set()
        for name in set(tests) - set(TOGETHER):
            message = tests[name]["message"]
            found = re.search(r"\.c:\d+: part (\d\.\d+[a-z]?) of \w+ is not written yet",
                              message)
            self.assertTrue(found, message)
            letters.add(found.group(1)[-1])
        self.assertIn("a", letters)
        self.assertRegex(out, r"Write part 1\.1, at .*/meta_init\.c:\d+")
        self.assertRegex(self.grade(task="2")[2], r"Write part 2\.2a, at .*/flat_param\.c:\d+")
        done = run(program("hint.py", "--impl", self.copy, "--build", build_folder(), "--task",
                           "2"), status=0)
        self.assertIn("part 2.2a is not written yet", done.stdout)
        self.assertRegex(done.stdout, r"Hint 1 of \d: ")
        self.assertIn('section "What to implement"', done.stdout)

    # ---- Files ----

    def test_missing_misnamed_and_broken_files_cost_their_tasks_alone(self):
        os.unlink(os.path.join(self.copy, "meta_init.c"))
        os.rename(os.path.join(self.copy, "flat_param.c"), os.path.join(self.copy, "FlatParam.c"))
        self.change("forward.c", "fsdp_unshard", "int 3;")
        tests, document, _ = self.grade()
        self.all_fail(tests, OWN["meta_init"], "error", "has no meta_init.c")
        self.all_fail(tests, OWN["flat_param"], "error", "There is FlatParam.c: is that it?")
        self.all_fail(tests, OWN["forward"], "error", "forward.c does not compile. %s/forward.c:"
                      % os.path.basename(self.copy))
        wrong = ("meta_init", "flat_param", "forward")
        self.all_pass(tests, [name for task in OWN if task not in wrong for name in OWN[task]])
        self.all_fail(tests, TOGETHER, "skipped", "meta_init.c and flat_param.c and forward.c")
        self.assertEqual(document["score"], sum(test.points for task in TASKS for test in task.own()
                                                if task.name not in wrong))

    # ---- Functions that do what they should not ----

    def test_exit_crash_and_early_return_cost_their_tests_alone(self):
        self.change("optimizer.c", "fsdp_zero_grad_default", "exit(0);")
        self.change("optimizer.c", "fsdp_sgd_step_default",
                    "volatile int *volatile nowhere = (int *)8; *nowhere = 1;")
        self.change("optimizer.c", "fsdp_clip_grad_norm_default", "*norm = 0; return OK;")
        tests, document, _ = self.grade(task="optimizer")
        wrong = ["zero_grad_zeroes", "sgd_step_with_decay", "clip_scales_only_above",
                 "padding_stays_zero"] # the last takes a step of SGD too
        for name in wrong:
            self.assertIn(tests[name]["status"], ("failed", "error"), tests[name])
            self.assertEqual(tests[name]["score"], 0)
        self.assertRegex(tests["zero_grad_zeroes"]["message"], r"exit")
        self.assertRegex(tests["sgd_step_with_decay"]["message"], r"crashed|SIGSEGV")
        self.assertRegex(tests["sgd_step_with_decay"]["message"], r"optimizer\.c:\d+")
        self.all_pass(tests, [name for name in OWN["optimizer"] if name not in wrong])

    def test_an_endless_loop_is_a_time_out_of_its_tests_alone(self):
        self.change("optimizer.c", "fsdp_zero_grad_default",
                    "for (volatile int on = 1; on;) continue;")
        tests, _, out = self.grade("--limit", "5", task="5")
        self.all_fail(tests, ["zero_grad_zeroes"], "timeout", "optimizer.c:")
        self.assertRegex(out, r"(?m)^  TIME   zero_grad_zeroes +0/1$")
        self.all_pass(tests, [name for name in OWN["optimizer"] if name != "zero_grad_zeroes"])

    def test_whoever_would_kill_the_test_program_is_not_run(self):
        self.include("optimizer.c", "signal.h", "unistd.h")
        self.change("optimizer.c", "fsdp_zero_grad_default", "kill(getppid(), SIGKILL);")
        tests, document, _ = self.grade(task="5")
        self.all_fail(tests, OWN["optimizer"], "error", "optimizer.c uses getppid")
        self.assertEqual(document["score"], 0)

    def test_a_printed_pass_is_no_pass(self):
        self.change("meta_init.c", "meta_numel",
                    'printf("{\\"test\\": \\"counts_elements\\", \\"status\\": \\"passed\\"}\\n"); '
                    'fflush(stdout); _exit(0);')
        self.include("meta_init.c", "stdio.h", "unistd.h")
        tests, _, _ = self.grade(task="meta_init")
        self.assertIn(tests["counts_elements"]["status"], ("failed", "error"))
        self.all_pass(tests, ["philox_known_answers"])

    def test_the_students_file_is_what_is_graded(self):
        for file, function, code, task, caught in (
                ("meta_init.c", "meta_numel", "return 1;", "1", "counts_elements"),
                ("flat_param.c", "flat_valid_numel_default", "return 0;", "2",
                 "valid_and_padding_by_rank"),
                ("api.c", "fsdp_units", "return 0;", "6", "lists_flat_parameters")):
            with self.subTest(file=file):
                shutil.copy(os.path.join(ROOT, "reference", file), self.copy)
                self.change(file, function, code)
                self.assertEqual(self.grade(task=task)[0][caught]["status"], "failed")


if __name__ == "__main__":
    unittest.main()
