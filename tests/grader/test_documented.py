"""What the pages print: every command is run by something (grader/devtools/documented.py), the
README's picture is what is measured, and its report is what simgpu prints.

Those that take longer are the business of `make test-all`.
"""

import os
import re
import unittest

from helpers import ROOT, ReferenceCopy, TempFolder, outside_make, read, run

import documented
from documented import ELSEWHERE, PROOF, QUICK, Check

PAGE = """Run `make grade` and then `make grade
TASK=2`; `make` alone is none, nor is `grade`.

    make help       lists
    make alternatives \\
        IMPL=reference
    offsets         a 0, b 3

| Command | |
|---|---|
| `make test`, `build/bin/launch -n 2 x` | |

```
make hint
```

    for x in 1 2; do
        make flakiness
    done
"""


class Extraction(unittest.TestCase):
    def test_blocks_fences_spans_and_tables(self):
        self.assertEqual(documented.commands(PAGE), [
            (1, "make grade"), (1, "make grade TASK=2"), (4, "make help"),
            (5, "make alternatives IMPL=reference"), (11, "build/bin/launch -n 2 x"),
            (11, "make test"), (14, "make hint"), (17, "for x in 1 2; do make flakiness done")])

    def test_code_is_no_command(self):
        for line in ("for (int i = 0; i < n; i++)", "gcc libc6-dev make", "sum  1 2", "make",
                     "SEED=1", "make_flat 1"):
            self.assertFalse(documented.is_command(line), line)


class Table(unittest.TestCase):
    maxDiff = None

    def found(self, text, *checks):
        return documented.problems({"page.md": text}, checks)

    def test_the_pages_own(self):
        self.assertEqual(documented.problems(documented.pages()), [])

    def test_a_command_that_nothing_checks(self):
        self.assertEqual(len(self.found("`make test`")), 1)
        self.assertIn("page.md:1: `make test`: nothing checks it", self.found("`make test`")[0])
        self.assertEqual(self.found("`make test`", Check("make test", QUICK)), [])

    def test_a_check_that_no_page_needs(self):
        found = self.found("nothing", Check("make test", QUICK))
        self.assertEqual(len(found), 1)
        self.assertIn("no page has a command that matches `make test`", found[0])

    def test_what_is_named_must_exist(self):
        for command, words in (
                ("make gpt2-huge", "no target gpt2-huge"),
                ("make grade GRADES=2", "the Makefile knows no GRADES"),
                ("build/bin/trian_gpt2 x", "no program build/bin/trian_gpt2"),
                ("build/bin/launch -n 4 --share-gpus x", "lib/launch/main/launch.c knows no "),
                ("python3 grader/course/released.py --out DIR",
                 "no program grader/course/released.py"),
                ("python3 grader/course/release.py --into DIR",
                 "grader/course/release.py knows no --into")):
            found = self.found("`%s`" % command, Check(re.escape(command), ELSEWHERE, "a reason"))
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])

    def test_a_proof_must_exist(self):
        for why in ("tests/grader/test_nothing.py::A.b", "tests/grader/test_documented.py::Table.b",
                    "tests/grader/test_documented.py::Tables.test_the_pages_own",
                    "tests/fsdp/examples.c::nothing"):
            found = self.found("`make test`", Check("make test", PROOF, why))
            self.assertEqual(len(found), 1, found)
            self.assertIn("there is no test tests/", found[0])
        for why in ("tests/grader/test_documented.py::Table.test_a_proof_must_exist",
                    "tests/fsdp/examples.c::too_large_for_one_gpu_alone"):
            self.assertEqual(self.found("`make test`", Check("make test", PROOF, why)), [])


class Quick(TempFolder):
    """A test for each quick command (below)."""

    def works(self, check):
        wrong, text = check.execute(self.folder)
        self.assertEqual(wrong, "", text)


for number, quick in enumerate(documented.quick(), 1):
    words = "_".join(re.findall(r"\w+", quick.command))
    setattr(Quick, "test_%02d_%s" % (number, words[:40]),
            lambda self, check=quick: self.works(check))


class Running(TempFolder):
    def test_there_are_quick_ones(self):
        self.assertGreater(len([name for name in dir(Quick) if name.startswith("test_")]), 2)

    def test_what_fails_is_told(self):
        for command, want, words in (("exit 3", "", "exit status 3"),
                                     ("echo one", "two", "it did not print 'two'"),
                                     ("echo one", "one", "")):
            check = Check("x", QUICK, run=command, want=want)
            self.assertEqual(check.execute(self.folder)[0], words)


class Help(unittest.TestCase):
    # Targets that others are made of.
    PARTS = {"start-program", "site-planner", "own-suites", "suites", "large-suites", "examples",
             "example-programs", "test-programs", "bench-programs", "long-tests", "FORCE"}

    def test_it_lists_every_target_in_80_columns(self):
        text = run(["make", "help"], status=0, environment=outside_make()).stdout
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        phony = re.findall(r"(?m)^\.PHONY: (.*)$",
                           documented.makefile_text().replace("\\\n", " "))
        self.assertGreater(len(phony), 6)
        self.assertEqual(sorted(re.findall(r"(?m)^make (\S+)", text)),
                         sorted(set(" ".join(phony).split()) - self.PARTS))


class Picture(unittest.TestCase):
    def test_it_stands_alone_and_is_small(self):
        for name in ("memory", "step"):
            text = read(ROOT, "handouts", "figures", name + ".svg")
            with self.subTest(name):
                self.assertLess(len(text), 60000)
                self.assertIn('xmlns="http://www.w3.org/2000/svg"', text)
                self.assertIn("prefers-color-scheme: dark", text)
                self.assertNotRegex(text, r"<script|href=|url\(|@import")
                for kind in set(re.findall(r'class="([\w-]+)"', text)) - {"plot"}:
                    self.assertRegex(text, r"\.%s\b[^{}]*{" % kind)


class Figures(unittest.TestCase):
    def test_each_has_a_dark_form(self):
        """Of every colour that it uses."""
        folder = os.path.join(ROOT, "handouts", "figures")
        for name in sorted(os.listdir(folder)):
            text = read(folder, name)
            dark = text.partition("(prefers-color-scheme: dark)")[2].partition("</style>")[0]
            self.assertTrue(dark, name)
            for colour in set(re.findall(r'\b((?:fill|stroke)="[^"]+")', text)) - {'fill="none"'}:
                self.assertIn("[%s] { " % colour, dark, name)


class Report(ReferenceCopy):
    """The report of the README's first screen, made again."""

    def test_simgpu_prints_it(self):
        blocks = [lines for _, lines in documented.split(read(ROOT, "README.md"))[0]]
        report = next(lines for lines in blocks if "race between streams" in " ".join(lines))
        report = [line for line in report if line.strip()]
        self.assertLessEqual(len(report), 15)
        mine = self.path("skeleton") # as the report calls it
        os.rename(self.copy, mine)
        self.copy = mine
        right = "cudaStreamWaitEvent(unit->ctx->compute_stream, flat->all_gather_done, 0)"
        self.rewrite("forward.c", right, right.replace("compute", "all_gather"))
        tests, _, _ = self.grade("--task", "3")
        printed = self.settled("\n".join(test["message"] for test in tests.values()))
        for sentence in re.split(r"(?<=[.,?:;)\]]) ", self.settled("\n".join(report))):
            self.assertTrue(sentence in printed, "simgpu does not print %r, as README.md has it. "
                            "It prints: %s" % (sentence, printed[:1400]))

    def settled(self, text):
        """A report without what may differ: which rank tells it, numbers of lines, line breaks."""
        text = re.sub(r"\b(rank|device) \d", r"\1 N", " ".join(text.split()))
        return re.sub(r"\.c:\d+", ".c:N", text)


if __name__ == "__main__":
    unittest.main()
