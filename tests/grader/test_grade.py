"""The grader on made-up suites that die, lie, hang and babble: right status, right sentence, right
test, and the others still count."""

import json
import os
import re
import signal
import time
import unittest

from helpers import FakeKit, processes_with, run, wait_for


class Scores(FakeKit):
    def test_everything_passes(self):
        status, out, tests, document = self.grade()
        self.assertEqual(status, 0, self.err)
        self.assertEqual(out.splitlines()[-5:], [
            "All tests pass.", "What to do next: make demo IMPL=mine",
            "  It trains a model with your two files.", "", "Score: 100/100"])
        self.assertEqual({test["status"] for test in tests.values()}, {"passed"})
        self.assertEqual((document["status"], document["score"], document["max_score"],
                          document["impl"], document["backend"], document["devices"]),
                         ("graded", 100, 100, "mine", "simgpu", "2 made-up devices"))
        self.assertTrue(out.startswith("On 2 made-up devices\n\nTask 1"), out)
        self.assertEqual(set(tests["a"]), {"name", "task", "title", "status", "score", "max_score",
                                           "part", "look", "ask", "foremost",
                                           "message", "hint", "more", "handout", "section",
                                           "seconds", "reports", "limit"})
        self.assertEqual(tests["a"]["seconds"], 0.25)

    def test_a_failure_costs_its_points_and_comes_with_advice(self):
        self.suite("one", "abc", "say('a'); say('b', 'failed', 'rank 1: w[3] is 2, want 3')\n"
                   "say('c'); end()")
        status, out, tests, _ = self.grade()
        self.assertEqual(status, 0)
        self.assertTrue(out.endswith("\nScore: 80/100\n"))
        self.assertRegex(out, r"(?m)^  FAIL   b +0/20$")
        self.assertRegex(out, r"(?m)^  ok     a +10/10$")
        self.assertIn("rank 1: w[3] is 2, want 3", out)
        self.assertIn("What to do next: task 1, b\n", out)
        self.assertNotIn("Hint:", out) # nothing points at a part: make hint has the test's own
        self.assertIn("  Read:  handouts/1_one.md\n", out)
        self.assertIn("make grade TASK=1 IMPL=mine", out)
        self.assertEqual((tests["b"]["status"], tests["b"]["score"]), ("failed", 0))

    def test_what_too_few_gpus_leave_out_is_nobodys_mistake(self):
        out = ("say('%s', 'skipped', 'left out from W = %d on: 1 GPU here; SHARE_GPU=1 lets "
               "ranks share one')\n")
        self.suite("one", "abc", "say('a')\n" + out % ("b", 2) + out % ("c", 4) + "end()")
        status, said, tests, _ = self.grade()
        self.assertEqual(status, 0)
        self.assertTrue(said.endswith(
            "\nAll tests pass that can run here. 2 tests of 50 points are left out: 1 GPU here;\n"
            "SHARE_GPU=1 lets ranks share one\n\nScore: 50/100\n"), said)
        self.assertEqual((tests["b"]["status"], tests["b"]["score"]), ("skipped", 0))
        self.suite("one", "abc", out % ("a", 2) + "say('b', 'failed', 'x'); say('c'); end()")
        self.assertIn("What to do next: task 1, b\n", self.grade()[1])

    def test_the_section_to_read(self):
        path = "tasks/1_one/task.json"
        data = json.loads(self.read(path))
        data["tests"][0]["section"] = "The plan"
        self.write(path, json.dumps(data))
        self.suite("one", "abc", "say('a', 'failed', 'x'); rest('a')")
        _, out, tests, _ = self.grade()
        self.assertIn('  Read:  handouts/1_one.md, section "The plan"\n', out)
        self.assertEqual((tests["a"]["section"], tests["b"]["section"]), ("The plan", ""))
        self.write("mine/one.c", "int one(\n") # no test runs: the section of none of them is meant
        self.assertIn("\n  Read:  handouts/1_one.md\n", self.grade()[1])

    def test_one_task_alone(self):
        for name in ("2", "two"):
            status, out, tests, document = self.grade("--task", name)
            self.assertEqual(status, 0)
            self.assertTrue(out.endswith("\nScore: 40/40 (task 2 only)\n"), out)
            self.assertEqual(sorted(tests), ["d", "e"])
            self.assertEqual(document["max_score"], 40)

    def test_halves_of_points_are_printed_without_zeros(self):
        self.task(1, "one", [("a", 10.5), ("b", 19.25), ("c", 30.25)], [])
        self.suite("one", "abc", "say('a'); say('b', 'failed'); say('c', 'failed'); end()")
        self.assertIn("\nScore: 50.5/100\n", self.grade()[1])

    def test_a_together_test_is_not_judged_while_another_task_fails(self):
        self.suite("one", "abc", "say('a', 'failed', 'x'); rest('a')")
        self.suite("together", "e", "say('e', 'failed', 'weights differ'); end()")
        test = self.grade()[2]["e"]
        self.assertEqual((test["status"], test["score"], test["message"]),
                         ("skipped", 0, "Needs all two files, and is judged only once the tests of "
                          "task 1 pass. What happened:\nweights differ"))
        self.suite("together", "e", "rest()") # and where it passes it has passed
        self.assertEqual(self.grade()[2]["e"]["status"], "passed")

    def test_a_together_test_fails_where_no_other_task_does(self):
        self.suite("two", "d", "say('d', 'failed', 'x'); end()")
        self.suite("together", "e", "say('e', 'failed', 'weights differ'); end()")
        test = self.grade()[2]["e"]
        self.assertEqual((test["status"], test["message"]), ("failed", "weights differ"))
        test = self.grade("--task", "two")[2]["e"]
        self.assertEqual(test["status"], "failed")
        self.assertRegex(test["message"], r"^weights differ\n.*were not tested: `make grade`")

    def test_parts_not_written_are_folded(self):
        self.suite("one", "abc", "\n".join(
            "say(%r, 'failed', 'rank %d: mine/one.c:7: part 1.2 of f is not written yet (NOT_YET)')"
            % (name, rank) for rank, name in enumerate("abc")) + "\nend()")
        out = self.grade()[1]
        self.assertEqual(out.count("part 1.2 is not written yet"), 1)
        self.assertRegex(out, r"(?m)^  todo   3 tests +0/60\n +a, b, c$")

    def test_no_line_of_others_looks_like_the_score(self):
        """Neither as it was said, nor once it is filled to the width, nor by the compiler."""
        told = ["x\n   Score: 100/100", "  * SCORE : 100/100\n\nscore: 1",
                "word " * 13 + "Score: 100/100", "\u200bScore: 100/100\rScore: 99/100"]
        self.suite("one", "abc", "say('a', 'failed', %s); say('b', 'failed', %s); "
                   "say('c', 'failed', %s); end()" % tuple(ascii(text) for text in told[:3]))
        self.suite("two", "d", "say('d', 'failed', %s); end()" % ascii(told[3]))
        self.write("mine/two.c", '#warning Score: 100/100\nint two(void) { return 1; }\n')
        status, out, _, document = self.grade()
        self.assertEqual((status, document["score"]), (0, 10))
        lines = [line for line in (out + self.err).splitlines()
                 if re.match(r'[^\w"]*score[^\w"]*:', line, re.IGNORECASE)]
        self.assertEqual(lines, ["Score: 10/100"])
        self.assertEqual(out.splitlines()[-1], lines[0])
        self.assertIn('"Score": 100/100', out)
        for text in ("#error \033[2JScore: 100/100\n", "#error %s\n" % ("Score: 100/100 " * 20000)):
            self.write("mine/two.c", text)
            out, document = self.grade()[1::2]
            self.assertNotIn("\033", out + self.err)
            self.assertEqual(re.findall(r'(?mi)^[^\w"\n]*score[^\w"]*:.*', out + self.err),
                             ["Score: 0/100"])
            self.assertLess(max(len(test["message"]) for test in document["tests"]), 2000)

    def test_messages_are_wrapped_and_cannot_command_the_terminal(self):
        self.suite("one", "abc", "say('a', 'failed', '\\x1b[2J' + 'word ' * 90); rest('a')")
        out = self.grade()[1]
        self.assertNotIn("\x1b", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 80)


class Seeds(FakeKit):
    """One seed for a whole grading: drawn, or given; told where a test failed that drew."""

    DREW = "say(%r, %r, 'drawn', seed=int(os.environ['SEED']))\n"

    def drawing(self, status="failed"):
        self.suite("one", "abc", "say('a')\n" + self.DREW % ("b", status) + "rest('ab')")
        self.suite("two", "d", self.DREW % ("d", status) + "end()")

    def test_a_seed_is_drawn_anew_and_the_same_for_all_suites(self):
        self.drawing()
        seen = set()
        for _ in range(2):
            status, out, tests, document = self.grade(SEED="")
            self.assertEqual(status, 0, self.err)
            self.assertEqual(document["seed"], tests["b"]["seed"])
            self.assertEqual(document["seed"], tests["d"]["seed"])
            self.assertNotIn("seed", tests["a"])
            self.assertIn("\n  Then:  make grade TASK=1 IMPL=mine SEED=%d\n" % document["seed"],
                          out)
            seen.add(document["seed"])
        self.assertEqual(len(seen), 2)
        self.assertLess(max(seen), 10 ** 9)

    def test_a_seed_is_taken_back(self):
        self.drawing()
        for seed in ("8812", "0", "18446744073709551615"):
            _, out, tests, document = self.grade(SEED=seed)
            self.assertEqual({document["seed"], tests["b"]["seed"], tests["d"]["seed"]},
                             {int(seed)})
            self.assertIn(" SEED=%s\n" % seed, out)

    def test_what_did_not_draw_is_advised_without_a_seed(self):
        self.drawing("passed")
        self.assertNotIn("SEED", self.grade(SEED="8812")[1])
        # The first that failed drew nothing, nor did another of its task.
        self.drawing()
        self.suite("one", "abc", "say('a', 'failed'); say('b', seed=5); rest('ab')")
        self.assertIn("TASK=1 IMPL=mine\n", self.grade(SEED="8812")[1])

    def test_a_seed_that_is_none(self):
        for seed in ("eight", "-1", " 8", "8 ", "+8", "1e3", "0x8", "18446744073709551616",
                     "9" * 400, "8\n9", "\x1b[2J", "\u0668"):
            status, out, _, document = self.grade(SEED=seed)
            self.assertEqual((status, out), (2, ""))
            self.assertEqual(document["status"], "infrastructure")
            self.assertTrue(self.err.startswith("grade: SEED is '"), self.err)
            self.assertEqual(self.err.count("\n"), 1)
            self.assertTrue(self.err.isascii() and self.err[:-1].isprintable(), self.err)
            self.assertLess(len(self.err), 250)

    def test_a_suite_cannot_tell_what_is_no_seed(self):
        for seed in ("'8812'", "-1", "1 << 64", "8.5", "True", "[1]", "{}", "None"):
            self.suite("one", "abc", "say('a', 'failed', 'x', seed=%s); rest('a')" % seed)
            status, out, tests, _ = self.grade(SEED="8812")
            self.assertEqual(status, 0, self.err)
            self.assertEqual(tests["a"]["status"], "failed")
            self.assertNotIn("seed", tests["a"])
            self.assertNotIn("SEED", out)


class Programs(FakeKit):
    """Suites that do not behave."""

    def statuses(self, *arguments, **more):
        status, out, tests, document = self.grade(*arguments, **more)
        self.assertEqual(status, 0, self.err)
        self.assertEqual(document["score"], sum(test["score"] for test in tests.values()))
        return {name: test["status"] for name, test in tests.items()}, tests

    def test_dies_in_the_middle(self):
        self.suite("one", "abc", "for t in wanted:\n"
                   "    if t == 'b': os.kill(os.getpid(), signal.SIGSEGV)\n    say(t)\nend()")
        statuses, tests = self.statuses()
        self.assertEqual(statuses, dict(a="passed", b="error", c="passed", d="passed", e="passed"))
        self.assertIn("SIGSEGV killed it", tests["b"]["message"])

    def test_exit_0_in_the_middle_passes_nothing(self):
        self.suite("one", "abc", "say('a')\nprint('all tests passed', flush=True)\nos._exit(0)")
        statuses, tests = self.statuses()
        self.assertEqual([statuses[name] for name in "abc"], ["passed", "error", "error"])
        self.assertIn("exited with status 0", tests["b"]["message"])
        self.assertIn("all tests passed", tests["b"]["message"])

    def test_no_end_marker(self):
        self.suite("one", "abc", "for t in wanted: say(t)")
        statuses, tests = self.statuses()
        self.assertEqual([statuses[name] for name in "abc"], ["passed", "passed", "error"])
        self.assertIn("before it was done", tests["c"]["message"])

    def test_a_wrong_nonce_counts_for_nothing(self):
        self.suite("one", "abc", "for t in wanted: raw(json.dumps({'nonce': 'guess', 'test': t, "
                   "'status': 'passed'}) + '\\n')\n"
                   "raw(json.dumps({'test': 'a', 'status': 'passed'}) + '\\n')\n"
                   "raw('{}\\n[1]\\nnull\\n\\xff\\n{\\n')\nend(3)")
        self.assertEqual([self.statuses()[0][name] for name in "abc"], ["error"] * 3)

    def test_forged_lines_before_the_real_one(self):
        self.suite("one", "abc", "say('b', 'passed'); say('a')\nsay('b', 'failed'); rest('ab')")
        statuses, tests = self.statuses()
        self.assertEqual([statuses[name] for name in "abc"], ["error"] * 3)
        self.assertIn("two verdicts came for b", tests["a"]["message"])

    def test_forged_lines_behind_the_end(self):
        self.suite("one", "abc", "say('a', 'failed'); say('b', 'failed'); end()\nsay('c')")
        self.assertNotIn("passed", [self.statuses()[0][name] for name in "abc"])

    def test_an_end_with_a_wrong_count(self):
        self.suite("one", "abc", "for t in wanted: say(t)\nend(2)")
        statuses, tests = self.statuses()
        self.assertEqual([statuses[name] for name in "abc"], ["error"] * 3)
        self.assertIn("cannot be trusted", tests["a"]["message"])

    def test_a_verdict_for_somebody_elses_test(self):
        self.suite("one", "abc", "say('d'); rest()")
        self.assertEqual(self.statuses()[0]["a"], "error")

    def test_an_unknown_status_is_no_pass(self):
        self.suite("one", "abc", "say('a', 'PASSED'); rest('a')")
        self.assertEqual(self.statuses()[0]["a"], "error")

    def test_a_test_that_is_left_out(self):
        self.suite("one", "abc", "rest('b')")
        statuses, tests = self.statuses()
        self.assertEqual([statuses[name] for name in "abc"], ["passed", "error", "passed"])
        self.assertIn("did not run this test", tests["b"]["message"])

    def test_an_endless_loop(self):
        self.suite("one", "abc", "for t in wanted:\n    while t == 'b': pass\n    say(t)\nend()")
        statuses, tests = self.statuses("--limit", "1")
        self.assertEqual([statuses[name] for name in "abc"], ["passed", "timeout", "passed"])
        self.assertIn("within 1 seconds", tests["b"]["message"])

    def test_a_time_out_gives_no_points_and_leaves_no_process(self):
        marker = self.path("marker-of-this-test")
        self.suite("one", "abc", "import subprocess\nprogram = 'import time; time.sleep(600)'\n"
                   "for own in (False, True):\n"
                   "    subprocess.Popen([sys.executable, '-c', program, %r],\n"
                   "                     start_new_session=own)\n"
                   "time.sleep(600)" % marker)
        tests = self.statuses("--limit", "0.7")[1]
        self.assertEqual([tests[name]["score"] for name in "abc"], [0, 0, 0])
        self.assertEqual(processes_with(marker), [])

    def test_children_that_outlive_a_passing_suite_are_killed(self):
        marker = self.path("marker-of-this-test")
        self.suite("one", "abc", "import subprocess\nsubprocess.Popen([sys.executable, '-c', "
                   "'import time; time.sleep(600)', %r], start_new_session=True, pass_fds=[fd])\n"
                   "rest()" % marker)
        began = time.monotonic()
        self.assertEqual(self.statuses()[0]["a"], "passed")
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(processes_with(marker), [])

    def test_a_flood_of_output(self):
        self.suite("one", "abc", "print('beginning', flush=True)\nfor i in range(300):\n"
                   "    os.write(1, b'x' * 65536)\nprint('the end', flush=True)\nrest()")
        self.assertEqual(self.statuses()[0]["c"], "passed")
        kept = self.read("out/output/one.txt")
        self.assertLess(len(kept), (1 << 20) + 100)
        self.assertIn("bytes left out", kept)
        self.assertTrue(kept.startswith("beginning"))
        self.assertTrue(kept.endswith("the end\n"))

    def test_a_flood_of_results(self):
        self.suite("one", "abc", "for i in range(100): raw('y' * 65536)\nraw('\\n')\nrest()")
        self.assertEqual(self.statuses()[0]["c"], "passed")

    def test_the_environment_does_not_reach_the_tests(self):
        self.suite("one", "abc", "bad = [n for n in ('SIMGPU_DEVICES', 'RANK', 'NCCL_ALGO') "
                   "if n in os.environ]\n"
                   "say('a', 'failed' if bad else 'passed', str(bad)); rest('a')")
        statuses, tests = self.statuses(SIMGPU_DEVICES="1", RANK="3", NCCL_ALGO="Tree")
        self.assertEqual(statuses["a"], "passed", tests["a"]["message"])


class Files(FakeKit):
    """Files that are missing, misnamed or wrong."""

    def test_a_compile_error_costs_its_task_alone(self):
        self.write("mine/two.c", "int two(void)\n{\n    return nothing;\n}\n")
        status, out, tests, document = self.grade()
        self.assertEqual((status, document["score"]), (0, 60))
        self.assertEqual([tests[name]["status"] for name in "abcde"],
                         ["passed"] * 3 + ["error", "skipped"])
        self.assertRegex(tests["d"]["message"],
                         r"two\.c does not compile\. mine/two\.c:3: .*nothing")
        self.assertIn("two.c cannot be used", tests["e"]["message"])

    def test_a_stale_build_is_not_graded(self):
        self.assertEqual(self.grade()[3]["score"], 100)
        self.write("mine/two.c", "int two(void) { return }\n")
        self.assertEqual(self.grade()[3]["score"], 60)
        os.unlink(self.path("mine/two.c"))
        self.assertEqual(self.grade()[3]["score"], 60)

    def test_a_missing_file(self):
        os.unlink(self.path("mine/two.c"))
        tests = self.grade()[2]
        self.assertEqual(tests["d"]["status"], "error")
        self.assertIn("mine has no two.c, and no file with a similar name", tests["d"]["message"])

    def test_a_misnamed_file_is_named(self):
        for wrong in ("Two.c", "two.c.txt", "tw_o.c", "two (1).c"):
            with self.subTest(name=wrong):
                os.rename(self.path("mine/two.c"), self.path("mine", wrong))
                self.assertIn("There is %s: is that it?" % wrong, self.grade()[2]["d"]["message"])
                os.rename(self.path("mine", wrong), self.path("mine/two.c"))

    def test_an_object_left_by_a_compilation_that_was_stopped_is_not_taken_for_another(self):
        first = self.grade("--task", "1")[3]["files"][0]
        text, rules = self.read("mine/one.c"), self.read("Makefile")
        self.write("mine/one.c", "int one(void) { return 2; }\n")
        self.write("Makefile", rules.replace("cc -c $$< -o $$@", "cc -c $$< -o $$@ && false"))
        self.assertEqual(self.grade("--task", "1")[2]["a"]["status"], "error")
        self.write("Makefile", rules)
        self.write("mine/one.c", text)
        os.utime(self.path("mine/one.c"), (1, 1)) # saved before that object was written
        self.assertEqual(self.grade("--task", "1")[3]["files"], [first])

    def test_what_was_built_and_is_gone_is_no_mistake_of_the_students(self):
        rules = self.read("Makefile")
        for gone, line in (("one.i", "cc -c $$< -o $$@"), ("one.o", "cc -shared")):
            with self.subTest(gone):
                self.write("Makefile", rules.replace(
                    line, "rm -f $(BUILD)/impl/mine/%s; %s" % (gone, line)))
                self.write("mine/one.c", "int one(void) { return %d; }\n" % len(line))
                status, out, _, _ = self.grade()
                self.assertEqual((status, "Score" in out), (3, False))
                self.assertRegex(self.err, r"not your code: build/impl/mine/%s disappeared during "
                                 r"the grading\." % gone)

    def test_a_folder_in_the_files_place(self):
        os.unlink(self.path("mine/two.c"))
        os.makedirs(self.path("mine/two.c"))
        self.assertEqual(self.grade()[2]["d"]["status"], "error")

    def test_an_undefined_function(self):
        self.write("mine/one.c", "int elsewhere(void);\nint one(void) { return elsewhere(); }\n")
        tests = self.grade("--task", "1")[2]
        self.assertIn("elsewhere, and nothing defines it", tests["a"]["message"])

    def test_a_header_that_changes_after_the_look(self):
        """The compiler that preprocesses puts another header in the place of the one it saw."""
        self.write("mine/one.h", "#define ONE 1\n")
        self.write("mine/one.c", '#include "one.h"\nint one(void) { return ONE; }\n')
        self.write("bin/cc", '#!/bin/sh\ncc "$@" || exit\n'
                   'echo "#error changed" >%s\n' % self.path("mine/one.h"), 0o755)
        self.assertEqual(self.grade(CC=self.path("bin/cc"))[3]["score"], 100)
        self.assertEqual(self.read("mine/one.h"), "#error changed\n")

    def test_a_header_that_changed_is_compiled(self):
        self.write("mine/one.c", '#include "one.h"\nint one(void) { return ONE; }\n')
        for text, score in (("#define ONE 1\n", 100), ("#error now\n", 30),
                            ("#define ONE 2\n", 100)):
            path = self.write("mine/one.h", text)
            os.utime(path, (1, 1))
            self.assertEqual(self.grade()[3]["score"], score, text)

    def test_what_the_folder_holds_besides(self):
        """Only headers with plain names are there; a name that make or a shell would read otherwise
        costs nothing as long as no file includes it."""
        for name in ("a:b.h", "a;x.h", "$(x).h", "a b.h", "é.h", "it's.h", "-x.h", "one.h.gch"):
            self.write("mine/" + name, "#error %s\n" % name)
        self.assertEqual(self.grade()[3]["score"], 100)
        odd = "whose name has characters other than letters, digits, '_', '-' and '.': rename it"
        for name, says in (("a:b.h", odd), ("a;x.h", odd), ("$(x).h", odd),
                           ("deep/x.h", "which is not in the folder itself"),
                           ("x.inc", "which is neither a .h nor a .c")):
            self.write("mine/" + name, "\n")
            self.write("mine/one.c", '#include "%s"\nint one(void) { return 1; }\n' % name)
            status, _, tests, document = self.grade()
            self.assertEqual((status, document["score"]), (0, 30))
            self.assertEqual(tests["a"]["message"].count("\n"), 0)
            self.assertIn("one.c includes %s, %s" % (name, says), tests["a"]["message"])
        self.write("mine/one.c", "int one(void) { return 1; }\n")
        self.assertEqual(self.grade()[3]["score"], 100)

    def test_warnings_are_shown(self):
        self.write("mine/two.c", "int two(void) { return 1 / 0; }\n")
        self.assertEqual(self.grade()[3]["score"], 100)
        self.assertIn("warnings about two.c", self.err)
        self.assertIn("division by zero", self.err)


class Trouble(FakeKit):
    """What is not the student's fault, and is not scored as if it were."""

    def infrastructure(self, status, want, document):
        self.assertEqual(status, want, self.err)
        self.assertEqual((document["status"], document["score"]), ("infrastructure", 0))
        self.assertEqual({test["status"] for test in document["tests"]}, {"infrastructure"})

    def test_where_nothing_can_be_written_no_old_results_are_left(self):
        """A full disk, as a limit of the length of files."""
        self.assertEqual(self.grade()[3]["score"], 100)
        done = run(["sh", "-c", 'ulimit -f 0; exec "$@"', "sh"] + self.command(), self.folder)
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
        self.assertIn("not your code", done.stderr)
        self.assertFalse(os.path.exists(self.path("out/results.json")))

    def failing_machine(self, body):
        """A suite that does `body`, on a machine where the reference does so too from now on."""
        bad = self.path("bad")
        text = "if os.path.exists(%r):\n    %s\nrest()" % (bad, body)
        self.suite("reference/one", "abc", text)
        self.suite("one", "abc", "say('a', 'failed', 'no'); rest('a')")
        self.assertEqual(self.grade()[3]["score"], 90) # which measures, for good
        self.suite("one", "abc", text)
        self.assertEqual(self.grade()[3]["score"], 100)
        self.write("bad", "")

    def test_what_the_reference_does_not_pass_either_is_the_machines(self):
        for body in ("os.kill(os.getpid(), signal.SIGSEGV)", "sys.exit(1)",
                     "say('a', 'timeout', 'too late'); rest('a'); sys.exit(0)",
                     "say('a', 'failed', 'mmap: Cannot allocate memory'); rest('a'); sys.exit(0)",
                     "say('a', 'failed', 'open: Too many open files'); rest('a'); sys.exit(0)"):
            with self.subTest(body):
                if os.path.exists(self.path("bad")):
                    os.unlink(self.path("bad"))
                self.failing_machine(body)
                status, _, _, document = self.grade()
                self.infrastructure(status, 3, document)
                self.assertIn("the reference itself does not pass a", document["message"])
                status, _, _, document = self.grade("--limit", "20")
                self.infrastructure(status, 3, document)

    def test_what_it_passes_is_the_students_and_wrong_values_are_never_the_machines(self):
        self.failing_machine("say('a', 'failed', 'is 3, must be 4'); rest('a'); sys.exit(0)")
        self.assertEqual(self.grade()[3]["score"], 90)
        self.suite("reference/one", "abc", "rest()")
        self.suite("one", "abc", "say('a', 'failed', 'killed by signal 11'); say('b'); sys.exit(1)")
        self.assertEqual(self.grade()[3]["score"], 60)

    def test_a_compiler_that_lacks_something_is_nobodys_loss(self):
        self.grade()
        self.write("bin/cc", "#!/bin/sh\necho 'cc1: out of memory allocating 8 bytes' >&2\n"
                   "exit 1\n", 0o755)
        status, _, _, document = self.grade(CC=self.path("bin/cc"))
        self.infrastructure(status, 3, document)
        self.assertIn("ulimit", document["message"])
        # One that lacks it for this file alone.
        self.write("bin/cc", '#!/bin/sh\ncase "$*" in *one.c*)\n'
                   'echo "cc1: out of memory allocating" >&2; exit 1;; esac\nexec cc "$@"\n', 0o755)
        status, _, tests, document = self.grade(CC=self.path("bin/cc"))
        self.assertEqual((status, document["score"]), (0, 30))
        self.assertIn("needs more than 4 GiB", tests["a"]["message"])

    def test_no_such_folder(self):
        status, out, _, document = self.grade(impl="nowhere")
        self.infrastructure(status, 2, document)
        self.assertEqual(out, "")
        self.assertEqual(self.err, "grade: nowhere is not a folder: IMPL must name one with the "
                                   "two task files\n")

    def test_no_such_task(self):
        status, _, _, document = self.grade("--task", "7")
        self.infrastructure(status, 2, document)
        self.assertIn("the tasks are 1 one, 2 two", self.err)

    def test_a_path_that_make_cannot_take(self):
        os.rename(self.path("mine"), self.path("my\nwork"))
        status, _, _, document = self.grade(impl="my\nwork")
        self.infrastructure(status, 2, document)
        self.assertIn("rename the folder", self.err)

    def test_the_kit_does_not_build(self):
        self.write("reference/one.c", "int one(void) {\n")
        status, out, _, document = self.grade()
        self.infrastructure(status, 3, document)
        self.assertIn("not your code", self.err)

    def test_a_broken_manifest(self):
        self.write("tasks/1_one/task.json", "{")
        status, _, _, document = self.grade()
        self.assertEqual((status, document["status"]), (3, "infrastructure"))
        self.assertIn("tasks/1_one/task.json cannot be read", self.err)

    def test_a_suite_that_cannot_be_started(self):
        self.write("suites/one.py", "#!/nonexistent/interpreter\n")
        status, _, _, document = self.grade()
        self.infrastructure(status, 3, document)

    def test_stopped_half_way(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                started = self.path("started-%d" % number)
                self.suite("one", "abc", "open(%r, 'w').close()\ntime.sleep(600)" % started)
                process = self.start()
                wait_for(lambda: os.path.exists(started), process)
                self.assertEqual(self.document()["status"], "infrastructure")
                process.send_signal(number)
                self.err = process.communicate(timeout=30)[1]
                document = self.document()
                self.infrastructure(process.returncode, 3, document)
                self.assertIn("stopped", document["message"])
                self.assertEqual(processes_with(self.path("build")), [])

    def test_killed_leaves_results_that_say_so(self):
        started = self.path("started")
        self.grade() # an older result, of 100
        self.suite("one", "abc", "open(%r, 'w').close()\n"
                   "for i in range(100):\n    time.sleep(0.1)\n"
                   "    if os.getppid() == 1: break" % started)
        process = self.start()
        wait_for(lambda: os.path.exists(started), process)
        process.kill()
        process.communicate(timeout=30)
        for pid in processes_with(self.path("build")):
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.document()["status"], "infrastructure")


if __name__ == "__main__":
    unittest.main()
