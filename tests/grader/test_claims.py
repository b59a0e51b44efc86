"""grader/devtools/claims.py: the table of tests/claims.txt as it is, and what the check says of
tables that are wrong. And one rule that no mutant can break, because it is about a folder's
name."""

import os
import shutil
import subprocess
import sys
import unittest

from helpers import GRADER, ROOT, TempFolder
import test_attacks

sys.path.insert(0, os.path.join(GRADER, "devtools"))
import claims # noqa: E402

CONTRACT = '''/* fsdp.h: the contract.
 *
 * A word is a word.
 */
// ------------------------------------------------ Task 1

// Adds two numbers. The sum is exact: it
// never overflows.
int add(int a, int b);
struct Pair {
    int n; // how many
           // there are
};
'''
HANDOUT = "Text that claims nothing.\n\n**1.1** Add them once. Twice?\n\n1. *One.* No more.\n"
TASK = '{"number": 1, "title": "One", "tests": [{"name": "adds"}]}'
MUTANTS = '''{"task": 1, "mutants": [{"name": "adds_twice", "caught_by": {"adds": "."}},
                                      {"name": "overflows", "caught_by": {"adds": "."}}]}'''
GIVEN = '''{"file": "pairs.c", "mutants": [{"name": "counts_twice",
                                               "caught_by": {"pairs/counts": "."}}]}'''
TABLE = '''# A table.
definition fsdp.h
  says     fsdp.h: the contract.
definition fsdp.h
  says     A word is a word.
fsdp.h/add/1
  says     Adds two numbers.
  tests    adds
  mutants  adds_twice
fsdp.h/add/2
  says     The sum is exact: it never
           overflows.
  tests    adds
  mutants  overflows
fsdp.h/Pair
  says     how many there are
  given
  tests    pairs/counts
  mutants  counts_twice
handouts/1/1.1
  says     Add them once.
  as       fsdp.h/add/1
definition handouts/1
  says     *One.* No more.
'''


class TheTable(unittest.TestCase):
    def test_every_claim_has_a_test_and_a_mutant(self):
        found, wrong = claims.check(ROOT)
        self.assertEqual(wrong, [])
        self.assertGreater(len(found), 150)

    def test_make_claims_prints_it(self):
        done = subprocess.run(["make", "-s", "claims", "TASK=2"], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^Task 2, Flat parameter$[\s\S]*"
                         r"fsdp\.h/flat_create/4[\s\S]*whole_shard_made_on_the_host")
        self.assertNotIn("Task 3", done.stdout)


class Tables(TempFolder):
    def check(self, table=TABLE, contract=CONTRACT, handout=HANDOUT):
        self.write("include/fsdp.h", contract)
        self.write("handouts/1_one.md", handout)
        self.write("tasks/1_one/task.json", TASK)
        self.write("tasks/1_one/mutants.json", MUTANTS)
        self.write("tests/mutants/given/pairs.json", GIVEN)
        self.write("tests/fsdp/pairs.c", "TEST(counts)\n")
        self.write("tests/claims.txt", table)
        return claims.check(self.folder)[1]

    def replaced(self, old, new):
        self.assertIn(old, TABLE)
        return self.check(TABLE.replace(old, new))

    def test_a_complete_table(self):
        self.assertEqual(self.check(), [])

    def test_what_is_wrong_is_said(self):
        for old, new, says in (
                ("  tests    adds\n  mutants  adds_twice\n", "", "add/1: no test proves it"),
                ("  mutants  overflows\n", "", "add/2: no mutant breaks it"),
                ("  mutants  overflows\n", "", "mutant overflows breaks no claim"),
                ("  mutants  counts_twice\n", "", "fsdp.h/Pair: no mutant breaks it"),
                ("  tests    pairs/counts\n", "  tests    pairs/sorts\n", "no test pairs/sorts"),
                ("  mutants  overflows", "  mutants  wraps", "there is no mutant wraps"),
                ("Adds two numbers.", "Adds numbers.", "not in fsdp.h: \"Adds numbers.\""),
                ("Adds two numbers.", "Adds numbers.",
                 "in no claim, and no definition: \"Adds two"),
                ("never\n           overflows.", "never", "no definition: \"overflows.\""),
                ("  as       fsdp.h/add/1", "  as       fsdp.h/add/9", "no claim fsdp.h/add/9"),
                ("fsdp.h/add/2", "fsdp.h/add/1", "fsdp.h/add/1: twice")):
            with self.subTest(says):
                self.assertIn(says, "\n".join(self.replaced(old, new)))

    def test_a_mutant_of_another_test_is_no_proof(self):
        wrong = self.replaced("  mutants  counts_twice", "  mutants  counts_twice adds_twice")
        self.assertIn("mutant adds_twice need not lose any of its tests", "\n".join(wrong))

    def test_a_sentence_that_changes_is_missed(self):
        wrong = "\n".join(self.check(contract=CONTRACT.replace("two numbers", "three numbers"),
                                     handout=HANDOUT.replace("No more.", "No less.")))
        self.assertIn("fsdp.h: in no claim, and no definition: \"Adds three numbers.\"", wrong)
        self.assertIn("handouts/1: in no claim, and no definition: \"*One.* No less.\"", wrong)

    def test_a_line_that_nobody_knows(self):
        with self.assertRaises(claims.BadTable):
            self.replaced("  given\n", "  taken    from\n")


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
