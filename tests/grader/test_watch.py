"""make watch: what a save brings about, in the words that a student reads, and that nothing stays
behind. The miniature kit's suites decide what passes; a save of the file is what starts them."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

from helpers import FakeKit, TempFolder, processes_with, run, wait_for
import watch

PATIENCE = 60 # seconds until something that must come is missed


class Watched(FakeKit):
    """A watch on the folder `mine`, whose output a thread collects."""

    def begin(self, *arguments, first="Ctrl-C ends this", **more):
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", SHARDLAB_TIME_FACTOR="1")
        self.process = subprocess.Popen(
            [sys.executable, self.path("grader", "watch.py"), "--impl", "mine", "--limit", "60"]
            + list(arguments), # a limit of its own, so that the reference need not be measured
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, **more)
        self.text = ""
        self.taken = 0
        self.reader = threading.Thread(target=self.collect, daemon=True)
        self.reader.start()
        self.addCleanup(self.kill)
        return self.until(first)

    def collect(self):
        while True:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return
            self.text += data.decode("utf-8", "replace")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(PATIENCE)
        self.process.stdout.close()

    def until(self, words):
        """What was printed since the last call, up to the line with these words (an expression)."""
        end = time.monotonic() + PATIENCE
        while True:
            found = re.compile(words + ".*\n").search(self.text, self.taken)
            if found:
                text, self.taken = self.text[self.taken:found.end()], found.end()
                return text
            self.assertLess(time.monotonic(), end, "no %r in:\n%s" % (words, self.text))
            time.sleep(0.02)

    def save(self, name, text):
        """As most editors do: a new file in the old one's place."""
        self.write("mine/.%s.new" % name, text)
        os.replace(self.path("mine/.%s.new" % name), self.path("mine", name))

    def number(self, name, value):
        self.save(name + ".c", "int %s(void) { return %s; }\n" % (name, value))

    def end(self, number=signal.SIGINT):
        """Ends it. What it still printed."""
        self.process.send_signal(number)
        self.assertEqual(self.process.wait(PATIENCE), 0, self.text)
        self.reader.join(PATIENCE)
        self.process.stdout.close()
        self.assertNotIn("Traceback", self.text)
        wait_for(lambda: not processes_with(self.folder))
        return self.text[self.taken:]


class Saves(Watched):
    def test_the_beginning(self):
        self.suite("one", "abc", "say('b', 'failed', 'x'); rest('b')")
        self.assertEqual(self.begin(), (
            "Grading mine …\n"
            "  Task 1  One                   40 of 60 points\n"
            "  Task 2  Two                   40 of 40 points\n"
            "\nScore: 80/100\n"
            "Watching 2 files in mine: save one to have it graded; Ctrl-C ends this.\n"))
        self.assertEqual(self.end(), "\nScore: 80/100\n")

    def test_what_has_changed(self):
        self.suite("one", "abc", "say('b', 'failed', 'x'); rest('b')")
        self.begin()
        self.suite("one", "abc", "say('a', 'failed', 'w[3] is 2, want 3'); say('b');"
                   "say('c', 'timeout', 'too slow'); end()")
        self.number("one", 2)
        text = self.until("Score: ")
        self.assertRegex(text, r"^\n\d\d:\d\d:\d\d  mine/one\.c saved\n")
        self.assertEqual(text.split("saved\n")[1], (
            "  Task 1: 40 → 20 of 60 points\n"
            "    now ok: b\n"
            "    no longer ok: a, c\n"
            "  FAIL   a                                                      0/10\n"
            "         a holds.\n"
            "           w[3] is 2, want 3\n"
            "  Read:  handouts/1_one.md\n"
            "    also not ok: c\n"
            "  Not run: 1 test of task 2 that uses all files; it runs when all others pass,\n"
            "  or when two.c is saved.\n"
            "\nScore: 60/100\n"))
        self.assertNotIn("\x1b", self.text)

    def test_all_files_together_when_all_others_pass(self):
        self.suite("one", "abc", "say('b', 'failed', 'x'); rest('b')")
        self.suite("together", "e", "say('e', 'failed', 'weights differ'); end()")
        self.begin()
        self.suite("one", "abc", "rest()")
        self.suite("together", "e", "rest()")
        self.number("one", 2)
        text = self.until("Score: ")
        self.assertIn("  Task 1: 40 → 60 of 60 points\n    now ok: b\n\nScore: 90/100\n", text)
        text = self.until("Score: ")
        self.assertIn("all other tests pass: next the tests that use all files\n"
                      "  Task 2: 30 → 40 of 40 points\n    now ok: e\n\nScore: 100/100\n", text)
        self.assertEqual(self.end(), "\nScore: 100/100\n")

    def test_a_file_that_does_not_compile(self):
        self.suite("one", "abc", "say('b', 'failed', 'x'); rest('b')")
        self.begin("--task", "1")
        self.save("one.c", "int one(void)\n{ return 1 }\n")
        text = self.until("Score: ")
        self.assertIn("  Task 1: 0 of 60 points, no test ran\n"
                      "    one.c does not compile. mine/one.c:2: expected ';' before '}' token\n",
                      text)
        self.assertNotIn("no longer ok", text)
        self.suite("one", "abc", "rest()")
        self.number("one", 3)
        # Compared with the last time that tests ran.
        self.assertIn("  Task 1: 40 → 60 of 60 points\n    now ok: b\n", self.until("Score: "))

    def test_one_task_alone(self):
        self.assertIn("Watching one.c in mine", self.begin("--task", "one"))
        self.number("two", 7) # nobody looks at it
        self.suite("one", "abc", "for t in wanted: say(t, 'failed', t)\nend()")
        self.number("one", 7)
        text = self.until("Score: ")
        self.assertIn("mine/one.c saved\n  Task 1: 60 → 0 of 60 points\n"
                      "    no longer ok: all 3 tests\n", text)
        self.assertTrue(text.endswith("\nScore: 0/60 (task 1 only)\n"), text)
        self.assertNotIn("two.c", self.text)

    def test_several_at_once(self):
        self.begin()
        self.suite("one", "abc", "say('c', 'failed', 'x'); rest('c')")
        self.number("two", 2)
        self.number("one", 2)
        text = self.until("Score: ") + self.until("Score: ")
        self.assertRegex(text, r"(?s)one\.c saved\n  Task 1: 60 → 30.*"
                               r"two\.c saved\n  Task 2: 40 → 40 of 40")

    def test_a_file_that_goes_and_comes_back(self):
        self.begin()
        os.rename(self.path("mine/one.c"), self.path("mine/one.c~"))
        time.sleep(0.4) # an editor that is slow to write the new one
        self.number("one", 5)
        self.assertIn("mine/one.c saved\n  Task 1: 60 → 60 of 60", self.until("Score: "))
        self.until("Score: ") # all files together
        os.unlink(self.path("mine/one.c"))
        text = self.until("Score: ")
        self.assertIn("mine/one.c is gone\n  Task 1: 0 of 60 points, no test ran\n"
                      "    mine has no one.c.", text)

    def test_a_file_that_is_written_piece_by_piece_is_graded_once(self):
        self.begin("--task", "1")
        with open(self.path("mine/one.c"), "w", encoding="utf-8") as file:
            for piece in ["int one(", "void)", " { return", " 8; }", "\n"] + ["/* more */\n"] * 9:
                file.write(piece)
                file.flush()
                time.sleep(0.04)
        self.assertIn("Task 1: 60 → 60 of 60", self.until("Score: "))
        self.assertEqual(self.end().count("saved"), 0)
        self.assertEqual(self.text.count("saved"), 1)

    def test_a_save_during_a_grading_begins_it_anew(self):
        self.begin("--task", "1")
        self.suite("one", "abc", "time.sleep(600)")
        self.number("one", 2)
        suite = self.path("build/impl/mine/suite/one")
        wait_for(lambda: processes_with(suite))
        old = processes_with(suite)
        self.suite("one", "abc", "say('b', 'failed', 'x'); rest('b')")
        self.number("one", 3)
        text = self.until("Score: ")
        self.assertEqual(text.count("saved"), 1)
        self.assertIn("Task 1: 60 → 40 of 60", text)
        self.assertFalse(set(old) & set(processes_with(suite)))
        self.end()

    def test_a_report_is_shown_whole_after_each_save(self):
        fails = "say('%s', 'failed', 'head\\n 1.\\n 2.\\n last'); rest('%s')"
        self.suite("one", "abc", fails % ("a", "a"))
        self.begin("--task", "1")
        for test in "abb":
            self.suite("one", "abc", fails % (test, test))
            self.number("one", ord(test))
            self.assertIn("            last\n", self.until("Score: "))

    def test_messages_cannot_command_the_terminal(self):
        self.suite("one", "abc", "say('a', 'failed', '\\x1b[2J' + 'word ' * 90); rest('a')")
        self.begin("--task", "1")
        self.save("one.c", "#warning \x1b[2J\nint one(void) { return 1; }\n")
        self.until("Score: ")
        self.assertNotIn("\x1b", self.text)
        self.assertLessEqual(max(map(len, self.text.splitlines())), 80)


class Files(TempFolder):
    """When a file counts as saved, by a clock that goes on only while somebody waits."""

    def setUp(self):
        super().setUp()
        self.write("one.c", "1")
        self.write("two.c", "2")
        self.files = watch.Files(self.folder, ["one.c", "two.c"])

    def saved(self, *actions):
        """The files that were saved, where one thing more happens at each wait."""
        self.actions, self.now = list(actions), 0.0

        def wait(seconds):
            self.now += seconds
            if self.actions:
                self.actions.pop(0)()
        return self.files.saved(wait, lambda: self.now)

    def test_once_it_stays_as_it_is(self):
        self.assertFalse(self.files.changed())
        self.write("one.c", "10")
        self.assertTrue(self.files.changed())
        self.assertEqual(self.saved(
            lambda: self.write("one.c", "100"), lambda: None, lambda: None,
            lambda: self.write("one.c", "1000"), lambda: self.write("two.c", "20")),
            ["one.c", "two.c"])
        self.assertEqual(self.actions, [])
        self.assertFalse(self.files.changed())

    def test_the_same_length_and_time_in_another_file(self):
        before = os.stat(self.path("one.c"))
        self.write("new.c", "3")
        os.utime(self.path("new.c"), ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(self.path("new.c"), self.path("one.c"))
        self.assertEqual(self.saved(), ["one.c"])

    def test_a_file_that_is_away_for_a_moment(self):
        os.unlink(self.path("two.c"))
        self.assertEqual(self.saved(*[lambda: None] * 6, lambda: self.write("two.c", "22")),
                         ["two.c"])
        self.assertIsNotNone(self.files.known["two.c"])
        os.unlink(self.path("two.c"))
        self.assertEqual(self.saved(), ["two.c"])
        self.assertIsNone(self.files.known["two.c"])
        self.assertFalse(self.files.changed())


class Ends(Watched):
    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.begin()
            self.assertEqual(self.end(number), "\nScore: 100/100\n")

    def test_in_the_middle_of_a_grading(self):
        self.begin("--task", "1")
        self.suite("one", "abc", "time.sleep(600)")
        self.number("one", 2)
        wait_for(lambda: processes_with(self.path("build/impl/mine/suite/one")))
        self.assertEqual(self.end(), "\nScore: 60/60 (task 1 only)\n")

    def test_in_the_middle_of_the_first_grading(self):
        self.suite("one", "abc", "time.sleep(600)")
        self.begin(first="Grading mine")
        wait_for(lambda: processes_with(self.path("build/impl/mine/suite/one")))
        self.assertEqual(self.end(), "Stopped before the first grading was done.\n")

    def test_nobody_reads_it(self):
        with subprocess.Popen(
                [sys.executable, "-B", self.path("grader", "watch.py"), "--impl", "mine"],
                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while b"Ctrl-C" not in process.stdout.readline():
                pass
            process.stdout.close()
            self.number("one", 2)
            self.assertEqual(process.stderr.read(), b"")
            self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(processes_with(self.folder), [])


class Refused(Watched):
    def refused(self, *arguments):
        done = run([sys.executable, self.path("grader", "watch.py"), *arguments], self.folder)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def test_questions_that_make_no_sense(self):
        self.assertEqual(self.refused("--impl", "nowhere"), (2, "", (
            "watch: nowhere is not a folder: IMPL must name one with the two task files\n")))
        self.assertEqual(self.refused("--impl", "mine", "--task", "7"), (2, "", (
            "watch: there is no task 7; the tasks are 1 one, 2 two\n")))

    def test_a_kit_that_does_not_build(self):
        self.write("Makefile", "nonsense\n")
        status, out, err = self.refused("--impl", "mine")
        self.assertEqual((status, out), (3, "Grading mine …\n"))
        self.assertTrue(err.startswith("watch: "), err)


if __name__ == "__main__":
    unittest.main()
