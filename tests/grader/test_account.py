"""Tests that run as another account than the grader's. Only root can try."""

import json
import os
import pwd
import sys
import unittest

from helpers import FakeKit, TempFolder, processes_with, run

import account

ROOT_ONLY = unittest.skipUnless(os.geteuid() == 0, "needs root, who alone has accounts to give")
# An interpreter that everybody may start: sys.executable may lie in somebody's home.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
NOBODY = pwd.getpwnam("nobody").pw_uid


class Found(TempFolder):

    def test_no_name_is_no_account(self):
        self.assertIsNone(account.find(""))

    @ROOT_ONLY
    def test_an_account_that_is_none(self):
        for name, why in (("no-such-account", "there is no account no-such-account"),
                          ("root", "root is root")):
            with self.assertRaisesRegex(account.NoAccount, why):
                account.find(name)

    def test_hiding_leaves_the_owners_rights(self):
        for before, after in ((0o755, 0o700), (0o555, 0o500), (0o700, 0o700)):
            os.mkdir(self.path("%o" % before), before)
            os.chmod(self.path("%o" % before), before)
            account.hide(self.path("%o" % before))
            self.assertEqual(os.stat(self.path("%o" % before)).st_mode & 0o777, after)
        account.hide(self.path("not there"))


class Segments(FakeKit):
    def test_memory_that_a_test_leaves_is_removed(self):
        """Where an account may not write large files, tests may make System V memory."""
        size = 4096 + os.getpid()
        self.suite("one", "abc", "import ctypes\nfound = ctypes.CDLL(None).shmget(0, %d, 0o1600)\n"
                   "say('a', 'failed', 'made' if found >= 0 else 'refused')\nrest('a')" % size)
        for limit, how in (("unlimited", "refused"), ("102400", "made")):
            run(["bash", "-c", 'ulimit -f %s; exec "$@"' % limit, "bash"] + self.command(),
                self.folder, status=0)
            tests = {test["name"]: test for test in self.document()["tests"]}
            self.assertIn(how, tests["a"]["message"])
            with open("/proc/sysvipc/shm", encoding="ascii") as file:
                self.assertNotIn(str(size), [line.split()[3] for line in file])


@ROOT_ONLY
class Apart(FakeKit):

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)

    def suite(self, name, tests, body):
        super().suite(name, tests, body)
        text = self.read("suites/%s.py" % name).replace(sys.executable, PYTHON, 1)
        self.write("suites/%s.py" % name, text)

    def tell(self, expression, *arguments):
        """The message of a test that says what an expression comes to in its process."""
        self.suite("one", "abc", "try:\n    what = str(%s)\nexcept OSError as problem:\n"
                   "    what = type(problem).__name__\nsay('a', 'failed', what)\nrest('a')"
                   % expression)
        status, _, tests, _ = self.grade("--run-as", "nobody", *arguments)
        self.assertEqual(status, 0, self.err)
        return tests["a"]["message"]

    def test_who_it_is(self):
        self.assertEqual(self.tell("(os.getuid(), os.geteuid(), os.getgroups())"),
                         str((NOBODY, NOBODY, [])))

    def test_the_graders_files_are_not_its_own(self):
        self.write("secret/hidden.c", "what is asked")
        account.hide(self.path("secret"))
        self.assertEqual(self.tell("open(%r).read()" % self.path("secret", "hidden.c")),
                         "PermissionError")
        self.assertEqual(self.tell("open(%r, 'w')" % self.path("out", "results.json")),
                         "PermissionError")
        self.assertEqual(self.tell("os.unlink(%r)" % self.path("build", "impl")),
                         "PermissionError")

    def test_it_cannot_end_the_grader(self):
        self.assertEqual(self.tell("os.kill(os.getppid(), 9)"), "PermissionError")

    def test_its_reports_are_heard(self):
        self.suite("one", "abc", "with open(os.environ['SIMGPU_REPORT'], 'a') as file:\n"
                   "    file.write('{\"class\": \"race\", \"title\": \"two streams\"}\\n')\n"
                   "say('a', 'failed', '', reports=open(os.environ['SIMGPU_REPORT']).read())\n"
                   "rest('a')")
        tests = self.grade("--run-as", "nobody")[2]
        self.assertEqual(tests["a"]["reports"], [{"class": "race", "title": "two streams"}])

    def test_what_it_leaves_running_is_ended(self):
        marker = self.path("marker-of-this-test")
        self.suite("one", "abc", "import subprocess\nsubprocess.Popen([sys.executable, '-c', "
                   "'import time; time.sleep(600)', %r], start_new_session=True)\n"
                   "rest()" % marker)
        self.assertEqual(self.grade("--run-as", "nobody")[2]["a"]["status"], "passed")
        self.assertEqual(processes_with(marker), [])

    def test_the_reference_is_measured_as_the_grader(self):
        self.suite("reference/one", "abc", "open(%r, 'w').write(str(os.getuid()))\nrest()"
                   % self.path("who"))
        self.tell("1")
        self.assertEqual(self.read("who"), "0")

    def test_folders_that_it_cannot_pass_are_named(self):
        os.chmod(self.folder, 0o700)
        status, _, _, document = self.grade("--run-as", "nobody")
        self.assertEqual((status, document["status"]), (3, "infrastructure"))
        self.assertRegex(document["message"], "the account nobody may not run .*suite/one.*chmod")

    # What a limit leaves too little of: ulimit's words, and what needs more.
    NEEDS = (("-v 400000", "bytearray(600 << 20)"),
             ("-n 40", "[os.pipe() for _ in range(40)]"),
             ("-f 2000", "open(os.environ['SIMGPU_REPORT'], 'w').write('x' * (4 << 20))"),
             # Processes are counted by account, and root may have as many as it likes.
             ("-u 1", "os.fork() or os._exit(0)"))

    def limited(self, limit):
        """Grades within a limit that the tests' account has, too: (exit status, document)."""
        done = run(["bash", "-c", 'ulimit %s; exec "$@"' % limit, "bash"] +
                   self.command("--run-as", "nobody", "--task", "1"), self.folder,
                   SHARDLAB_TIME_FACTOR="1")
        return done.returncode, json.loads(self.read("out/results.json"))

    def test_a_limit_of_the_account_is_no_fault_of_the_students(self):
        for limit, needed in self.NEEDS:
            with self.subTest(limit):
                body = ("try:\n    %s\nexcept (OSError, MemoryError) as problem:\n"
                        "    say('a', 'failed', 'cannot make it: %%s' %% problem)\n"
                        "rest('a' if told else '')" % needed)
                self.suite("one", "abc", body)
                self.suite("reference/one", "abc", "rest()")
                status, document = self.limited(limit)
                self.assertEqual((status, document["status"], document["score"]), (0, "graded", 50))
                self.suite("reference/one", "abc", "if os.getuid():\n    " +
                           body.replace("\n", "\n    ") + "\nelse:\n    rest()")
                status, document = self.limited(limit)
                self.assertEqual((status, document["status"]), (3, "infrastructure"))
                self.assertIn("ulimit -a", document["message"])

    def test_a_platform_keeps_its_secrets(self):
        """What deliver.py lets the tests of a submission see."""
        self.course(run_as="nobody")
        self.write("tasks/1_one/hidden.c", "what is asked")
        self.suite("one", "abc", "found = []\nfor path in %r:\n    try:\n"
                   "        open(path).close()\n        found.append(path)\n"
                   "    except OSError:\n        pass\n"
                   "say('a', 'failed', ' '.join(found))\nrest('a')" % [
                       self.path(name) for name in (
                           "grader/course/course.json", "tasks/1_one/hidden.c", "reference/one.c",
                           "build/impl/reference/one.o", "Makefile")])
        run([sys.executable, self.path("grader/course/deliver.py"), "--platform", "gradescope",
             "--submission", self.path("mine"), "--results", self.path("out", "result")],
            self.folder, status=0)
        result = json.loads(self.read("out/result"))["tests"][0]
        self.assertEqual(result["score"], 0)
        self.assertIn(self.path("Makefile"), result["output"])
        self.assertNotRegex(result["output"], "course.json|hidden|reference")

    def test_an_account_that_is_none(self):
        status, _, _, document = self.grade("--run-as", "no-such-account")
        self.assertEqual((status, document["status"]), (2, "infrastructure"))
        self.assertIn("there is no account no-such-account", self.err)


if __name__ == "__main__":
    unittest.main()
