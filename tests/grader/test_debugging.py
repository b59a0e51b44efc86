"""What README.md says of debugging: where a student's printf goes, and one test by name."""

import json
import os
import subprocess
import sys
import unittest

from helpers import GRADER, ROOT, ReferenceCopy, build_folder

TEST = "unshard_gathers_the_whole"
LINE = '    %s"rank %%d unshards %%s\\n", flat->layout.rank, flat->name);\n'


class Printed(ReferenceCopy):
    def suite(self, stream, wrong=False):
        """The suite of task 3 with a file that prints where a unit is unsharded."""
        path = os.path.join(self.copy, "forward.c")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        before = "    if (flat->state != FLAT_SHARDED) return OK;\n"
        self.assertIn(before, text)
        text = text.replace(before, before + LINE % stream, 1)
        text = text.replace('#include "fsdp.h"', '#include "fsdp.h"\n#include <stdio.h>', 1)
        if wrong:
            self.assertIn("flat_set_views(flat);", text)
            text = text.replace("flat_set_views(flat);", "(void)flat;", 1)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(GRADER, "grade.py"), "--impl", self.copy, "--build",
             build_folder(), "--task", "3", "--out", self.path("out", "results.json")], cwd=ROOT,
            capture_output=True, text=True, timeout=280, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("unshards", done.stdout + done.stderr) # make grade shows nothing of it
        with open(self.path("out", "results.json"), encoding="utf-8") as file:
            status = {test["name"]: test["status"] for test in json.load(file)["tests"]}[TEST]
        self.assertEqual(status, "failed" if wrong else "passed")
        key = os.path.basename(self.copy)
        folder = next(name for name in os.listdir(os.path.join(build_folder(), "impl"))
                      if name.startswith(key))
        return os.path.join(build_folder(), "impl", folder, "suite", "forward")

    def run_one(self, program, **environment):
        done = subprocess.run([program, "--only", TEST], cwd=ROOT, text=True, timeout=280,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env=dict(os.environ, **environment))
        return done.stdout

    def test_standard_output_is_shown(self):
        text = self.run_one(self.suite("printf("))
        for rank in range(3):
            self.assertIn("rank %d unshards l.0" % rank, text)
        self.assertIn("1 test(s) run", text)

    def test_standard_error_is_shown_where_it_is_asked_for(self):
        program = self.suite("fprintf(stderr, ", wrong=True)
        self.assertNotIn("unshards", self.run_one(program))
        self.assertIn("rank 0 unshards l.0", self.run_one(program, SHARDLAB_VERBOSE="1"))


if __name__ == "__main__":
    unittest.main()
