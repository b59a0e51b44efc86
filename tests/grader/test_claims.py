"""grader/devtools/claims.py: the table of tests/claims.txt as it is, and what the check says of
tables that are wrong. And one rule that no mutant can break, because it is about a folder's
name."""

import os
import shutil
import subprocess
import sys
import unittest

from helpers import GRADER, ROOT
import test_attacks

sys.path.insert(0, os.path.join(GRADER, "devtools"))
import claims # noqa: E402

CODE = {"fsdp.h": """
int add(int a, int (*carry)(int));
static inline bool is_pair(const struct Pair *pair)
{
    return pair->n == 2;
}
typedef struct Pair { int n; } Pair;
"""}
TESTS = {"adds", "pairs/counts"}
MUTANTS = {"adds_twice": {"adds"}, "overflows": {"adds"}, "counts_twice": {"pairs/counts"}}
TABLE = """# A table.

fsdp.h
  add/once: adds | adds_twice
  add/exact: adds |
      overflows
  Pair/n: pairs/counts | counts_twice
  helpers: is_pair

handouts/1
  1.1: as fsdp.h add/once
"""


class TheTable(unittest.TestCase):
    def test_every_function_and_rule_has_a_test_and_a_mutant(self):
        found, wrong, _ = claims.check_table(ROOT)
        self.assertEqual(wrong, [])
        self.assertGreater(len(found), 150)

    def test_make_claims_prints_it(self):
        done = subprocess.run(["make", "-s", "claims", "TASK=2"], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^Task 2, Flat parameter$[\s\S]*"
                         r"fsdp\.h flat_create/host_memory[\s\S]*whole_shard_made_on_the_host")
        self.assertNotIn("Task 3", done.stdout)


class Tables(unittest.TestCase):
    def check(self, old="", new="", code=CODE):
        self.assertIn(old, TABLE)
        return "\n".join(claims.check(*claims.read_table(TABLE.replace(old, new)), code, TESTS,
                                      MUTANTS, {"adds_twice", "overflows"}))

    def test_a_complete_table(self):
        self.assertEqual(self.check(), "")

    def test_names_that_stand_for_several(self):
        self.assertEqual(self.check("Pair/n:", "Pair,is_*/n:"), "")
        self.assertEqual(self.check("helpers: is_pair", "is_*: adds | overflows"), "")

    def test_what_is_wrong_is_said(self):
        for old, new, says in (
                ("adds | adds_twice", "| adds_twice", "fsdp.h add/once: it has no test"),
                ("adds |\n      overflows", "adds", "fsdp.h add/exact: it has no mutant"),
                ("adds |\n      overflows", "adds", "no entry names mutant overflows"),
                ("pairs/counts", "pairs/sorts", "there is no test pairs/sorts"),
                ("overflows", "wraps", "there is no mutant wraps"),
                ("counts_twice", "counts_twice adds_twice",
                 "mutant adds_twice loses none of its tests, but adds"),
                ("  helpers: is_pair\n", "", "fsdp.h is_pair has no entry"),
                ("Pair/n", "Tuple/n", "fsdp.h has no Tuple"),
                ("is_pair", "is_pair is_tuple", "fsdp.h has no is_tuple")):
            with self.subTest(says):
                self.assertIn(says, self.check(old, new))

    def test_a_new_function_is_missed(self):
        code = {"fsdp.h": CODE["fsdp.h"] + "void subtract(int a,\n              int b);\n"}
        self.assertEqual(self.check(code=code), "fsdp.h subtract has no entry")

    def test_what_cannot_be_read(self):
        for old, new, says in (("  add/once: adds", "  add/once adds", "cannot be read"),
                               ("as fsdp.h add/once", "as fsdp.h sub", "there is no fsdp.h sub"),
                               ("add/exact", "add/once", "two entries have one name: fsdp.h add/o"),
                               ("fsdp.h\n", "\n", "cannot be read")):
            with self.subTest(new), self.assertRaisesRegex(claims.BadTable, says):
                self.check(old, new)


class FolderNames(test_attacks.Graded):
    def test_a_folder_called_nn_may_not_wait_on_the_host(self):
        text = test_attacks.reference("optimizer.c")
        step = "    opt->t++;\n"
        waits = text.replace(step, step + "    cudaStreamSynchronize(stream);\n")
        self.assertNotEqual(waits, text)
        folder = self.path("nn")
        shutil.copytree(os.path.join(ROOT, "reference"), folder)
        with open(os.path.join(folder, "optimizer.c"), "w", encoding="utf-8") as target:
            target.write(waits)
        tests, _, _ = self.grade(folder)
        self.assertEqual(tests["every_rank_steps_its_shard"]["status"], "failed")
        self.assertIn("the host waited", tests["every_rank_steps_its_shard"]["message"])


if __name__ == "__main__":
    unittest.main()
