"""grader/gaps.py: a NOT_YET that stands beside finished code; what tests say of earlier parts."""

import glob
import os
import unittest

from helpers import ROOT, read
import alike
import gaps


def lines_of(*below, above=()):
    lines = ["int f(void)", "{", "    // TODO 3.1", *above, '    NOT_YET("3.1");', *below, "}"]
    return lines, lines.index('    NOT_YET("3.1");') + 1


class Forgotten(unittest.TestCase):
    def test_code_above_or_below(self):
        for below, above, wanted in (
                ((), (), False), (("    return OK;",), (), False),
                (("    free(params);", "    return status;"), (), False),
                (("    given(x);", "    return OK;"), (), False),   # as some skeletons have it
                (("    // int x;", "", "    return OK;"), (), False),
                (("    int x = 1;", "    return g(x);"), (), True),
                ((), ("    return 3;",), True), ((), ("    if (x) {", "    }"), True),
                (("    }", "    int x = 1;", "    return g(x);"), (), False)): # another block's
            lines, number = lines_of(*below, above=above)
            self.assertEqual(gaps.looks_written(lines, number), wanted, lines)

    def test_the_first_and_the_last_line_of_a_file(self):
        self.assertFalse(gaps.looks_written(['NOT_YET("3.1");'], 1))

    def test_no_gap_of_a_skeleton_looks_written(self):
        for path in glob.glob(os.path.join(ROOT, "skeleton", "*.c")) + glob.glob(
                os.path.join(ROOT, "labs", "*", "skeleton*.c")):
            lines = read(path).splitlines()
            for number, line in enumerate(lines, 1):
                if gaps.GAP.match(line):
                    self.assertFalse(gaps.looks_written(lines, number), (path, number))


class Right(unittest.TestCase):
    def row(self, *parts, status="failed"):
        return {"status": status, "message": "a.c:3: part 1.3 of f is not written yet (NOT_YET)"
                + "".join("; %s looks right" % part for part in parts)}

    def test_the_parts_of_all_tests(self):
        self.assertEqual(alike.looks_right([self.row(), self.row("1.1")]), "1.1 looks right.")
        self.assertEqual(alike.looks_right([self.row("1.2"), self.row("1.1", "1.2")]),
                         "1.1 and 1.2 look right.")
        self.assertEqual(alike.looks_right([self.row("L1.2a", "1.1", "1.2")]),
                         "1.1, 1.2 and L1.2a look right.")
        self.assertEqual(alike.looks_right([self.row()]), "")
        self.assertEqual(alike.looks_right([self.row("1.1", status="timeout")]), "")


if __name__ == "__main__":
    unittest.main()
