"""What confine (grader/confine.c) enforces: confined.c tries all that a submission must not do, at
each ABI of Landlock that this kernel has, as the grader's own account and as another, and what is
outside stays as it was."""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
import unittest

from helpers import ROOT, TempFolder, build_folder, read, run

import expand
import runner

CONFINE = os.path.join(build_folder(), "bin", "confine")
# What an earlier ABI, without which there is no such fence, does not hold.
FROM_6 = {"an abstract socket", "kill", "tgkill"} # with other gradings of the account

def setUpModule():
    run(["make", "-s", "-C", ROOT, CONFINE], status=0, timeout=240)


def landlock():
    return json.loads(run([CONFINE, "--report"], status=0).stdout)["landlock"]


class Confined(TempFolder):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        for name in ("outside/folder", "scratch"):
            os.makedirs(self.path(name))
        for name in ("outside", "outside/folder", "scratch"):
            os.chmod(self.path(name), 0o777) # it is no permission that is tried here
        for name in ("file", "secret.h"):
            self.write("outside/" + name, "as it was\n")
            os.chmod(self.path("outside", name), 0o666)
        self.program = self.path("confined")
        run(["cc", "-std=gnu11", "-Wall", "-Werror", "-o", self.program,
             os.path.join(ROOT, "tests", "attacks", "kernel", "confined.c")], status=0)
        os.chmod(self.program, 0o755)
        self.own = self.path("confine") # in a folder that another account may pass
        with open(CONFINE, "rb") as file, open(self.own, "wb") as copy:
            copy.write(file.read())
        os.chmod(self.own, 0o755)

    def state(self):
        """All that can be seen of what is outside."""
        found = {}
        for folder, _, names in os.walk(self.path("outside")):
            for path in [folder] + [os.path.join(folder, name) for name in names]:
                info = os.lstat(path)
                found[path] = (info.st_mode, info.st_uid, info.st_gid, info.st_size, info.st_nlink,
                               info.st_mtime_ns, info.st_ctime_ns)
        return found

    def attempt(self, abi, **account):
        """{what was tried: how it ended}"""
        process = subprocess.Popen(["sleep", "600"], cwd=self.path("outside"),
                                   stdin=subprocess.DEVNULL, **account)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0shardlab-confine-%d" % os.getpid())
        listener.listen()
        try:
            before = self.state()
            done = subprocess.run(
                [self.own, "--abi", str(abi), "--read", self.program, "--write",
                 self.path("scratch"), "--", self.program, self.path("outside"),
                 self.path("scratch"), str(process.pid), "shardlab-confine-%d" % os.getpid()],
                stdout=subprocess.PIPE, text=True, check=True, timeout=60, **account)
            if abi:
                self.assertEqual(self.state(), before)
            if abi >= 6:
                self.assertIsNone(process.poll())
        finally:
            process.kill()
            process.wait()
            listener.close()
        return dict(line.split(": ") for line in done.stdout.splitlines())

    def enforced(self, abi, **account):
        found = self.attempt(abi, **account)
        self.assertGreater(len(found), 70)
        for what, how in found.items():
            if what.startswith("may "):
                self.assertEqual(how, "done", what)
            elif not (what in FROM_6 and abi < 6):
                self.assertNotEqual(how, "done", "%s at ABI %d" % (what, abi))

    def test_nothing_is_written_at_any_abi(self):
        accounts = [{}]
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            accounts.append({"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []})
        for abi in range(landlock(), 0, -1):
            for account in accounts:
                with self.subTest(abi=abi, **account):
                    self.enforced(abi, **account)

    def test_without_landlock_it_could_be_done(self):
        """So that each line above says something: the program's attempts are right ones."""
        found = self.attempt(0)
        for what in ("read", "read by a link", "list", "open to write", "open to append",
                     "an abstract socket", "kill"):
            self.assertEqual(found[what], "done", what)

    def test_who_starts_it_gets_no_signal(self):
        heard = []
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(
            signal.SIGUSR1, lambda *_: heard.append(1)))
        for abi in range(landlock() + 1):
            done = subprocess.run(
                [self.own, "--abi", str(abi), "--read", self.program, "--write",
                 self.path("scratch"), "--", self.program, self.path("outside"),
                 self.path("scratch"), str(os.getpid()), "nobody"],
                stdout=subprocess.PIPE, text=True, check=True, timeout=60)
            self.assertRegex(done.stdout, r"\nkill: Operation not permitted\n")
        self.assertEqual(heard, [])

    def test_segments_of_memory_only_where_files_are_limited_and_without_a_key(self):
        code = ("import ctypes; c = ctypes.CDLL(None); n = c.shmget(%d, 4096, 0o1600); "
                "n < 0 or c.shmctl(n, 0, None); print(n >= 0)")
        for limit, key, want in (("unlimited", 0, "False"), ("102400", 0, "True"),
                                 ("102400", 7, "False")):
            done = run(["bash", "-c", 'ulimit -f %s; exec "$@"' % limit, "bash", CONFINE, "--read",
                        sys.base_prefix, "--", sys.executable, "-c", code % key], status=0)
            self.assertEqual(done.stdout, want + "\n", (limit, key))

    def test_what_is_open_for_real_gpus(self):
        """NCCL's sockets, and the names that CUDA's driver gives its threads."""
        for code in ("import socket; socket.socket().bind(('127.0.0.1', 0))",
                     "import threading; "
                     "open('/proc/self/task/%d/comm' % threading.get_native_id(), 'w').write('a')"):
            for options, status in (([], 1), (["--cuda"], 0)):
                done = subprocess.run([CONFINE, "--read", sys.base_prefix] + options +
                                      ["--", sys.executable, "-c", code], stderr=subprocess.PIPE,
                                      check=False)
                self.assertEqual(done.returncode, status, done.stderr)

    def test_the_kit_in_a_folder_of_the_system_is_left_out(self):
        """A kit may be installed in /usr, which all programs read."""
        kit = tempfile.mkdtemp(dir="/usr/local/lib" if os.access("/usr/local/lib", os.W_OK)
                               else self.skipTest("cannot write in /usr/local/lib"))
        self.addCleanup(shutil.rmtree, kit)
        with open(os.path.join(kit, "a"), "w", encoding="ascii"):
            pass
        for options, status in (([], 0), (["--without", kit], 1)):
            done = subprocess.run([CONFINE] + options + ["--", "cat", os.path.join(kit, "a")],
                                  stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, status, done.stderr)

    def test_a_program_that_cannot_be_run(self):
        verdict = None
        caps = runner.Caps(confinement=types.SimpleNamespace(
            words=lambda scratch, program: [CONFINE, "--write", scratch, "--"]))
        with self.assertRaisesRegex(runner.CannotRun, "outside/file cannot be started: Permission"):
            verdict = runner.run_tests([self.path("outside", "file")], ["a"], 5, caps)
        self.assertIsNone(verdict)


class Compiled(TempFolder):
    """What a compilation may read."""

    def compiled(self, text):
        self.write("mine/a.c", text)
        return expand.Expansion(
            ["cc", "-std=gnu11", "-Iinclude", "-Isimgpu/include", "-Igpulog/include", "-c",
             "mine/a.c"], "mine/a.c", self.path("mine"), CONFINE)

    def test_it_reads_headers_and_its_own_folder(self):
        self.write("mine/own.h", "int own;\n")
        made = self.compiled('#include <stdio.h>\n#include "fsdp.h"\n#include "own.h"\n')
        self.assertEqual((made.failed, made.wrong), (False, ""), made.output)

    def test_it_reads_no_other_file_of_the_kit(self):
        line = "Status fsdp_reshard"
        self.assertIn(line, read(ROOT, "reference", "forward.c"))
        for path in ("../reference/forward.c", os.path.join(ROOT, "reference", "forward.c"),
                     "../tasks/4_backward/tests.c", "../tests/support/harness.h", "../README.md"):
            for head in ("", "#define TRY(call) _Pragma(\"GCC error #call\")\n",
                         "#define Status _Pragma(\"message\") #error\n"):
                made = self.compiled('%s#include "%s"\n' % (head, path))
                self.assertTrue(made.failed)
                self.assertIn("includes", made.wrong)
                self.assertNotIn(line, made.output)
                self.assertEqual(made.text, b"")



if __name__ == "__main__":
    unittest.main()
