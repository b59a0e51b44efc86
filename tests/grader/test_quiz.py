"""The quiz: the right answers are those of formulas written here; an answer with a step left out is
told which; answers.txt is read, added to and kept; whose numbers count.
"""

import json
import os
import time
import types
import unittest

from helpers import ROOT, TempFolder, build_folder, outside_make, program, run
import answers
import deliver
import plan
import quiz
import quiz_questions
import runner
from lab_questions import LAB_QUESTIONS
from quiz_questions import QUESTIONS as OF_TASKS

HBM = 3.35e12 # bytes/s of an H100 SXM's memory (NVIDIA's data sheet)
LIMIT = 300
QUESTIONS = {question.task: question for known in (OF_TASKS, LAB_QUESTIONS)
             for question in known.values()}
SEEDS = range(100) if os.environ.get("QUIZ_ALL") == "1" else range(1, 5)


def oracle(setting):
    """The answers, from the sizes alone."""
    L, C, V, T, W = (setting.layers, setting.dim, setting.vocab, setting.seq, setting.gpus)
    n_micro, rows, heads = setting.micro, setting.sequences * setting.seq, setting.heads
    block, root = 12 * C * C + 13 * C, (V + T + 2) * C
    n = L * block + root
    up = lambda numel: -(-numel // W) # a shard
    shards = L * up(block) + up(root)
    gathers = (2 * L * up(block) + up(root)) * (W - 1) * 4
    scatters = (L * up(block) + up(root)) * (W - 1) * 4
    three = 4 * W * (up(root) + 2 * up(block)) # the root and two blocks
    whole = 4 * W * shards
    last = max(0, root - (W - 1) * up(root))
    u, R = W * up(block), W * up(root)
    # A block's activations with plain attention, the last normalisation, the logits (lab 4).
    kept = 4 * (15 * rows * C + rows * heads * T) + 16 * rows
    # Lab 6: rows are padded; biases and norms (9 of C, one of 3C, one of 4C) travel as floats.
    rows_of = lambda r, c: up(r) * c
    floats = 6 * up(C) + up(3 * C) + up(4 * C) # two norms, proj and out; qkv; fc
    codes = rows_of(3 * C, C) + rows_of(C, C) + rows_of(4 * C, C) + rows_of(C, 4 * C)
    part = lambda floats, codes: 4 * floats + -(-codes // 4) * 4
    of_block, of_root = part(floats, codes), part(2 * up(C), rows_of(V, C) + rows_of(T, C))
    return {
        "1a": block, "1b": n, "1c": 16 * n, "1d": 16 * n / W, "1e": n / W,
        "2a": block, "2b": up(block), "2c": root, "2d": W * up(root) - root, "2e": last,
        "2f": 8 * shards,
        "3a": 2 * L + 1, "3b": 4 * up(block) * (W - 1), "3c": gathers, "3d": three, "3e": whole,
        "4a": L + 1, "4b": scatters, "4c": three,
        "4d": (gathers + scatters) / (8 * n * (W - 1) / W),
        "5a": shards, "5b": 8 * shards, "5c": 28 * shards, "5d": 1e6 * 28 * shards / HBM,
        "5e": 1e6 * 28 * n / HBM,
        "6a": L + 1, "6b": 4 * W * up(n), "6c": 4 * L * up(block) * (W - 1),
        "6d": 4 * W * (L - 2) * up(block), "6e": 4 * n,
        "L1a": (n_micro * (2 * (R + L * u) - R) + n_micro * (R + L * u)) / (2 * (R + L * u)),
        "L2a": 2 * R + max(6 * u, 4 * R), "L3a": 8 * u,
        "L4a": (L - 1) * kept + min(kept, 4 * rows * C + 8 * rows),
        "L5a": 12 * (min(up(root), root) + L * min(up(block), block)),
        "L6a": (W - 1) * (2 * L * of_block + of_root), "L7a": n_micro / 4,
        "L8a": 1 + 2 * -(-L // 3)}


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Questions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = plan.build_program(types.SimpleNamespace(impl="reference",
                                                               build=build_folder()))[0]
        cls.planned = {}

    def figures(self, key, number):
        """Each plan is made once."""
        if (key, number) not in self.planned:
            self.planned[key, number] = quiz.figures_of(self.program, QUESTIONS[number], key)
        return self.planned[key, number]

    def marked(self, key, number, given):
        question, figures = QUESTIONS[number], self.figures(key, number)
        return [quiz.mark(question, part, figures, given.get(question.name(part)), 1)
                for part in question.parts]

    def setting(self, key, number):
        question = QUESTIONS[number]
        return question.draw(quiz_questions.Draw("%s|task %s" % (key, number)))

    def test_right_answers_are_right_whatever_is_drawn(self):
        settings = set()
        for seed in SEEDS:
            for number in QUESTIONS:
                key = "seed %d" % seed
                setting = self.setting(key, number)
                settings.add(str(setting))
                right = {name: "%r" % value for name, value in oracle(setting).items()
                         if name[:-1] == str(number)}
                rows = self.marked(key, number, right)
                self.assertEqual([row["name"] for row in rows], ["quiz " + name for name in right])
                for row in rows:
                    self.assertEqual((row["status"], row["score"], row["max_score"]),
                                     ("passed", 1, 1), (key, setting, row))
        # Two students seldom have the same numbers: once among the 1,300 of a hundred.
        self.assertGreaterEqual(len(settings), 0.99 * len(QUESTIONS) * len(SEEDS))

    def test_one_per_cent_is_right_and_two_are_not(self):
        for number in QUESTIONS:
            all_right = oracle(self.setting("seed 1", number))
            right = {name: value for name, value in all_right.items() if name[:-1] == str(number)}
            for share, status in ((1.009, "passed"), (0.991, "passed"), (1.02, "failed"),
                                  (0.98, "failed")):
                given = {name: repr(value * share) for name, value in right.items()}
                for row in self.marked("seed 1", number, given):
                    value = right[row["name"].split()[1]]
                    exact = number == 2 or isinstance(value, int) and value < 1000
                    self.assertEqual(row["status"], "failed" if exact and value else
                                     "passed" if not value else status, (share, row))

    def test_each_missed_step_is_told(self):
        told = set()
        for seed in SEEDS:
            for number, question in QUESTIONS.items():
                figures = self.figures("seed %d" % seed, number)
                for part in question.parts:
                    name = question.name(part)
                    for wrong, missed in part.missed:
                        value = wrong(figures)
                        row = quiz.mark(question, part, figures, repr(value), 1)
                        if question.close(value, part.right(figures)):
                            self.assertEqual(row["status"], "passed")
                            continue
                        self.assertEqual(row["status"], "failed")
                        if row["message"] == missed:
                            told.add((name, missed))
                    row = quiz.mark(question, part, figures, "123456.789", 1)
                    self.assertEqual((row["status"], row["score"]), ("failed", 0))
                    self.assertIn(part.how, row["message"])
        every = {(question.name(part), missed) for question in QUESTIONS.values()
                 for part in question.parts for _, missed in part.missed}
        self.assertEqual(every - told, set())

    def test_no_question_tells_its_answer(self):
        """Neither the text nor a hint has a number that is right."""
        for number, question in QUESTIONS.items():
            figures = self.figures("seed 3", number)
            text = question.text(figures) + " ".join(
                ask for _, ask in quiz.asked_parts(question, figures))
            for part in question.parts:
                right = part.right(figures)
                if right > 100:
                    self.assertNotIn("%d" % right, text + part.how)


class File(TempFolder):
    def parse(self, text):
        return answers.parse(text, "answers.txt")

    def test_answers_and_what_is_wrong_with_them(self):
        found = self.parse("# text\nnumbers for: id a@b.c\n\n3a = 12 # mine\n 3b=\n")
        self.assertEqual((found.key, found.given, found.line),
                         ("id a@b.c", {"3a": "12", "3b": ""}, {"3a": 4, "3b": 5}))
        for text, line, what in (
                ("numbers for: seed 1\n3a 12\n", 2, "must be an answer"),
                ("numbers for: seed 1\n3a = 1\n3a = 2\n", 3, "line 2 already answers 3a"),
                ("numbers for: me\n", 1, "numbers for: seed N"),
                ("numbers for: seed 1\nnumbers for: seed 2\n", 2, "one line"),
                ("3a = 1\n", 0, "numbers for")):
            with self.subTest(text), self.assertRaises(answers.BadAnswers) as caught:
                self.parse(text)
            self.assertIn("answers.txt:%d: " % line if line else "answers.txt: ",
                          str(caught.exception))
            self.assertIn(what, str(caught.exception))

    def test_arithmetic(self):
        for text, value in (("12", 12), ("1e6", 1e6), ("2*(3+4)", 14), ("-1 + 5", 4), ("7/2", 3.5),
                            ("1_000", 1000), ("+".join(["1"] * 90), 90)):
            self.assertEqual(answers.value_of(text), value)
        for text, what in (
                ("1,000", "without commas"), ("12 MB", "without units"), ("2**9", "without units"),
                ("__import__('os')", "without units"), ("9" * 300, "at most 200"), ("x", "number"),
                ("1/0", "zero"), ("1e300*1e300", "must be a number"), ("9" * 20 + "*" + "9" * 20,
                                                                      "too large"),
                ("(" * 99 + "1" + ")" * 99, None), ("", "number"), ("'1'", "number"),
                ("True", "number"), ("1 if 1 else 2", "number"), ("-" * 150 + "1", "too many")):
            if what is None:
                self.assertEqual(answers.value_of(text), 1)
                continue
            with self.subTest(text), self.assertRaises(answers.BadAnswers) as caught:
                answers.value_of(text)
            self.assertIn(what, str(caught.exception))

    def test_writing_adds_what_is_not_there_and_keeps_the_rest(self):
        path = self.path("answers.txt")
        first = ("Task 1", "A model.", [("1a", "How many?"), ("1b", "And how long?")])
        second = ("Task 2", "Another.", [("2a", "How many?")])
        self.assertTrue(answers.write(path, "seed 7", [first]))
        text = self.read(path).replace("1a =", "1a = 5 * 3 # my own words")
        self.write(path, text)
        self.assertFalse(answers.write(path, "seed 7", [first]))
        self.assertTrue(answers.write(path, "seed 7", [first, second]))
        after = self.read(path)
        self.assertTrue(after.startswith(text))
        found = answers.read(path)
        self.assertEqual(found.key, "seed 7")
        self.assertEqual(found.given, {"1a": "5 * 3", "1b": "", "2a": ""})
        self.assertLessEqual(max(map(len, after.splitlines())), 100)

    def test_what_is_no_file_is_refused(self):
        os.mkdir(self.path("answers.txt"))
        with self.assertRaises(answers.BadAnswers):
            answers.read(self.path("answers.txt"))
        self.write("large", "#" * (answers.LARGEST_FILE + 1))
        with self.assertRaises(answers.BadAnswers):
            answers.read(self.path("large"))


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Command(TempFolder):
    """make quiz, and the quiz on a platform."""

    def quiz(self, *words, seed=None):
        """(exit status, what was printed, the results)"""
        out = self.path("quiz.json")
        done = run(program("quiz.py", "--impl", self.path(), "--build", build_folder(),
                           "--out", out,
                           *words), timeout=LIMIT * runner.time_factor(),
                   environment=outside_make("SEED"), **({} if seed is None else {"SEED": seed}))
        return done.returncode, done.stderr + done.stdout, json.loads(self.read(out))

    def fill(self, **given):
        text = self.read("answers.txt")
        for name, value in given.items():
            name = name[1:]
            self.assertIn("\n%s =\n" % name, text)
            text = text.replace("\n%s =\n" % name, "\n%s = %s\n" % (name, value))
        self.write("answers.txt", text)

    def test_asks_then_marks(self):
        status, said, results = self.quiz("--task", "3", seed="77")
        self.assertEqual((status, said.splitlines()[-1]), (0, "Quiz: 0 of 5 (task 3 only)"))
        self.assertEqual([row["status"] for row in results["tests"]], ["skipped"] * 5)
        setting = QUESTIONS[3].draw(quiz_questions.Draw("seed 77|task 3"))
        right = oracle(setting)
        self.fill(_3a=right["3a"], _3b="4 * %d / 4" % right["3b"], _3c="12 MB",
                  _3d=4 * setting.dim)
        status, said, results = self.quiz("--task", "forward")
        self.assertEqual((status, said.splitlines()[-1]), (0, "Quiz: 2 of 5 (task 3 only)"))
        self.assertEqual([row["status"] for row in results["tests"]],
                         ["passed", "passed", "failed", "failed", "skipped"])
        self.assertIn("without units", said)
        self.assertEqual((results["score"], results["max_score"], results["numbers"]),
                         (2, 5, "seed 77"))
        status, said, _ = self.quiz() # the other tasks are added, these answers stay
        self.assertEqual((status, said.splitlines()[-1]), (0, "Quiz: 2 of 30"))
        status, said, _ = self.quiz("--lab", "prefetch") # a lab's too, which counts alone
        self.fill(_L3a=oracle(QUESTIONS["L3"].draw(
            quiz_questions.Draw("seed 77|task L3")))["L3a"])
        status, said, results = self.quiz("--lab", "3")
        self.assertEqual((status, said.splitlines()[-1]), (0, "Quiz: 1 of 1 (lab 3 only)"))
        self.assertEqual(results["tests"][0]["name"], "quiz L3a")
        self.assertEqual(self.quiz()[1].splitlines()[-1], "Quiz: 2 of 30")

    def test_the_numbers_are_the_file_s(self):
        self.quiz("--task", "1", "--id", "anna@example.edu")
        status, said, results = self.quiz("--task", "1", "--id", "ben@example.edu")
        self.assertEqual((status, results["status"]), (2, "error"))
        self.assertIn("the questions of id anna@example.edu", said)
        status, said, results = self.quiz("--known", "ben@example.edu", "--mark-only")
        self.assertEqual((status, results["status"], results["score"]), (2, "error", 0))
        self.assertIn("make quiz ID=ben@example.edu", said)
        status, _, results = self.quiz("--known", "ben@example.edu", "--known", "anna@example.edu",
                                       "--mark-only")
        self.assertEqual((status, results["numbers"]), (0, "id anna@example.edu"))

    def test_marking_alone_writes_nothing(self):
        status, _, results = self.quiz("--mark-only", "--id", "x")
        self.assertEqual((status, results["score"], results["max_score"]), (0, 0, 30))
        self.assertFalse(os.path.exists(self.path("answers.txt")))

    def delivered(self, metadata=None):
        os.makedirs(self.path("out"), exist_ok=True)
        return deliver.quiz(types.SimpleNamespace(build=build_folder()), {"quiz": 0.5}, self.path(),
                            self.path("out"), time.monotonic() + LIMIT, metadata)

    def test_on_a_platform(self):
        rows = self.delivered()
        self.assertEqual([(row["status"], row["score"], row["max_score"]) for row in rows],
                         [("skipped", 0, 15)])
        self.assertIn("make quiz", rows[0]["message"])
        self.quiz("--id", "anna@example.edu")
        right = oracle(QUESTIONS[2].draw(quiz_questions.Draw("id anna@example.edu|task 2")))
        self.fill(**{"_" + name: right[name] for name in ("2a", "2d")})
        anna = {"users": [{"email": "ben@example.edu"}, {"email": "anna@example.edu", "id": 3}]}
        for metadata in (None, {}, {"users": 3}, {"users": [3, {"email": None}]}, anna):
            rows = self.delivered(metadata)
            self.assertEqual((len(rows), sum(row["score"] for row in rows),
                              sum(row["max_score"] for row in rows)), (30, 1.0, 15.0))
            self.assertTrue(all(row["quiz"] for row in rows))
        rows = self.delivered({"users": [{"email": "ben@example.edu"}]})
        self.assertEqual([(row["status"], row["score"], row["max_score"]) for row in rows],
                         [("failed", 0, 15)])
        self.assertIn("make quiz ID=ben@example.edu", rows[0]["message"])
        self.append("answers.txt", "nonsense\n")
        rows = self.delivered()
        self.assertEqual([row["score"] for row in rows], [0])
        self.assertIn("must be an answer", rows[0]["message"])

    def test_bad_input_is_one_line(self):
        for words, seed, what in (
                (["--task", "9"], None, "there is no task 9"),
                (["--lab", "9"], None, "there is no lab 9"), (["--id", "a b"], None, "ID is"),
                ([], "x", "SEED is"), (["--impl", self.path("no")], None, "is not a folder")):
            status, said, _ = self.quiz(*words, seed=seed)
            self.assertEqual((status, len(said.splitlines())), (2, 1), said)
            self.assertIn(what, said)
        self.write("answers.txt", "numbers for: seed 1\n7z = 1\n")
        status, said, _ = self.quiz()
        self.assertEqual(status, 2)
        self.assertIn("answers.txt:2: no question has a part 7z", said)


if __name__ == "__main__":
    unittest.main()
