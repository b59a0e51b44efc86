"""The emitters: what each platform gets of a result, held against the platform's documented fields,
with results that are well, that are broken, and that hold what a hostile program has said."""

import json
import os
import unittest
import xml.etree.ElementTree

import schemas
from helpers import TempFolder, program, run

import emit
import settings
from emit import common

COURSE = dict(settings.DEFAULTS, tasks=[
    {"number": 1, "name": "one", "title": "Task one", "points": 10},
    {"number": 2, "name": "two", "title": "Task two", "points": 20}], leaderboard=True,
    hidden={"seed": 1, "tests": [{"suite": "two", "name": "unseen", "points": 5, "title": "Unseen.",
                                  "hint": "Why?"}]})
CHECKS = {"gradescope": schemas.gradescope, "autolab": schemas.autolab,
          "prairielearn": schemas.prairielearn, "junit": schemas.junit,
          "github": schemas.annotations}


def test(name="a", task=1, status="passed", points=10, message="", **more):
    return dict({"name": name, "task": task, "title": "%s holds." % name, "status": status,
                 "score": points if status == "passed" else 0, "max_score": points,
                 "message": message, "hint": "Why %s?" % name, "handout": "handouts/1_one.md",
                 "seconds": 0.25}, **more)


def document(*tests, **more):
    return dict({"status": "graded", "message": "", "score": 0, "max_score": 0, "impl": "mine",
                 "backend": "simgpu", "devices": "simgpu: 8 simulated devices", "seconds": 12.5,
                 "tests": list(tests)}, **more)


ONE_OF_EACH = document(
    test("p", 1), test("f", 1, "failed", 4, "rank 1: mine/one.c:7: w[3] is 2, want 3"),
    test("e", 2, "error", 3, "mine/two.c:9: crashed"), test("t", 2, "timeout", 2, "too long"),
    test("s", 2, "skipped", 1, "Needs all six files."),
    test("i", 2, "infrastructure", 1, "The grading did not reach this test."),
    test("unseen", 2, "failed", 5, "secret words", hidden=True))


class Emitted(TempFolder):
    maxDiff = None

    def emitted(self, name, value):
        """What an emitter makes of a document, checked."""
        text = emit.emit(name, common.tidy(value), COURSE)
        self.assertEqual(CHECKS[name](text), [], name)
        return text

    def everywhere(self, value):
        return {name: self.emitted(name, value) for name in emit.FORMATS}


class Fields(Emitted):
    def test_the_quiz_has_points_of_its_own(self):
        value = document(test("one", 1, "passed", 4), test("quiz 1a", 1, "passed", 0.5, quiz=True),
                         test("quiz 1b", 1, "failed", 0.5, "Tied.", quiz=True))
        course = dict(COURSE, quiz=0.5)
        result = json.loads(self.emitted("gradescope", value))
        self.assertEqual(result["score"], 4.5)
        self.assertEqual([row["tags"][0] for row in result["tests"]], ["task 1", "quiz", "quiz"])
        last = emit.emit("autolab", common.tidy(value), course).rstrip().splitlines()[-1]
        self.assertEqual(json.loads(last)["scores"], {
            "Task one": 4, "Task two": 0, "Hidden tests": 0, "Quiz": 0.5})
        self.assertEqual(emit.autolab.problems(course)["Quiz"], 15)
        self.assertNotIn("Quiz", emit.autolab.problems(COURSE))
        self.assertIn('<testsuite name="Quiz" tests="2" failures="1"', self.emitted("junit", value))
        self.assertIn("Tied.", self.emitted("github", value))

    def test_the_challenge_is_for_leaderboards(self):
        course = dict(COURSE, challenge=True)
        for given, shown in ((10291.9, 10291.9), (None, 0), ("1e9", 0), (float("nan"), 0)):
            value = common.tidy(document(test("one", 1), challenge=given))
            result = json.loads(emit.emit("gradescope", value, course))
            self.assertEqual(result["leaderboard"], [{"name": "Score", "value": 10},
                                                     {"name": "Tokens/s per GPU", "value": shown}])
            last = emit.emit("autolab", value, course).rstrip().splitlines()[-1]
            self.assertEqual(json.loads(last)["scoreboard"], [10, 10, 0, 0, shown])

    def test_gradescope(self):
        result = json.loads(self.emitted("gradescope", ONE_OF_EACH))
        self.assertEqual((result["score"], result["execution_time"], result["visibility"],
                          result["stdout_visibility"]), (10, 12.5, "visible", "hidden"))
        self.assertEqual([row["status"] for row in result["tests"]], ["passed"] + ["failed"] * 6)
        self.assertEqual([row["extra_data"]["status"] for row in result["tests"]],
                         ["passed", "failed", "error", "timeout", "skipped", "infrastructure",
                          "failed"])
        self.assertEqual([row["number"] for row in result["tests"]],
                         ["1.1", "1.2", "2.1", "2.2", "2.3", "2.4", "2.5"])
        self.assertEqual([row["visibility"] for row in result["tests"]],
                         ["visible"] * 6 + ["after_published"])
        self.assertTrue(result["tests"][4]["output"].startswith("Not judged (skipped): "))
        self.assertIn("Read: handouts/1_one.md", result["tests"][1]["output"])
        with_section = document(test("f", 1, "failed", 4, "x", section="The plan\n"))
        output = json.loads(self.emitted("gradescope", with_section))["tests"][0]["output"]
        self.assertTrue(output.endswith('Read: handouts/1_one.md, section "The plan "'), output)
        self.assertEqual(result["leaderboard"], [{"name": "Score", "value": 10}])

    def test_which_files_were_graded(self):
        files = [{"task": 1, "file": "one.c", "source_sha256": "ab", "linked": True}, "x",
                 {"y": []}]
        result = json.loads(self.emitted("gradescope", document(test(), files=files)))
        self.assertEqual(result["extra_data"]["files"],
                         [{"task": "1", "file": "one.c", "source_sha256": "ab", "linked": True},
                          {"y": "[]"}])
        self.everywhere(document(test(), files={"a": 1}))

    def test_autolab(self):
        text = self.emitted("autolab", ONE_OF_EACH)
        last = json.loads(text.splitlines()[-1])
        self.assertEqual(last["scores"], {"Task one": 10, "Task two": 0, "Hidden tests": 0})
        self.assertEqual(last["scoreboard"], [10, 10, 0, 0])
        self.assertIn("w[3] is 2, want 3", text)
        self.assertEqual(emit.autolab.problems(COURSE),
                         {"Task one": 10, "Task two": 20, "Hidden tests": 5})

    def test_prairielearn(self):
        result = json.loads(self.emitted("prairielearn", ONE_OF_EACH))
        self.assertEqual((result["gradable"], result["score"]), (True, round(10 / 26, 4)))
        self.assertEqual([row["name"] for row in result["tests"]],
                         ["p", "f", "e", "t", "s", "i", "hidden tests"])
        self.assertEqual([row["points"] for row in result["tests"]], [10, 0, 0, 0, 0, 0, 0])

    def test_junit(self):
        root = xml.etree.ElementTree.fromstring(self.emitted("junit", ONE_OF_EACH))
        self.assertEqual({name: root.get(name) for name in schemas.COUNTS},
                         {"tests": "7", "failures": "2", "errors": "3", "skipped": "1"})
        self.assertEqual([suite.get("name") for suite in root],
                         ["Task 1 Task one", "Task 2 Task two"])
        self.assertEqual([error.get("type") for error in root.iter("error")],
                         ["error", "timeout", "infrastructure"])

    def test_github(self):
        text = self.emitted("github", ONE_OF_EACH)
        self.assertIn("::error file=mine/one.c,line=7,title=f (task 1)::rank 1: mine/one.c:7: w[3]",
                      text)
        self.assertNotIn("Needs all six files", text)
        summary = emit.github.summarize(common.tidy(ONE_OF_EACH), COURSE)
        self.assertRegex(summary, r"\| . \| p \| 1 Task one \| 10/10 \|")
        self.assertIn("want 3", summary)

    def test_a_place_is_annotated_once_and_ten_are_the_most(self):
        same = [test(name, 1, "failed", 1, "mine/one.c:7: part 1.1 is not written yet")
                for name in "abc"]
        self.assertEqual(self.emitted("github", document(*same)).count("::error"), 1)
        many = [test("t%d" % i, 1, "failed", 1, "mine/one.c:%d: wrong" % i) for i in range(30)]
        text = self.emitted("github", document(*many))
        self.assertEqual(text.count("::error"), 10)
        self.assertIn("21 more places fail", text)

    def test_the_summary_stands_first(self):
        """Points, what was not taken, points by task, one thing to do: on every platform, and of
        hidden tests no more than the platform shows."""
        value = dict(ONE_OF_EACH, notes=["w.7z is not taken.", 3, "two\nlines"])
        points = "Task 1  Task one           10/14\nTask 2  Task two           0/7\n"
        following = ("What to do next: task 1, f\n  rank 1: mine/one.c:7: w[3] is 2, want 3\n"
                     "  Read: handouts/1_one.md\n  At home: make grade TASK=1")
        notes = "w.7z is not taken.\n3\ntwo lines\n"
        shown = "Score: 10 of 26.\n%s%sHidden tests               0/5\n%s" % (
            notes, points, following)
        texts = self.everywhere(value)
        self.assertEqual(json.loads(texts["gradescope"])["output"],
                         "Score: 10 of 21, without the hidden tests.\n" + notes + points
                         + following)
        self.assertEqual(json.loads(texts["prairielearn"])["message"], shown)
        self.assertTrue(texts["autolab"].startswith(shown + "\n\nf (0/4)\n"), texts["autolab"])
        self.assertIn(shown, emit.github.summarize(common.tidy(value), COURSE))
        # The row of two hidden tests has their points.
        two = document(*ONE_OF_EACH["tests"], test("too", 2, "passed", 4, hidden=True))
        for name, text in self.everywhere(two).items():
            self.assertEqual("without the hidden tests" in text, name == "gradescope", name)
        # Nothing is left to do; and of a lab.
        self.assertEqual(common.summary(common.tidy(document(test())), COURSE),
                         "Score: 10 of 10.\nTask 1  Task one           10/10")
        lab = common.summary(common.tidy(document(test("x", 2, "error"))), dict(COURSE, lab="all"))
        self.assertIn("Lab 2  Task two            0/10\nWhat to do next: lab 2, x\n", lab)
        self.assertIn("  At home: make grade LAB=2", lab)

    def test_hidden_tests_tell_nothing_where_all_is_shown(self):
        for name in ("autolab", "prairielearn"):
            text = self.emitted(name, ONE_OF_EACH)
            self.assertNotIn("secret words", text)
            self.assertNotIn("unseen", text)

    def test_lateness_takes_its_share(self):
        late = document(test(), late=0.3, message="Handed in 3 days late: 30 % are taken off.")
        self.assertEqual(json.loads(self.emitted("gradescope", late))["score"], 7)
        self.assertEqual(json.loads(self.emitted("prairielearn", late))["score"], 0.7)
        self.assertEqual(json.loads(self.emitted("autolab", late).splitlines()[-1])["scores"],
                         {"Task one": 7, "Task two": 0, "Hidden tests": 0})


class Trouble(Emitted):
    def all_say(self, value, words):
        """Every platform gets a valid result of no points that says it."""
        texts = self.everywhere(value)
        for name, text in texts.items():
            self.assertIn(words, text, name)
        self.assertEqual(json.loads(texts["gradescope"])["score"], 0)
        self.assertEqual(json.loads(texts["prairielearn"])["gradable"], False)
        self.assertEqual(set(json.loads(texts["autolab"].splitlines()[-1])["scores"].values()), {0})
        return texts

    def test_a_grading_that_failed(self):
        texts = self.all_say(document(test(), status="infrastructure", message="no make here"),
                             "no make here")
        self.assertIn("not your code", texts["gradescope"])
        root = xml.etree.ElementTree.fromstring(texts["junit"])
        self.assertEqual(root.get("errors"), "1")

    def test_a_submission_that_is_none(self):
        texts = self.all_say({"status": "error", "message": "No archive.", "tests": []},
                             "No archive.")
        self.assertEqual(json.loads(texts["prairielearn"])["format_errors"], ["No archive."])

    def test_results_that_cannot_be_read(self):
        whole = json.dumps(ONE_OF_EACH).encode()
        for what, data in (("cut", whole[:200]), ("empty", b""), ("bytes", bytes([255, 254, 0])),
                           ("list", b"[1, 2]"), ("null", b"null"), ("deep", b"[" * 100000),
                           ("no tests", b'{"status": "graded", "score": 100}'),
                           ("tests no list", b'{"status": "graded", "tests": {"a": 1}}')):
            with self.subTest(what=what):
                path = self.path("results.json")
                with open(path, "wb") as file:
                    file.write(data)
                self.all_say(common.load(path), "The grade")
        self.all_say(common.load(self.path("nothing")), "No such file")

    def test_odd_values_earn_nothing(self):
        rows = [test("a", status="PASSED", score=10), test("b", status="failed", score=10),
                test("c", score=1e99), test("d", score=float("nan")), test("e", score=True),
                test("f", score=-5), test("g", score="10"), {"name": 3}, None, [], "passed",
                test("h", max_score=float("inf"), score=float("inf")), test("i", task="x")]
        value = document(*rows, seconds=float("inf"), score=10 ** 400)
        self.everywhere(value)
        got = {row["name"]: row["score"] for row in common.tidy(value)["tests"]}
        self.assertEqual(got, {"a": 0, "b": 0, "c": 10, "d": 0, "e": 0, "f": 0, "g": 0, "h": 0,
                               "i": 10})


# What a program under test may have printed into a message.
CONTROLS = "".join(map(chr, range(32))) + chr(0x7f) + chr(0x9b)
HALVES = chr(0xd800) + " lone " + chr(0xdfff)
BAD_TEXTS = (
    CONTROLS, HALVES, chr(0xfffe) + chr(0xffff) + chr(0x202e) + chr(0x2066) + chr(0x2028),
    "]]> </failure></testcase> <![CDATA[ &amp; <", '"quoted" \\ \\u0000', "%0A%25",
    "::error file=a::b\n::add-mask::secret\r\n::stop-commands::x",
    "```\n````` </pre> | a | b |\n# head", '\n{"scores": {"Task one": 100}}\n',
    "mine/one.c:7: \n::set-output name=x::y", "x" * 1000000, chr(0x20ac) * 1000000,
    chr(0) * 1000000, "\n" * 1000000)


class Hostile(Emitted):
    def test_texts_that_a_program_chose(self):
        for text in BAD_TEXTS:
            with self.subTest(text=ascii(text[:30])):
                value = document(test("n" + text[:50], 1, "failed", 10, text, hint=text,
                                      title=text, handout=text),
                                 test("m", 2, "error", 20, text), message=text, devices=text)
                texts = self.everywhere(value)
                for name, made in texts.items():
                    self.assertLess(len(made.encode()), 100000, name)
                last = json.loads(texts["autolab"].rstrip("\n").rpartition("\n")[2])
                self.assertEqual(last["scores"]["Task one"], 0)
                self.assertEqual(sum(line.startswith("{") for line in
                                     texts["autolab"].splitlines()), 1)
                summary = emit.github.summarize(common.tidy(value), COURSE)
                self.assertLess(len(summary.encode("utf-8")), 100000)

    def test_a_fence_holds_what_stands_in_it(self):
        value = document(test("n", 1, "failed", 10, "```\n# not a heading\n`````\n"))
        summary = emit.github.summarize(common.tidy(value), COURSE)
        inside = None
        for line in summary.splitlines():
            if inside is None and line.startswith("```"):
                inside = line[:len(line) - len(line.lstrip("`"))]
            elif inside is not None and line.strip() == inside:
                inside = None
            elif inside is None:
                self.assertNotIn("not a heading", line)
        self.assertIsNone(inside)

    def test_many_long_messages_fit(self):
        value = document(*[test("t%d" % i, 1 + i % 2, "failed", 1, chr(0x20ac) * 5000)
                           for i in range(900)])
        texts = self.everywhere(value)
        self.assertLess(len(texts["prairielearn"].encode()), 1000000)
        self.assertEqual(len(json.loads(texts["prairielearn"])["tests"]), 900)
        self.assertLess(len(emit.github.summarize(common.tidy(value), COURSE).encode()), 1 << 20)

    def test_the_middle_of_a_long_message_goes(self):
        message = common.clean("begin" + "x" * 100000 + "end")
        self.assertTrue(message.startswith("begin") and message.endswith("end"))
        self.assertIn("characters left out", message)

    def test_a_link_or_folder_in_the_place_of_the_results_goes(self):
        self.write("precious", "mine")
        os.symlink(self.path("precious"), self.path("results.json"))
        emit.write(self.path("results.json"), "{}\n")
        self.assertEqual((self.read("results.json"), self.read("precious")), ("{}\n", "mine"))
        os.unlink(self.path("results.json"))
        self.write("results.json/full/of/files", "x")
        emit.write(self.path("results.json"), "{}\n")
        self.assertEqual(self.read("results.json"), "{}\n")
        self.assertEqual(sorted(os.listdir(self.folder)), ["precious", "results.json"])


class CommandLine(Emitted):
    def call(self, *words):
        return run(program("emit", *words))

    def test_each_format(self):
        path = self.write("results.json", json.dumps(ONE_OF_EACH))
        for name in emit.FORMATS:
            done = self.call(name, path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(CHECKS[name](done.stdout), [], name)
            self.assertEqual(self.call(name, path, "--out", self.path("out")).stdout, "")
            self.assertEqual(self.read("out"), done.stdout)

    def test_strict_and_summary(self):
        path = self.write("results.json", json.dumps(ONE_OF_EACH))
        done = self.call("github", path, "--strict", "--summary", self.path("summary.md"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("## ShardLab", self.read("summary.md"))
        path = self.write("results.json", json.dumps(document(test())))
        self.assertEqual(self.call("github", path, "--strict").returncode, 0)
        self.assertEqual(self.call("github", self.path("nothing"), "--strict").returncode, 1)


if __name__ == "__main__":
    unittest.main()
