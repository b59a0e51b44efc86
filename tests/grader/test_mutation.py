"""grader/devtools/mutation.py: what each operator makes of a small C file, that ids outlive other
edits, and on a kit in miniature what becomes of mutants that are killed, alive, equivalent by their
code, judged equivalent, killed with some seeds alone; that a run goes on where it was stopped."""

import json
import os
import sys
import unittest

from helpers import ROOT, read, run # which puts the folders of the grader on the path
import manifest
import mutation_operators as operators
import mutation_results
import mutation_source
import mutation_trial
import runner
from test_mutants import MAKEFILE, SUITE, Miniature


def changed(body, operator, head="int f(int a, int b)"):
    """What an operator makes of a function's only line."""
    text = "%s\n{\n    %s\n}\n" % (head, body)
    return [mutant.after for mutant in operators.mutants_of("x.c", text)
            if mutant.operator == operator]


class Operators(unittest.TestCase):
    """Each makes what it says, and nothing else."""

    def check(self, operator, body, *wanted, **more):
        self.assertEqual(changed(body, operator, **more), list(wanted))

    def test_delete(self):
        self.check("delete", "a = b;", ";")
        self.check("delete", "if (a) b++;", ";", "if (a) ;")
        self.check("delete", "int c = a;")

    def test_once(self):
        self.check("once", "g(a);", "{ static int once_; if (!once_++) { g(a); } }")

    def test_first_of_all(self):
        self.check("first-of-all", "for (;;) g(a);", "for (;;) { g(a); break; }")
        self.check("first-of-all", "do g(a); while (b);", "do { g(a); break; } while (b);")

    def test_early_return(self):
        self.check("early-return", "g(a);", "{ g(a); return 0; }")
        self.check("early-return", "g(a);", "{ g(a); return; }", head="void f(int a)")
        self.check("early-return", "g(a);", "{ g(a); return OK; }", head="static Status f(int a)")
        self.check("early-return", "int c = a;", "int c = a; return NULL;", head="char *f(int a)")

    def test_keep(self):
        kept = ("({ static int set_; static __typeof__(a) kept_; "
                "if (!set_) { set_ = 1; kept_ = (a); } kept_; });")
        self.check("keep", "b = a;", "b = " + kept)
        self.check("keep", "int c = a;", "int c = " + kept)
        self.check("keep", "int c = 0;", "static int c = 0;")
        self.check("keep", "b = NULL;")

    def test_unchecked(self):
        self.check("unchecked", "TRY(g(a, b));", "g(a, b);")
        self.check("unchecked", "if (a) TRY(g());", "if (a) g();")
        self.check("unchecked", "CUDA_TRY(g());")

    def test_shared(self):
        self.check("shared", "o->t++;",
                   "{ static __typeof__(o->t) all_; all_ ++; o->t = all_; }")

    def test_negate(self):
        self.check("negate", "if (a == b) g();", "if (!(a == b)) g();")
        self.check("negate", "return a > b ? a : b;", "return !(a > b) ? a : b;")
        self.check("negate", "while (a && b) g();", "while (!(a && b)) g();",
                   "while (!(a) && b) g();", "while (a && !(b)) g();")

    def test_logic(self):
        self.check("logic", "if (a || b) g();", "if (a && b) g();", "if (0 || b) g();",
                   "if (a || 0) g();")
        self.check("logic", "return !a;", "return a;")

    def test_relation(self):
        self.check("relation", "if (a < b) g();", "if (a <= b) g();", "if (a >= b) g();")
        self.check("relation", "if (a == b) g();", "if (a != b) g();")

    def test_swap(self):
        self.check("swap", "g(a, b + 1, a);", "g(b + 1, a, a);", "g(a, a, b + 1);")
        self.check("swap", "g(a, a);")
        self.check("swap", "int c[] = {a, b};", "int c[] = {b, a};")

    def test_sibling(self):
        self.check("sibling", "g(x->compute_stream);", "g(x->all_gather_stream);",
                   "g(x->reduce_scatter_stream);")

    def test_off_by_one(self):
        self.check("off-by-one", "g[7] = b;", "g[8] = b;", "g[6] = b;")
        self.check("off-by-one", "while (a < b) g();", "while (a < b + 1) g();",
                   "while (a < b - 1) g();")
        self.check("off-by-one", "g(x, x->numel);", "g(x, (x->numel) + 1);",
                   "g(x, (x->numel) - 1);")
        self.check("off-by-one", "return g[i];", "return g[i + 1];", "return g[i - 1];",
                   "return (g[i]) + 1;", "return (g[i]) - 1;")
        self.check("off-by-one", "int64_t c = a * b;", "int64_t c = (a * b) + 1;",
                   "int64_t c = (a * b) - 1;")

    def test_constant(self):
        self.check("constant", "x = 2.0f;", "x = 0.0f;", "x = 4.0f;", "x = -2.0f;", "x = 2.002f;")
        self.check("constant", "a = 8;", "a = 0;", "a = 16;")

    def test_arithmetic(self):
        self.check("arithmetic", "a = b * 2;", "a = b / 2;")
        # No part of a type, and no pointer.
        self.check("arithmetic", "Param *c = (Param *)*g(*d, -a, (size_t)-b);")

    def test_assign(self):
        self.check("assign", "a += b;", "a = b;")
        self.check("assign", "a = b;", "a += b;")
        self.check("assign", "a++;", "a;", "a--;")

    def test_narrow(self):
        self.check("narrow", "int64_t c = (size_t)a;", "int32_t c = (size_t)a;",
                   "int64_t c = (uint32_t)a;")

    def test_every_operator_is_tested(self):
        for name in operators.OPERATORS:
            self.assertTrue(hasattr(self, "test_" + name.replace("-", "_")), name)

    def test_a_change_leaves_the_lines_where_they_are(self):
        text = "int f(int a,\n      int b)\n{\n    g(a,\n      b);\n    return 1;\n}\n"
        for mutant in operators.mutants_of("x.c", text):
            self.assertEqual(mutant.text.count("\n"), text.count("\n"), mutant.id)

    def test_what_it_cannot_read_is_an_error(self):
        with self.assertRaisesRegex(mutation_source.BadSource, "line 3.*switch"):
            operators.mutants_of("x.c", "int f(int a)\n{\n    switch (a) { case 1: g(); }\n}\n")

    def test_ids(self):
        """They outlive other edits, and there are no two of them."""
        text = ("int f(int a)\n{\n    g(a, 1);\n    if (a < 3) {\n        h(a);\n    }\n"
                "    h(a);\n}\n")
        edited = ("// More.\n" + text.replace("g(a, 1);\n", "g(a,\n      1); // wide\n    k(a);\n")
                  .replace("int f", "int e(void)\n{\n    return 1;\n}\n\nint f"))
        before = [mutant.id for mutant in operators.mutants_of("x.c", text)]
        after = [mutant.id for mutant in operators.mutants_of("x.c", edited)]
        self.assertEqual(len(before), len(set(before)))
        self.assertGreater(len(before), 20)
        self.assertEqual(set(before) - set(after), set())
        self.assertNotEqual(
            {mutant.id for mutant in operators.mutants_of("x.c", text.replace("< 3", "< 4"))
             if mutant.operator == "relation"},
            {mutant.id for mutant in operators.mutants_of("x.c", text)
             if mutant.operator == "relation"})


class Reference(unittest.TestCase):
    def test_the_list_of_reasons_fits_the_six_files(self):
        found = {}
        for task in manifest.load(ROOT):
            made = operators.mutants_of(task.file, read(ROOT, "reference", task.file))
            self.assertGreater(len(made), 200, task.file)
            found.update((mutant.id, mutant) for mutant in made)
        mutation_results.load_judged(mutation_results.JUDGED, found)


class Timeouts(unittest.TestCase):
    """A time-out kills where the reference passes at that moment."""

    def run_with(self, *statuses, seed=1):
        bench = mutation_trial.Bench.__new__(mutation_trial.Bench)
        bench.seed, bench.original, self.started = 1, {"one": "reference"}, []
        left = list(statuses)

        def start(program, case, seed, times=1.0):
            self.started.append((program, times))
            return runner.Verdict(left.pop(0)), True
        bench.start = start
        case = mutation_trial.Case("one", "is_six", 0.1, 0.1, False, False)
        return bench.run("mutant", case, seed)[0]

    def test_a_mutant_that_hangs(self):
        self.assertEqual(self.run_with("timeout", "timeout", "passed"), "timeout")
        self.assertEqual(self.started, [("mutant", 1.0), ("mutant", mutation_trial.AGAIN),
                                        ("reference", 1.0)])
        self.assertEqual(self.run_with("timeout", "passed", seed=2), "timeout")

    def test_a_machine_that_was_busy(self):
        self.assertEqual(self.run_with("timeout", "passed"), "")
        self.assertEqual(self.run_with("timeout", "failed"), "failed")

    def test_a_machine_that_is_busy(self):
        with self.assertRaises(mutation_trial.Unclear):
            self.run_with("timeout", "timeout", "timeout")


REFERENCE = '''// Task one.
static int half(void)
{
    return 3;
}

static void set(int *n)
{
    *n = 0;
}

int one(void)
{
    int n = 5;
    set(&n);
    for (int i = 0; i < 2; i++) n += half();
    return n;
}
'''

# A suite whose only test draws: it sees what is wrong where the seed is odd alone.
DRAWS = SUITE.replace("got == WANT", 'got == WANT || atoi(getenv("SEED")) % 2 == 0').replace(
    '\\"status\\": ', '\\"seed\\": 1, \\"status\\": ')

class Machine(Miniature):
    """A kit whose suite calls one() once and wants 6: a value kept for a second call lives."""

    def setUp(self):
        super().setUp()
        self.write("Makefile", MAKEFILE.replace("BASE := -g", "BASE := -g\nCFLAGS := -O2"))
        self.write("reference/one.c", REFERENCE)
        self.tool = self.path("grader", "devtools", "mutation.py")

    def run_tool(self, *arguments, status=0):
        """What it prints, and that it ends as it should."""
        done = run([sys.executable, self.tool, "--build", "build", "--task", "1", *arguments],
                   self.folder, 120, status, merged=True, TMPDIR=self.scratch,
                   SHARDLAB_TIME_FACTOR="1", SEED="1")
        self.assertEqual(os.listdir(self.scratch), [])
        return done.stdout

    def all(self):
        """{change: id} of every mutant."""
        return {line.split("  ", 2)[2]: line.split("  ")[0]
                for line in self.run_tool("--list").splitlines()}

    def judge(self, reason, **mutants):
        self.write("tests/mutants/machine/equivalent.json", json.dumps(
            {"equivalent": [{"reason": reason, "mutants": mutants}]}))

    def results(self):
        return {entry["id"]: entry for entry in map(
            json.loads, self.read("build/mutation/results.jsonl").splitlines())}

    def test_what_becomes_of_them(self):
        known = self.all()
        out = self.run_tool(status=1)
        results = self.results()
        self.assertEqual(set(results), set(known.values()))
        for change, outcome in (
                ("return 3; => return 4;", "fixed"),
                ("set(&n); => ;", "fixed"),
                ("*n = 0; => { *n = 0; return; }", "same code"),
                ("int n = 5; => int n = 5; return 0;", "fixed"),
                ("int n = 5; => int n = 6;", "same code"),
                ("set(&n); => { static int once_; if (!once_++) { set(&n); } }", "alive")):
            self.assertEqual(results[known[change]]["outcome"], outcome, change)
        self.assertIn("alive  reference/one.c:15  %s\n" % known[
            "set(&n); => { static int once_; if (!once_++) { set(&n); } }"], out)
        self.assertIn("    -    set(&n);\n    +    { static int once_;", out)

    def test_a_mutant_that_does_not_compile(self):
        self.write("Makefile", self.read("Makefile").replace(
            "CFLAGS := -O2", "CFLAGS := -O2\nMISTAKES := -Werror=return-type"))
        self.run_tool("--only", self.all()["return 3; => ;"])
        self.assertEqual([entry["outcome"] for entry in self.results().values()], ["not valid"])

    def test_a_survivor_needs_a_reason(self):
        change = "set(&n); => { static int once_; if (!once_++) { set(&n); } }"
        name = self.all()[change]
        self.judge("The program calls it once.", **{name: change})
        out = self.run_tool("--only", name)
        self.assertRegex(out, r" 1  equivalent, with a reason")

    def test_a_reason_for_one_that_is_killed(self):
        name = self.all()["return 3; => return 4;"]
        self.judge("Nobody looks at it.", **{name: "return 3; => return 4;"})
        out = self.run_tool("--only", name, status=1)
        self.assertIn("judged equivalent, but fixed (one: is_six, failed): %s" % name, out)

    def test_a_reason_for_one_that_is_gone(self):
        self.judge("The program calls it once.", **{"one.c:one:once:00000000": "a => b"})
        out = self.run_tool(status=2)
        self.assertIn("one.c:one:once:00000000: there is no such mutant any more", out)

    def test_killed_by_some_seeds(self):
        self.write("tasks/1_one/tests.c", DRAWS.replace("CALL", "one").replace("TEST", "is_six")
                   .replace("WANT", "6"))
        self.task(2, "two", [("is_two", 40, False)])
        change = "return 3; => return 4;"
        out = self.run_tool("--only", self.all()[change], status=1)
        self.assertIn("needs a fixed case (alive with SEED=2)", out)

    def test_it_goes_on(self):
        name = self.all()["return 3; => return 4;"]
        self.run_tool("--only", name)
        self.append("build/mutation/results.jsonl", '{"id": "one.c:one:cut')
        out = self.run_tool("--only", name, "--resume", "1")
        self.assertIn("1 have a result already", out)
        # Another suite: only --resume kills believes it.
        self.append("tasks/1_one/tests.c", "int more;\n")
        self.assertNotIn("already", self.run_tool("--only", name, "--resume", "1"))
        self.assertIn("already", self.run_tool("--only", name, "--resume", "kills"))

    def test_a_sample_is_drawn_by_the_seed(self):
        lists = [self.run_tool("--list", "--sample", "5") for _ in range(2)]
        self.assertEqual(lists[0], lists[1])
        self.assertEqual(len(lists[0].splitlines()), 6)
        self.assertEqual(lists[0].splitlines()[0], "5 drawn by SEED=1")
        self.run_tool("--only", "nothing", status=2)

    def test_a_sample_has_none_with_a_reason(self):
        everything = self.all()
        change = "set(&n); => ;"
        self.judge("The program calls it once.", **{everything[change]: change})
        drawn = self.run_tool("--list", "--sample", "1000")
        self.assertEqual({line.split("  ", 2)[2] for line in drawn.splitlines()[1:]},
                         set(everything) - {change})

    def test_time_that_is_up(self):
        """What was not tried is no mistake, and says so."""
        out = self.run_tool("--sample", "5", "--within", "0.000001")
        self.assertIn("    5  not tried: time was up\nScore: 0 of 0 killed", out)


if __name__ == "__main__":
    unittest.main()
