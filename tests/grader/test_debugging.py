"""What handouts/debugging.md says: where a student's printf goes, one test by name, gdb on one of
its ranks; and which line a crash names."""

import os
import re
import shutil
import signal
import subprocess
import unittest

from helpers import ROOT, ReferenceCopy, build_folder, program, run, wait_for

TEST = "unshard_gathers_all_shards"
LINE = '    %s"rank %%d unshards %%s\\n", flat->layout.rank, flat->name);\n'


class Printed(ReferenceCopy):
    def suite(self, stream, wrong=False):
        """The suite of task 3 with a file that prints where a unit is unsharded."""
        before = "    if (flat->state != FLAT_SHARDED) return OK;\n"
        self.rewrite("forward.c", before, before + LINE % stream)
        self.rewrite("forward.c", '#include "fsdp.h"', '#include "fsdp.h"\n#include <stdio.h>')
        if wrong:
            self.rewrite("forward.c", "flat_set_views(flat);", "(void)flat;")
        tests, _, out = self.grade("--task", "3")
        self.assertNotIn("unshards", out) # make grade shows nothing of it
        self.assertEqual(tests[TEST]["status"], "failed" if wrong else "passed")
        key = os.path.basename(self.copy)
        folder = next(name for name in os.listdir(os.path.join(build_folder(), "impl"))
                      if name.startswith(key))
        return os.path.join(build_folder(), "impl", folder, "suite", "forward")

    def run_one(self, program, **environment):
        return run([program, "--only", TEST], timeout=280, merged=True, **environment).stdout

    def test_standard_output_is_shown(self):
        text = self.run_one(self.suite("printf("))
        for rank in range(3):
            self.assertIn("rank %d unshards l.0" % rank, text)
        self.assertIn("1 test(s) run", text)

    def test_standard_error_is_shown_where_it_is_asked_for(self):
        program = self.suite("fprintf(stderr, ", wrong=True)
        self.assertNotIn("unshards", self.run_one(program))
        self.assertIn("rank 0 unshards l.0", self.run_one(program, SHARDLAB_VERBOSE="1"))

class Crashed(ReferenceCopy):
    def test_the_line_that_called_given_code_is_named(self):
        """A crash in another task's file says which line of the student's led there."""
        self.rewrite("backward.c", "TRY(fsdp_unshard(unit));\n    TRY(fsdp_wait",
                     "TRY(fsdp_unshard(NULL));\n    TRY(fsdp_wait")
        tests, _, _ = self.grade("--task", "4")
        row = next(row for row in tests.values() if "crashed" in row["message"])
        self.assertRegex(row["message"], r"at reference/forward\.c:\d+ \(fsdp_unshard\), called "
                         r"from \S*/backward\.c:\d+ \(fsdp_pre_backward\)")
        self.assertRegex(row["look"], r"^part 4\.6, fsdp_pre_backward, \S+/backward\.c:\d+$")


class Traced(ReferenceCopy):
    """One rank of one world, which waits for a debugger."""

    def suite(self):
        self.grade("--task", "3")
        key = os.path.basename(self.copy)
        folder = next(name for name in os.listdir(os.path.join(build_folder(), "impl"))
                      if name.startswith(key))
        return os.path.join(build_folder(), "impl", folder, "suite", "forward")

    def test_worlds_and_ranks(self):
        suite = self.suite()
        text = run([suite, "--only", TEST, "--world", "99"], timeout=280, merged=True).stdout
        self.assertIn("| %s: it has no such world, or no such rank\n" % TEST, text)
        for words in (["--world", "0"], ["--rank", "x"], ["--rank"], ["--rank", "-1"]):
            done = run([suite] + words, timeout=60, merged=True)
            self.assertEqual(done.returncode, 1 if done.returncode == 1 else 2)
            self.assertIn("usage: ", done.stdout)
        waiting = subprocess.Popen([suite, "--only", TEST, "--world", "3", "--rank", "2"],
                                   stdout=subprocess.PIPE, start_new_session=True)
        try:
            line = next(line.decode() for line in waiting.stdout if b"waits" in line)
            found = re.search(r"^rank 2 of 3 waits for a debugger: gdb -p (\d+)$", line, re.M)
            self.assertTrue(found, line)
            os.kill(int(found.group(1)), 0) # it is there
        finally:
            os.killpg(waiting.pid, signal.SIGKILL)
            waiting.stdout.close()
            waiting.wait()

    def test_what_makes_no_sense(self):
        for words, said in ((["--test", "nobody"], "there is no test nobody"),
                            (["--test", ""], "which test?"),
                            (["--test", TEST, "--world", "2", "--rank", "2"],
                             "a world of 2 ranks has no rank 2")):
            done = run(program("debug.py", "--impl", self.copy, *words), timeout=60, merged=True)
            self.assertEqual((done.returncode, done.stdout.startswith("gdb: " + said)), (2, True),
                             done.stdout)

    def test_a_rank_waits_for_another_gdb(self):
        """As .vscode/launch.json has it."""
        waiting = subprocess.Popen(program("debug.py", "--impl", os.path.join(ROOT, "reference"),
                                           "--build", build_folder(),
                                           "--test", TEST, "--world", "2", "--rank", "1", "--wait"),
                                   cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            said = next(line.decode() for line in waiting.stdout if b"waits" in line)
            self.assertRegex(said, r"^rank 1 of 2 waits for a debugger: gdb -p \d+$")
        finally:
            waiting.terminate()
            waiting.stdout.close()
            self.assertEqual(waiting.wait(60), 0)
        wait_for(lambda: not os.path.exists("/proc/%s" % said.split()[-1]))

    @unittest.skipUnless(shutil.which("gdb"), "there is no gdb here")
    def test_gdb_has_the_rank(self):
        done = subprocess.run(program("debug.py", "--impl", os.path.join(ROOT, "reference"),
                                      "--build", build_folder(), "--test",
                                      TEST, "--world", "3", "--rank", "2"),
                              input="print rank_number\ninfo locals\nkill\n", cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=580,
                              check=False)
        if "ptrace: Operation not permitted" in done.stdout:
            self.skipTest("no process may be traced here")
        self.assertRegex(done.stdout, r"hit Breakpoint 1, fsdp_all_gather \(unit=0x", done.stdout)
        self.assertIn("$1 = 2\n", done.stdout)
        self.assertIn("ctx = ", done.stdout)


if __name__ == "__main__":
    unittest.main()
