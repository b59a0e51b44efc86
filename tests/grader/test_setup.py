"""setup.sh on machines made of a PATH and a folder of headers: what it looks for, installs and
says.

apt-get, apt-cache, sudo and id are small scripts that write down how they were called; apt-get
"installs" by making the files that setup.sh looks for.
"""

import os
import subprocess
import unittest

from helpers import GRADER, TempFolder

PROGRAMS = {"cc": "gcc", "make": "make", "pkg-config": "pkg-config", "python3": "python3"}
HEADERS = {"stdio.h": "libc6-dev", "cmocka.h": "libcmocka-dev", "dnnl.h": "libdnnl-dev",
           "elfutils/libdw.h": "libdw-dev"}
TOOLS = ("cat", "env", "mktemp", "rm", "tail", "touch", "mkdir", "chmod", "cp", "dirname", "grep")

APT_GET = '''#!/bin/sh
echo "apt-get $*" >>"$LOG"
case " $* " in
*" update "*) touch "$STATE/updated"; exit 0 ;;
*" install "*) ;;
esac
[ -e "$STATE/needs_update" ] && [ ! -e "$STATE/updated" ] && { echo "E: no such thing"; exit 100; }
[ -e "$STATE/broken" ] && { echo "E: the mirror is on fire"; exit 100; }
for word in "$@"; do
    case $word in
    gcc) cp "$STATE/true" "$BIN/cc" ;;
    g++|make|pkg-config|python3) cp "$STATE/true" "$BIN/$word" ;;
    libc6-dev) touch "$INC/stdio.h" ;;
    libcmocka-dev) touch "$INC/cmocka.h" ;;
    libdnnl-dev) touch "$INC/dnnl.h" ;;
    libopenblas-dev) touch "$INC/cblas.h" ;;
    libdw-dev) mkdir -p "$INC/elfutils"; touch "$INC/elfutils/libdw.h" ;;
    esac
done
'''
APT_CACHE = '''#!/bin/sh
[ -e "$STATE/needs_update" ] && [ ! -e "$STATE/updated" ] && exit 100
[ -e "$STATE/no_dnnl" ] && [ "$2" = libdnnl-dev ] && exit 100
exit 0
'''


class Setup(TempFolder):
    def setUp(self):
        super().setUp()
        for folder in ("bin", "include/elfutils", "state"):
            os.makedirs(self.path(folder))
        self.program("true", "#!/bin/sh\nexit 0\n", "state")
        for tool in TOOLS:
            real = next(os.path.join(d, tool) for d in ("/usr/bin", "/bin")
                        if os.path.exists(os.path.join(d, tool)))
            os.symlink(real, self.path("bin", tool))
        self.user(0)

    def program(self, name, text, folder="bin"):
        self.write("%s/%s" % (folder, name), text, 0o755)

    def user(self, number):
        self.program("id", "#!/bin/sh\necho %d\n" % number)

    def everything(self, but=()):
        for name in PROGRAMS:
            if name not in but:
                self.program(name, "#!/bin/sh\nexit 0\n")
        for name in HEADERS:
            if name not in but:
                self.write("include/" + name, "")

    def apt(self):
        self.program("apt-get", APT_GET)
        self.program("apt-cache", APT_CACHE)

    def state(self, name):
        self.write("state/" + name, "")

    def call(self, **more):
        environment = {"PATH": self.path("bin"), "SETUP_INCLUDE_DIRS": self.path("include"),
                       "LOG": self.path("log"), "STATE": self.path("state"),
                       "BIN": self.path("bin"), "INC": self.path("include")}
        environment.update(more)
        return subprocess.run(["/bin/sh", os.path.join(GRADER, "setup.sh")], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                              check=False)

    def log(self):
        return self.read("log") if os.path.exists(self.path("log")) else ""

    def test_nothing_is_missing(self):
        self.everything()
        self.apt()
        done = self.call()
        self.assertEqual((done.returncode, done.stdout, done.stderr, self.log()), (0, "", "", ""))

    def test_each_missing_thing_is_installed_by_its_package(self):
        for name, package in list(PROGRAMS.items()) + list(HEADERS.items()):
            with self.subTest(missing=name):
                self.doCleanups()
                self.setUp()
                self.everything(but=(name,))
                self.apt()
                done = self.call()
                self.assertEqual(done.returncode, 0, done.stderr)
                installs = [line for line in self.log().splitlines() if " install " in line]
                self.assertEqual(len(installs), 1)
                self.assertTrue(installs[0].endswith("--no-install-recommends " + package),
                                installs[0])
                self.assertRegex(done.stdout, r"(?m)^  %s +\w.*" % package)

    def test_a_fresh_machine(self):
        self.program("make", "#!/bin/sh\nexit 0\n")
        self.apt()
        self.state("needs_update")
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        log = self.log().splitlines()
        self.assertEqual([" update" in line for line in log], [True, False])
        for package in ("gcc", "libc6-dev", "pkg-config", "python3", "libcmocka-dev", "libdnnl-dev",
                        "libdw-dev"):
            self.assertIn(" %s" % package, log[1] + " ")
        self.assertEqual(self.call().stdout, "")

    def test_openblas_where_there_is_no_onednn(self):
        self.everything(but=("dnnl.h",))
        self.apt()
        self.state("no_dnnl")
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" libopenblas-dev", self.log())
        self.assertNotIn("install --no-install-recommends libdnnl-dev", self.log())

    def test_openblas_that_is_there_will_do(self):
        self.everything(but=("dnnl.h",))
        self.write("include/openblas-pthread/cblas.h", "")
        self.assertEqual(self.call().returncode, 0)
        self.assertEqual(self.call(BLAS="dnnl").returncode, 1)

    def test_other_backends_want_other_things(self):
        self.everything(but=("dnnl.h",))
        self.apt()
        done = self.call(BACKEND="cuda")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(self.log(), r"(?m)--no-install-recommends g\+\+$")
        self.assertEqual(self.call(BACKEND="cuda").stdout, "")
        self.assertEqual(self.call(BACKEND="rehearsal").returncode, 0)
        self.assertRegex(self.log(), r"(?m)--no-install-recommends libdnnl-dev$")

    def test_no_install_names_the_command(self):
        self.everything(but=("cmocka.h", "elfutils/libdw.h"))
        self.apt()
        done = self.call(NO_INSTALL="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("\n  apt-get update && apt-get install -y --no-install-recommends "
                      "libcmocka-dev libdw-dev\n", done.stderr)
        self.assertIn("unit test library", done.stderr)
        self.assertEqual(self.log(), "")

    def test_no_apt_get(self):
        self.everything(but=("cmocka.h",))
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no apt-get", done.stderr)
        self.assertIn("install -y --no-install-recommends libcmocka-dev", done.stderr)

    def test_neither_root_nor_sudo(self):
        self.everything(but=("cmocka.h",))
        self.apt()
        self.user(1000)
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no sudo", done.stderr)
        self.assertIn("  sudo apt-get update && sudo apt-get install", done.stderr)
        self.assertEqual(self.log(), "")

    def test_sudo_does_it(self):
        self.everything(but=("cmocka.h",))
        self.apt()
        self.user(1000)
        self.program("sudo", '#!/bin/sh\necho "sudo $*" >>"$LOG"\n'
                             '[ "$1" = -n ] && shift\nexec "$@"\n')
        self.program("true", "#!/bin/sh\nexit 0\n")
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get", self.log())

    def test_sudo_that_refuses(self):
        self.everything(but=("cmocka.h",))
        self.apt()
        self.user(1000)
        self.program("sudo", "#!/bin/sh\nexit 1\n")
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertIn("sudo refused", done.stderr)

    def test_old_lists_are_renewed_once(self):
        self.everything(but=("cmocka.h",))
        self.apt()
        self.program("apt-cache", "#!/bin/sh\nexit 0\n")
        self.state("needs_update")
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([" update" in line for line in self.log().splitlines()],
                         [False, True, False])

    def test_a_failing_install_shows_why(self):
        self.everything(but=("cmocka.h",))
        self.apt()
        self.state("broken")
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertIn("the mirror is on fire", done.stderr)

    def test_it_leaves_no_file_behind(self):
        self.everything(but=("cmocka.h",))
        self.apt()
        os.makedirs(self.path("tmp"))
        self.assertEqual(self.call(TMPDIR=self.path("tmp")).returncode, 0)
        self.assertEqual(os.listdir(self.path("tmp")), [])


if __name__ == "__main__":
    unittest.main()
