"""fresh-machine, without the machine: wrong usage, and running, failing and being interrupted in a
system of a few programs, which takes the place of the one that debootstrap would make.

The second part needs root and namespaces, and is skipped where they are not to be had.
"""

import os
import re
import shutil
import signal
import subprocess
import unittest

from helpers import (DEVTOOLS, ROOT, TempFolder, hears_ctrl_c, processes_with, read, run,
                     wait_for)

PROGRAM = os.path.join(DEVTOOLS, "fresh-machine")
HERE = os.path.exists(PROGRAM) and os.path.exists(os.path.join(ROOT, ".git"))


def can_unshare():
    return os.getuid() == 0 and run(
        ["unshare", "--mount", "--pid", "--fork", "true"]).returncode == 0


@unittest.skipUnless(HERE, "this is no clone of the kit")
class Usage(TempFolder):
    def call(self, *words, prefix=()):
        return run([*prefix, PROGRAM, *words], self.folder, FRESH_CACHE=self.path("cache"))

    def test_wrong_usage_is_told_with_the_usage(self):
        for words, told in (((), "no command was given"), (("--user",), "no command was given"),
                            (("--with",), "--with needs the name of a package"),
                            (("--with", "a b", "true"), "--with needs the name of a package"),
                            (("--suite", "stretch", "true"), "--suite needs bookworm, trixie, "
                             "bullseye, noble or jammy"),
                            (("--suite",), "--suite needs bookworm, trixie, bullseye, noble or "
                             "jammy"),
                            (("--path", "a/b", "true"), "--path needs the name of a folder"),
                            (("--path", "", "true"), "--path needs the name of a folder"),
                            (("--wiht", "x", "true"), "there is no option --wiht")):
            with self.subTest(words):
                done = self.call(*words)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertTrue(done.stderr.startswith("fresh-machine: %s\n\n" % told), done.stderr)
                self.assertIn("fresh-machine [OPTION…] COMMAND…", done.stderr)
                self.assertFalse(os.path.exists(self.path("cache")))

    def test_not_as_an_ordinary_account(self):
        prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] \
            if os.getuid() == 0 else []
        if prefix and (not shutil.which("setpriv") or ROOT.startswith("/root")):
            self.skipTest("nobody to call it as")
        done = self.call("true", prefix=prefix)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertRegex(done.stderr,
                         r"^fresh-machine: cannot make a fresh machine: this needs root")


@unittest.skipUnless(HERE and shutil.which("unshare") and can_unshare(), "this needs root")
class Running(TempFolder):
    PROGRAMS = ("sh", "env", "sleep", "cat", "touch", "ls")

    def setUp(self):
        super().setUp()
        release = dict(line.split("=", 1) for line in read("/etc/os-release").splitlines()
                       if "=" in line)
        if release.get("ID") != "debian":
            self.skipTest("this is no Debian")
        base = os.path.join("cache", release["VERSION_CODENAME"])
        for folder in ("proc", "dev", "root", "etc/apt/apt.conf.d", "etc/ssl", "bin", "tmp"):
            os.makedirs(self.path(base, folder))
        for program in self.PROGRAMS:
            real = os.path.realpath(shutil.which(program))
            shutil.copy(real, self.path(base, "bin", program))
            for library in re.findall(r"(/\S+) \(0x", run(["ldd", real], status=0).stdout):
                target = self.path(base, library[1:])
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if not os.path.exists(target):
                    shutil.copy(library, target)

    def start(self, *words, program=PROGRAM):
        return subprocess.Popen([program] + list(words), stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=dict(os.environ, FRESH_CACHE=self.path("cache")),
                                preexec_fn=hears_ctrl_c)

    def nothing_is_left(self):
        self.assertEqual([name for name in os.listdir(self.path("cache")) if "run." in name], [])
        self.assertNotIn(self.folder, read("/proc/self/mounts"))

    def test_commands_run_in_a_clone(self):
        process = self.start("--path", "my lab é", "echo \"in $PWD\"; ls", "touch /made; ls /",
                             "ls /proc")
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (0, ""))
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^fresh-machine: Debian \w+ with nothing else, as root, in "
                         r"/root/my lab é, at [0-9a-f]+$")
        for line in ("in /root/my lab é", "Makefile", "made", "self"):
            self.assertIn(line, lines)
        self.assertEqual(lines[-1], "fresh-machine: all passed")
        self.assertFalse(os.path.exists("/made"))
        self.nothing_is_left()

    def test_it_ends_with_the_first_that_fails(self):
        process = self.start("true", "sh -c 'exit 7'", "echo never")
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertNotIn("never", out)
        self.assertRegex(err,
                         r"^fresh-machine: failed with status 7 after \d+ s: sh -c 'exit 7'\n$")
        self.nothing_is_left()

    def test_interrupted_it_leaves_nothing(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(number):
                mark = "86%d" % os.getpid()
                process = self.start("sleep %s & echo started; sleep %s" % (mark, mark))
                while "started" != process.stdout.readline().strip():
                    self.assertIsNone(process.poll())
                process.send_signal(number)
                err = process.communicate(timeout=60)[1]
                self.assertEqual((process.returncode, err),
                                 (status, "fresh-machine: interrupted\n"))
                wait_for(lambda: not processes_with("sleep\0" + mark), seconds=20)
                self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
