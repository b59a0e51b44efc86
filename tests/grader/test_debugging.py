"""What README.md says of debugging: where a student's printf goes, and one test by name."""

import os
import unittest

from helpers import ReferenceCopy, build_folder, run

TEST = "unshard_gathers_the_whole"
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


if __name__ == "__main__":
    unittest.main()
