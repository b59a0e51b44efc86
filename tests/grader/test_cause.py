"""grader/cause.py: which part a failed test points at, and which hints it gets."""

import os
import re
import unittest

from helpers import ROOT, read
import cause
import manifest
from manifest import Task, Test, text_of

SOURCE = '''/* one.c: a { in a comment, and "begin(" in it */
static int helper(const char *text)
{
    return text[0] == '{' ? twice(1) : 0;
}

int begin(int x) // begin(
{
    return helper("}") + x;
}

int end_all(int x)
{
    if (x) {
        return 1;
    }
    return both(x);
}

static int both(int x)
{
    return x;
}

static int lonely(void)
{
    return both(1);
}
'''


def task_of(**more):
    """A task of three parts, and tests that are meant for one, for two and for the order."""
    tests = [Test("first", 1, "t", "First?", more=["f2", "f3"], section="S", parts=["1.1"]),
             Test("both", 1, "t", "Both?", more=["b2", "b3"], section="S", parts=["1.1", "1.2"]),
             Test("order", 1, "t", "Order?", more=["o2", "o3"], section="S", parts=["1.2", "1.3"],
                  reports=["race-between-streams"])]
    return Task(1, "one", "One", 3, ["one.c"], "handouts/1_one.md", tests,
                parts={"1.1": ["P1?", "p1"], "1.2": ["P2?", "p2"], "1.3": ["P3?", "p3"]},
                functions={"1.1": ["begin_one", "begin"], "1.2": ["end_all"], "1.3": ["take_it"]},
                sections={"1.1": "Begin", "1.2": "End", "1.3": "Take"}, **more)


def row(name, message, status="failed", reports=(), **more):
    return dict({"name": name, "status": status, "message": message, "reports": list(reports),
                 "hint": "old", "more": ["old"], "section": "S", "shared": False}, **more)


def report(kind, *places, where=""):
    calls = [{"call": "call", "file": file, "line": 1, "function": function}
             for file, function in places]
    return {"class": kind, "title": "a title", "question": "What is it?", "calls": calls,
            "ranges": [{"allocation": "x", "where": where}], "follows": False}


REPORT = "rank 0 of 2: simgpu: rank 0, device 0: a title [kind]\n   called\n   What is it?"


def filled(*rows, task=None, source=SOURCE):
    cause.fill(list(rows), task or task_of(), [("mine/one.c", source)])
    return rows


class Functions(unittest.TestCase):
    def test_places(self):
        names = [name for name, _, _ in cause.places_of(SOURCE)]
        self.assertEqual(names, ["helper", "begin", "end_all", "both", "lonely"])

    def test_a_helper_belongs_to_whom_it_is_called_by(self):
        task = task_of()
        self.assertEqual(cause.parts_of("helper", task, SOURCE), {"1.1"})
        self.assertEqual(cause.parts_of("both", task, SOURCE), {"1.2"})
        self.assertEqual(cause.parts_of("nowhere", task, SOURCE), set())
        self.assertEqual(cause.parts_of("end_all", task, ""), {"1.2"})

    def test_files_that_are_no_c(self):
        for text in ("", "}}}", "{{{", "int f(", '"', "/*", "int f(void) {"):
            self.assertEqual(cause.parts_of("helper", task_of(), text + " helper"), set())


class Pointing(unittest.TestCase):
    def part(self, message, *reports, name="both", source=SOURCE):
        return filled(row(name, message, reports=reports), source=source)[0]["part"]

    def test_a_part_that_is_not_written(self):
        self.assertEqual(self.part("x/one.c:3: part 1.3 of take_it is not written yet"), "1.3")

    def test_a_function_that_the_message_names(self):
        self.assertEqual(self.part("end_all gives 3, want 4"), "1.2")
        self.assertEqual(self.part("begin_one and end_all differ"), "") # which of the two?
        self.assertEqual(self.part("it is 3 at mine/one.c:9 (helper)"), "1.1")
        self.assertEqual(self.part("a beginning, not end_allx"), "")

    def test_what_was_queued_elsewhere_is_where_that_was(self):
        self.assertEqual(self.part("begin_one's work belongs on a, but f at mine/one.c:9 (end_all) "
                                   "is queued on another stream"), "1.2")

    def test_the_likely_cause_names_it(self):
        self.assertEqual(self.part("x is 3\nLikely cause: does take_it do it?"), "1.3")

    def test_the_call_that_failed_is_the_tests(self):
        self.assertEqual(self.part("end_all(x, &y) failed (reference/b.c:3: no room)"), "")

    def test_what_given_code_says(self):
        task = task_of(errors={"no room": "1.3"})
        self.assertEqual(filled(row("first", "end_all(x) failed (reference/b.c:3: no room)"),
                                task=task)[0]["part"], "1.3")
        # What an earlier test has named may have led to it.
        self.assertEqual(filled(row("first", "end_all gives 3"),
                                row("both", "it failed (reference/b.c:3: no room)"),
                                task=task)[1]["part"], "1.2")

    def test_a_call_in_the_students_file(self):
        self.assertEqual(self.part(REPORT, report("wrong-pointer", ("mine/one.c", "both"))), "1.2")
        self.assertEqual(self.part(REPORT, report("wrong-pointer", ("nn/x.c", "end_all"))), "")

    def test_the_suite_is_not_the_students_file(self):
        self.assertEqual(self.part(REPORT, report("wrong-pointer", ("1_one/tests.c", "begin"))),
                         "")

    def test_a_send_and_a_receive_that_one_function_calls_in_another_order(self):
        def part(first, second, *functions):
            two = report("collective-mismatch", *(("m/one.c", name) for name in functions))
            two["calls"][0]["path"], two["calls"][1]["path"] = first, second
            return self.part(REPORT, two)
        at = "in x (k/x.c:2); called by end_all (m/one.c:%d)"
        self.assertEqual(part(at % 8, at % 9, "begin", "take_it"), "1.2")
        self.assertEqual(part(at % 8, at % 9, "begin", "begin"), "1.1")
        self.assertEqual(part(at % 8, at % 8, "begin", "take_it"), "1.1")
        self.assertEqual(part(at % 8, "", "begin", "take_it"), "1.1")

    def test_a_pointer_allocated_elsewhere_may_be_either(self):
        two = report("wrong-pointer", ("mine/one.c", "begin"), where="mine/one.c:7 (take_it)")
        self.assertEqual(self.part(REPORT, two), "")
        self.assertEqual(self.part(REPORT, two, name="order"), "")

    def test_a_call_that_begins_in_the_middle_of_what_it_would_fill(self):
        wrong = report("wrong-pointer", ("m/one.c", "begin"), where="m/one.c:3 (end_all)")
        for size, begin, part in (("416", "208", "1.1"), ("416", "0", ""), ("300", "208", "")):
            text = REPORT + ("\n   writes %s bytes from byte %s\n   (element 52) of x, the 416 "
                             "bytes allocated at m/one.c:3 (end_all)" % (size, begin))
            self.assertEqual(self.part(text, wrong), part, (size, begin))

    def test_two_operations_point_at_a_part_only_where_both_are_in_it(self):
        race = "race-between-streams"
        calls = ("m/one.c", "begin"), ("m/one.c", "helper")
        self.assertEqual(self.part(REPORT, report(race, *calls)),
                         "1.1")
        self.assertEqual(self.part(REPORT, report(race, ("m/one.c", "begin"), ("m/one.c", "both"))),
                         "")
        self.assertEqual(self.part(REPORT, report(race, ("m/one.c", "begin"), ("nn/x.c", "f"))), "")

    def test_an_event_recorded_in_the_wrong_place(self):
        text = REPORT + "\n   is for an event that was recorded at mine/one.c:9 (end_all)"
        self.assertEqual(self.part(text, report("lifetime", ("m/one.c", "begin"))), "1.2")
        for text in ("is for an event that was recorded\n on ctx->a (at mine/one.c:9 (end_all)).",
                     "but it is ctx->a\n that waits for it (at mine/one.c:9 (end_all)). Should"):
            race = report("race-between-streams", ("m/one.c", "begin"), ("nn/x.c", "f"))
            self.assertEqual(self.part(REPORT + "\n   " + text, race), "1.2", text)

    def test_a_wait_for_an_event_that_is_recorded_where_it_belongs(self):
        text = REPORT + ("\n   The wait at m/one.c:15 (end_all) is for an event that was recorded "
                         "on ctx->a_stream (at %s:9 (begin)). Was it to be recorded on b?")
        race = report("lifetime", ("nn/x.c", "f"))
        record, wait = "cudaEventRecord(%s, s)", " + cudaStreamWaitEvent(s, %s, 0)"
        for said in text, text.replace(" on ctx->a_stream (at %s:9 (begin))", " at %s:9 (begin),"):
            for does, part in ((record % "own", "1.1"),
                               ("", "1.2"), # given code records it, which the line calls
                               (record % "x->e" + wait % "x->e", "1.2"),
                               (record % "x->e" + wait % "own", "1.1")):
                source = SOURCE.replace("+ x", "+ x + " + does)
                self.assertEqual(self.part(said % "m/one.c", race, source=source), part, does)
        source = SOURCE.replace("+ x", "+ " + record % "a_done")
        self.assertEqual(self.part(text % "m/one.c", race, source=source), "1.2")
        self.assertEqual(self.part(text % "b/two.c", race, source=source), "")

    def test_who_frees_what_is_in_use_did_not_wait(self):
        freed = report("lifetime", ("m/one.c", "end_all"), ("nn/x.c", "f"))
        in_use = (REPORT + "\n   memory is freed while another\n   stream may still use it, and b "
                  "did not wait for it")
        self.assertEqual(self.part(in_use, freed), "")
        freed["calls"][0]["call"] = "cudaFreeAsync"
        self.assertEqual(self.part(in_use, freed), "1.2")
        self.assertEqual(self.part(REPORT, freed), "") # twice, say
        self.assertEqual(self.part(in_use + " Is the cudaEventRecord missing?", freed), "")

    def test_streams_between_which_a_wait_is_missing(self):
        task = task_of(errors={"recorded on a after …, and b wait": "1.3"})
        race = report("race-between-streams", ("m/one.c", "begin"), ("nn/x.c", "f"))
        for after, part in (("kernel_sgd", "1.3"), ("the allocation", "")):
            text = REPORT + "\n   Is one recorded on a after %s, and\n   b wait?" % after
            self.assertEqual(filled(row("both", text, reports=[race]), task=task)[0]["part"], part)

    def test_a_read_of_what_nobody_wrote_is_who_allocated_it(self):
        read = report("uninitialised-read", ("m/one.c", "begin"), where="m/one.c:3 (take_it)")
        self.assertEqual(self.part(REPORT, read), "1.3")
        whole = SOURCE + "int take_it(void)\n{\n    return end_all(3);\n}\n"
        self.assertEqual(self.part(REPORT, read, source=whole), "") # or whom that left it to

    def test_who_allocated_it_may_have_it_filled_by_a_pointer(self):
        read = report("uninitialised-read", ("m/one.c", "begin"), where="m/one.c:3 (take_it)")
        whole = SOURCE + "int take_it(void)\n{\n    return unit->all(unit);\n}\n"
        self.assertEqual(self.part(REPORT, read, source=whole), "") # end_all is what unit->all is
        self.assertEqual(self.part(REPORT, read, source=whole.replace("->all(", "->no(")), "1.3")

    def test_nobody_allocated_a_null_pointer(self):
        null = dict(report("wrong-pointer", ("mine/one.c", "both")), title="a null pointer")
        self.assertEqual(self.part(REPORT, null), "")

    def test_a_crash_in_a_line_that_another_part_called(self):
        said = "rank 0 of 1: crashed (x, address 0x8) at mine/one.c:9 (begin)"
        self.assertEqual(self.part(said), "1.1")
        self.assertEqual(self.part(said + ", called from mine/one.c:14 (end_all)"), "")
        self.assertEqual(self.part("crashed (x) at reference/b.c:9 (f), called from mine/one.c:14 "
                                   "(end_all) (tasks/1_one/tests.c:3)"), "1.2")

    def test_out_of_memory_has_no_place(self):
        self.assertEqual(self.part(REPORT, report("out-of-memory", ("m/one.c", "begin"))), "")


class Hints(unittest.TestCase):
    def test_those_of_the_part(self):
        one, = filled(row("both", "x/one.c:3: part 1.2 of end_all is not written yet"))
        self.assertEqual((one["hint"], one["more"], one["hints_of"]), ("P2?", ["p2"], "part 1.2"))
        self.assertEqual(one["look"], "part 1.2, end_all, mine/one.c:12")
        self.assertEqual(one["section"], "S") # the test is meant for that part

    def test_the_place_is_in_one_of_two_files(self):
        one = row("both", "end_all gives 3")
        other = "int before(void)\n{\n    return 0;\n}\n" * 5
        cause.fill([one], task_of(), [("mine/zero.c", other), ("mine/one.c", SOURCE)])
        self.assertEqual(one["look"], "part 1.2, end_all, mine/one.c:12")

    def test_the_place_of_a_crash_or_of_a_hang(self):
        for said in ("crashed (x) at reference/b.c:9 (f), called from mine/one.c:16 (end_all)",
                     "was still running at mine/one.c:16 (end_all); it is idle"):
            one, = filled(row("both", "rank 0 of 1: " + said))
            self.assertEqual(one["look"], "part 1.2, end_all, mine/one.c:16")

    def test_the_function_of_the_part_that_is_named(self):
        source = SOURCE + "int begin_one(int x)\n{\n    return x;\n}\n"
        one, = filled(row("both", "it is 3, part 1.1 of begin_one"), source=source)
        self.assertEqual(one["look"], "part 1.1, begin_one, mine/one.c:29")
        one, = filled(row("both", "begin() gives 3"), source=source)
        self.assertEqual(one["look"], "part 1.1, begin, mine/one.c:7")
        call = report("wrong-pointer", ("mine/one.c", "begin"))
        ignored = dict(report("lifetime", ("mine/one.c", "end_all")), title="another title")
        one, = filled(row("both", REPORT, reports=[ignored, call]), source=source)
        self.assertEqual(one["look"], "part 1.1, begin, mine/one.c:7")

    def test_the_part_that_a_test_is_meant_for_is_no_place(self):
        one, = filled(row("first", "x is 3"))
        self.assertEqual((one["part"], one["look"], one["hint"]), ("1.1", "", "First?"))

    def test_no_hint_where_the_message_says_what_a_function_does(self):
        for said in ("end_all must free it", "it is left: does end_all free it?", "end_all gives"):
            one, = filled(row("both", said + " (tests.c:3)"))
            self.assertEqual((one["hint"], one["more"], one["ask"]),
                             ("", ["P2?", "p2"], said + " (tests.c:3)"))
            self.assertEqual(one["look"], "part 1.2, end_all, mine/one.c:12")
        one, = filled(row("first", "it must be 3")) # no function of the part does what?
        self.assertEqual(one["hint"], "First?")

    def test_a_rule_has_no_hint_of_its_tests_body(self):
        one, = filled(row("first", "in rule any_size: x is 3"))
        self.assertEqual((one["hint"], one["more"]), ("", ["First?", "f2", "f3"]))
        one, = filled(row("first", "in rule any_size: end_all gives 3"))
        self.assertEqual((one["hint"], one["more"]), ("", ["P2?", "p2"]))

    def test_the_row_to_show_first(self):
        def first(*rows):
            return [row["name"] for row in filled(*rows) if row.get("foremost")]
        crash = "rank 0 of 1: crashed (x) at reference/b.c:9 (f) (tests.c:3)"
        self.assertEqual(first(row("first", crash), row("both", "x is 3"),
                               row("order", "end_all gives 3")), ["order"])
        self.assertEqual(first(row("first", crash), row("both", crash)), ["first"])
        self.assertEqual(first(row("first", "x is 3"), row("both", "end_all gives 3")), ["first"])
        self.assertEqual(first(row("first", "", "passed"), row("both", crash),
                               row("order", "y is 3")), ["order"])
        self.assertEqual(first(row("first", "", "passed")), [])
        wrong = report("wrong-pointer", ("nn/x.c", "f"))
        self.assertEqual(first(row("first", REPORT, reports=[wrong]), row("both", "x is 3")),
                         ["both"])

    def test_a_direct_test_of_the_part_is_shown_before_a_rule(self):
        def first(*messages):
            rows = filled(*map(row, ("first", "both", "order"), messages))
            return next(row["name"] for row in rows if row["foremost"])
        rule = "in rule any_size: end_all gives 3"
        self.assertEqual(first(rule, "x is 3", "end_all must be 3"), "order")
        self.assertEqual(first(rule, "begin gives 3", "x is 3"), "first") # of another part
        self.assertEqual(first(rule, "x is 3", rule), "first")
        self.assertEqual(first("end_all gives 3", "end_all gives 4", rule), "first")
        self.assertEqual(first("in rule any_size: x is 3", "end_all gives 3", rule), "first")

    def test_the_section_of_another_part(self):
        one, = filled(row("first", "end_all gives 3"))
        self.assertEqual(one["section"], "End")

    def test_the_section_of_the_part_that_is_shown(self):
        self.assertEqual(filled(row("both", "end_all gives 3"))[0]["section"], "End")
        self.assertEqual(filled(row("both", "it gives 3"))[0]["section"], "S")
        gap = "mine/one.c:3: part 1.2 of end_all is not written yet"
        self.assertEqual(filled(row("both", gap))[0]["section"], "S")

    def test_the_tests_own_later_where_nothing_points(self):
        one, = filled(row("both", "x is 3"))
        self.assertEqual((one["hint"], one["more"], one["part"]), ("", ["Both?", "b2", "b3"], ""))

    def test_the_only_part_that_a_test_is_meant_for(self):
        self.assertEqual(filled(row("first", "x is 3"))[0]["hint"], "First?")
        one, = filled(row("first", "No verdict within 9 seconds; the test program was stopped.",
                          status="timeout"))
        self.assertEqual((one["part"], one["hint"]), ("", "")) # it says nothing of what it does

    def test_no_hint_beside_a_likely_cause(self):
        one, = filled(row("first", "x is 3\nLikely cause: a sum?"))
        self.assertEqual((one["hint"], one["more"]), ("", ["First?", "f2", "f3"]))
        self.assertEqual(one["ask"], "Likely cause: a sum?")

    def test_no_hint_beside_a_report(self):
        one, = filled(row("both", REPORT, reports=[report("wrong-pointer", ("m/one.c", "begin"))]))
        self.assertEqual((one["hint"], one["more"]), ("", ["P1?", "p1"]))
        self.assertEqual(one["ask"], "simgpu: a title. What is it?")

    def test_a_report_that_points_nowhere_has_the_hints_of_a_test_about_such_reports(self):
        race = report("race-between-streams", ("nn/x.c", "f"))
        one, two = filled(row("first", REPORT, reports=[race]),
                          row("order", REPORT, reports=[race]))
        self.assertEqual(one["more"], ["Order?", "o2", "o3"])
        one, = filled(row("first", REPORT, reports=[race])) # the order's own test passes
        self.assertEqual((one["hint"], one["more"]), ("", []))

    def test_what_follows_has_the_hints_of_the_first(self):
        one, two, three = filled(row("first", "end_all gives 3"), row("both", "x is 3"),
                                 row("order", "take_it gives 3"))
        self.assertEqual((two["hint"], two["part"]), ("P2?", "1.2"))
        self.assertEqual(three["part"], "1.3") # says so itself

    def test_no_hints_for_what_was_not_judged(self):
        for status, shared in (("skipped", False), ("infrastructure", False), ("failed", True)):
            one, = filled(row("both", "end_all gives 3", status, shared=shared))
            self.assertEqual((one["hint"], one["more"], one["part"]), ("", [], ""))

    def test_what_passed_is_left_alone(self):
        self.assertEqual(filled(row("both", "", "passed"))[0]["hint"], "old")


class TheKit(unittest.TestCase):
    """The tasks' own functions, parts and files."""

    def test_every_part_is_found_in_the_reference(self):
        for task in manifest.load(ROOT):
            path = os.path.join(ROOT, "reference", task.file)
            if not os.path.exists(path):
                self.skipTest("no reference here")
            source = read(path)
            for part, names in task.functions.items():
                self.assertEqual(cause.parts_of(names[0], task, source), {part})
                self.assertRegex(cause.look(part, task, [(task.file, source)]), r"\.c:\d+$")

    def test_what_errors_give_for_streams_is_what_simgpu_asks(self):
        text = re.sub(r'"\s*"', "", read(os.path.join(ROOT, "simgpu", "src", "check", "race.c")))
        asked = " ".join(text.replace("\\n", " ").split())
        for task in manifest.load(ROOT):
            for error in task.errors:
                if "ctx->" in error:
                    self.assertTrue(re.sub(r"ctx->\w+|…", "%s", error) in asked, error)

    def test_a_given_function_is_named_only_where_it_is_changed(self):
        api, = [task for task in manifest.load(ROOT) if task.name == "api"]
        source = text_of(ROOT, api.pieces()[0].in_kit("skeleton"))
        crash = "crashed (x) at m/api.c:9 (destroy_unit), called from m/api.c:12 (fully_shard)"
        for old, new, name, at in (
                ("", "", "fully_shard", "m/api.c:12"),
                ("free(unit);", "free(unit); // it is", "fully_shard", "m/api.c:12"),
                ("free(unit);", "free(unit->module);", "destroy_unit", "m/api.c:9")):
            files = [("m/api.c", source.replace(old, new))]
            found = cause.look("6.4", api, files, "destroy_unit must free the unit")
            self.assertIn("part 6.4, %s, " % name, found)
            self.assertEqual(cause.look("6.4", api, files, crash),
                             "part 6.4, %s, %s" % (name, at))
            told = cause.named("fsdp_unwrap leaves 3 bytes: destroy_unit must free the unit", api,
                               files[0][1])
            self.assertEqual(told, {"6.7"} if name == "fully_shard" else {"6.4", "6.7"})
            self.assertEqual(cause.named("destroy_unit must free", api, files[0][1]), {"6.4"})


if __name__ == "__main__":
    unittest.main()
