"""setup.sh on machines made of a PATH, a compiler and a folder of headers: what it looks for,
installs, says and writes for make.

apt-get, dnf, zypper, pacman, apt-cache, sudo and id are small scripts that write down how they were
called; a manager "installs" by making the files that the compiler looks for. The compiler is a
script, too: it knows a library where its file is there, and a function where the file names it. The
last class asks this machine's own.
"""

import os
import shutil
import unittest
from types import SimpleNamespace

from helpers import GRADER, TempFolder, run

import confinement

PROGRAMS = {"cc": "gcc", "make": "make", "pkg-config": "pkg-config", "python3": "python3"}
HEADERS = {"stdio.h": "libc6-dev", "cmocka.h": "libcmocka-dev", "dnnl.h": "libdnnl-dev",
           "elfutils/libdw.h": "libdw-dev", "jansson.h": "libjansson-dev",
           "seccomp.h": "libseccomp-dev"}
# What the other systems call them, in the order of PROGRAMS and HEADERS; and the command to type.
ELSEWHERE = {
    "dnf": ("gcc make pkgconf-pkg-config python3 glibc-devel libcmocka-devel onednn-devel "
            "elfutils-devel jansson-devel libseccomp-devel", "dnf install -y "),
    "zypper": ("gcc make pkg-config python3 glibc-devel libcmocka-devel onednn-devel libdw-devel "
               "libjansson-devel libseccomp-devel", "zypper install -y "),
    "pacman": ("gcc make pkgconf python glibc cmocka onednn libelf jansson libseccomp",
               "pacman -Syu --needed ")}
TOOLS = ("cat", "cksum", "env", "head", "mktemp", "mv", "rm", "tail", "touch", "tr", "mkdir",
         "chmod", "cp", "dirname", "grep", "sh", "sleep")

# Links what is there: of the BLAS that a cblas.h belongs to it knows by what the file says.
COMPILER = '''#!/bin/sh
echo "cc $*" >>"$LOG.cc"
[ -e "$STATE/old_cc" ] && { echo "cc: error: unrecognized option" >&2; exit 1; }
fail() { echo "program.c:1:1: $1" >&2; exit 1; }
for word in "$@"; do
    case $word in
    --version) echo "cc (made up) 1.0"; exit 0 ;;
    -print-file-name=libdnnl.so) echo "$INC/dnnl.h"; exit 0 ;;
    -print-file-name=*) echo "${word#*=}"; exit 0 ;;
    esac
done
[ -f "$INC/stdio.h" ] || fail "fatal error: stdio.h: No such file or directory"
for word in "$@"; do
    case $word in
    -lcmocka) [ -f "$INC/cmocka.h" ] || fail "fatal error: cmocka.h: No such file or directory" ;;
    -ldw) [ -f "$INC/elfutils/libdw.h" ] || fail "error: cannot find -ldw" ;;
    -ljansson) [ -f "$INC/jansson.h" ] || fail "error: cannot find -ljansson" ;;
    -lseccomp) [ -f "$INC/seccomp.h" ] || fail "error: cannot find -lseccomp" ;;
    -ldnnl) [ -f "$INC/dnnl.h" ] || fail "fatal error: dnnl.h: No such file or directory" ;;
    -lopenblas) grep -q openblas_set_num_threads "$INC/cblas.h" 2>/dev/null ||
        fail "error: cannot find -lopenblas" ;;
    esac
done
exit 0
'''
MANAGER = '''#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
[ -e "$STATE/slow" ] && sleep 6
case " $* " in
*" info "* | *" search "* | *" -Si "*)
    case " $* " in *onednn*) [ ! -e "$STATE/no_dnnl" ] ;; esac
    exit ;;
*" update "*) touch "$STATE/updated"; exit 0 ;;
esac
[ -e "$STATE/needs_update" ] && [ ! -e "$STATE/updated" ] && { echo "E: no such thing"; exit 100; }
[ -e "$STATE/broken" ] && { echo "E: the mirror is on fire"; exit 100; }
for word in "$@"; do
    case $word in
    gcc) cp "$STATE/cc" "$BIN/cc" ;;
    g++|make) cp "$STATE/true" "$BIN/$word" ;;
    pkg*) cp "$STATE/true" "$BIN/pkg-config" ;;
    python|python3) cp "$STATE/true" "$BIN/python3" ;;
    libc6-dev|glibc*) touch "$INC/stdio.h" ;;
    *cmocka*) touch "$INC/cmocka.h" ;;
    libdnnl-dev|onednn*) touch "$INC/dnnl.h" ;;
    *openblas*) echo openblas_set_num_threads >"$INC/cblas.h" ;;
    *jansson*) touch "$INC/jansson.h" ;;
    *seccomp*) touch "$INC/seccomp.h" ;;
    libdw-*|elfutils*|libelf) mkdir -p "$INC/elfutils"; touch "$INC/elfutils/libdw.h" ;;
    esac
done
'''
APT_CACHE = '''#!/bin/sh
[ -e "$STATE/needs_update" ] && [ ! -e "$STATE/updated" ] && exit 100
[ -e "$STATE/no_dnnl" ] && [ "$2" = libdnnl-dev ] && exit 100
exit 0
'''


class Machine(TempFolder):
    """A machine that is made up, to which setup.sh is called."""

    def setUp(self):
        super().setUp()
        for folder in ("bin", "include/elfutils", "state"):
            os.makedirs(self.path(folder))
        self.program("true", "#!/bin/sh\nexit 0\n", "state")
        self.program("cc", COMPILER, "state")
        for tool in TOOLS:
            real = next(os.path.join(d, tool) for d in ("/usr/bin", "/bin")
                        if os.path.exists(os.path.join(d, tool)))
            os.symlink(real, self.path("bin", tool))
        self.user(0)

    def program(self, name, text, folder="bin"):
        self.write("%s/%s" % (folder, name), text, 0o755)

    def user(self, number):
        self.program("id", "#!/bin/sh\necho %d\n" % number)

    def everything(self, but=(), apt=True):
        for name in PROGRAMS:
            if name not in but:
                self.program(name, COMPILER if name == "cc" else "#!/bin/sh\nexit 0\n")
        for name in HEADERS:
            if name not in but:
                self.write("include/" + name, "")
        if apt:
            self.apt()

    def apt(self):
        self.program("apt-get", MANAGER)
        self.program("apt-cache", APT_CACHE)

    def state(self, name):
        self.write("state/" + name, "")

    def call(self, status=None, **more):
        environment = {"PATH": self.path("bin"), "LOG": self.path("log"),
                       "STATE": self.path("state"), "BIN": self.path("bin"),
                       "INC": self.path("include")}
        return run(["/bin/sh", os.path.join(GRADER, "setup.sh")], status=status,
                   environment={**environment, **more})

    def log(self):
        return self.read("log") if os.path.exists(self.path("log")) else ""


class Setup(Machine):
    def test_nothing_is_missing(self):
        self.everything()
        done = self.call()
        self.assertEqual((done.returncode, done.stdout, done.stderr, self.log()), (0, "", "", ""))

    def test_each_missing_thing_is_installed_by_its_package(self):
        for name, package in list(PROGRAMS.items()) + list(HEADERS.items()):
            with self.subTest(missing=name):
                self.doCleanups()
                self.setUp()
                self.everything(but=(name,))
                done = self.call(0)
                installs = [line for line in self.log().splitlines() if " install " in line]
                self.assertEqual(len(installs), 1)
                if package in ("gcc", "libc6-dev"): # without it nothing can be linked to look
                    self.assertIn(" --no-install-recommends %s " % package, installs[0])
                else:
                    self.assertTrue(installs[0].endswith("--no-install-recommends " + package),
                                    installs[0])
                self.assertRegex(done.stdout, r"(?m)^  %s +\w.*" % package)

    def test_a_fresh_machine(self):
        self.program("make", "#!/bin/sh\nexit 0\n")
        self.apt()
        self.state("needs_update")
        self.call(0)
        log = self.log().splitlines()
        self.assertEqual([" update" in line for line in log], [True, False])
        for package in ("gcc", "libc6-dev", "pkg-config", "python3", "libcmocka-dev", "libdnnl-dev",
                        "libdw-dev", "libjansson-dev", "libseccomp-dev"):
            self.assertIn(" %s" % package, log[1] + " ")
        self.assertEqual(self.call().stdout, "")

    def test_openblas_where_there_is_no_onednn(self):
        self.everything(but=("dnnl.h",))
        self.state("no_dnnl")
        self.call(0)
        self.assertIn(" libopenblas-dev", self.log())
        self.assertNotIn("install --no-install-recommends libdnnl-dev", self.log())

    def test_openblas_that_is_there_will_do(self):
        self.everything(but=("dnnl.h",), apt=False)
        self.write("include/cblas.h", "openblas_set_num_threads")
        self.call(0)
        self.call(1, BLAS="dnnl")

    def test_other_backends_want_other_things(self):
        self.everything(but=("dnnl.h",))
        self.call(0, BACKEND="cuda")
        self.assertRegex(self.log(), r"(?m)--no-install-recommends g\+\+$")
        self.assertEqual(self.call(BACKEND="cuda").stdout, "")
        self.call(0, BACKEND="emulated-cuda")
        self.assertRegex(self.log(), r"(?m)--no-install-recommends libdnnl-dev$")

    def test_no_install_names_the_command(self):
        self.everything(but=("cmocka.h", "elfutils/libdw.h"))
        done = self.call(1, NO_INSTALL="1")
        self.assertIn("\n  apt-get update && apt-get install -y --no-install-recommends "
                      "libcmocka-dev libdw-dev\n", done.stderr)
        self.assertIn("unit test library", done.stderr)
        self.assertEqual(self.log(), "")

    def test_no_manager_that_it_knows(self):
        self.everything(but=("cmocka.h",), apt=False)
        done = self.call(1)
        self.assertIn("no apt-get, dnf, zypper or pacman", done.stderr)
        self.assertIn("install -y --no-install-recommends libcmocka-dev", done.stderr)
        self.assertIn("\n  conda install -c conda-forge cmocka\n", done.stderr)

    def test_the_managers_of_other_systems(self):
        for manager, (names, typed) in ELSEWHERE.items():
            with self.subTest(manager):
                self.doCleanups()
                self.setUp()
                self.program("make", "#!/bin/sh\nexit 0\n")
                self.program(manager, MANAGER)
                want = set(names.split()) - {"make"}
                told = self.call(1, NO_INSTALL="1").stderr.splitlines()[-1]
                self.assertTrue(told.startswith("  " + typed), told)
                self.assertEqual(set(told.replace(typed, "").split()), want)
                self.call(0)
                line = self.log().splitlines()[-1]
                self.assertEqual({word for word in line.split() if word in want}, want)
                self.assertEqual(self.call().stdout, "")
                os.unlink(self.path("include/dnnl.h")) # and where there is no oneDNN
                self.state("no_dnnl")
                self.assertIn("libopenblas-dev", self.call(0).stdout)
                self.assertRegex(self.log().splitlines()[-1], " [a-z]*openblas[-_a-z]*$")

    def test_without_root_it_names_a_way(self):
        self.everything(but=("cmocka.h", "elfutils/libdw.h", "dnnl.h"))
        self.user(1000)
        told = self.call(1).stderr
        self.assertIn("\n  conda install -c conda-forge cmocka elfutils onednn\n", told)
        self.assertIn("\n  export PKG_CONFIG_PATH=FOLDER/lib/pkgconfig\n", told)

    def test_a_network_that_swallows_packets(self):
        """It is said what is waited for, and no server is waited for long."""
        self.everything(but=("cmocka.h",))
        self.state("slow")
        done = self.call(0)
        self.assertRegex(done.stdout, "\nsetup: apt-get has taken 5 s; it says: nothing yet\n")
        for option in ("http::Timeout=15", "https::Timeout=15", "Retries=1"):
            self.assertIn(" -o Acquire::%s " % option, self.log())

    def test_neither_root_nor_sudo(self):
        self.everything(but=("cmocka.h",))
        self.user(1000)
        done = self.call(1)
        self.assertIn("no sudo", done.stderr)
        self.assertIn("  sudo apt-get update && sudo apt-get install", done.stderr)
        self.assertEqual(self.log(), "")

    def test_sudo_does_it(self):
        self.everything(but=("cmocka.h",))
        self.user(1000)
        self.program("sudo", '#!/bin/sh\necho "sudo $*" >>"$LOG"\n'
                             '[ "$1" = -n ] && shift\nexec "$@"\n')
        self.program("true", "#!/bin/sh\nexit 0\n")
        self.call(0)
        self.assertIn("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get", self.log())

    def test_sudo_that_refuses(self):
        self.everything(but=("cmocka.h",))
        self.user(1000)
        self.program("sudo", "#!/bin/sh\nexit 1\n")
        done = self.call(1)
        self.assertIn("sudo refused", done.stderr)

    def test_old_lists_are_renewed_once(self):
        self.everything(but=("cmocka.h",))
        self.program("apt-cache", "#!/bin/sh\nexit 0\n")
        self.state("needs_update")
        self.call(0)
        self.assertEqual([" update" in line for line in self.log().splitlines()],
                         [False, True, False])

    def test_a_failing_install_shows_why(self):
        self.everything(but=("cmocka.h",))
        self.state("broken")
        done = self.call(1)
        self.assertIn("the mirror is on fire", done.stderr)

    def test_it_leaves_no_file_behind(self):
        self.everything(but=("cmocka.h",))
        os.makedirs(self.path("tmp"))
        self.call(0, TMPDIR=self.path("tmp"))
        self.assertEqual(os.listdir(self.path("tmp")), [])


    def test_the_header_of_a_reference_blas_is_not_openblas(self):
        self.everything(but=("dnnl.h",))
        self.write("include/cblas.h", "cblas_sgemm")
        self.call(0)
        self.assertTrue(self.log().endswith("--no-install-recommends libdnnl-dev\n"), self.log())
        self.assertEqual(self.call().stdout, "")
        self.call(1, BLAS="openblas", NO_INSTALL="1")

    def test_a_compiler_that_fails_for_a_reason_of_its_own(self):
        self.everything()
        self.state("old_cc")
        done = self.call()
        self.assertEqual((done.returncode, done.stdout, self.log()), (1, "", ""))
        self.assertEqual(done.stderr, "setup: cc cannot build the simplest program: cc: error: "
                         "unrecognized option\n")

    OLD = "#!/bin/sh\n[ -e \"$STATE/new\" ] && exit 0\necho %s\nexit %d\n"

    def test_an_old_python_is_named_in_one_line(self):
        self.everything()
        self.program("python3", self.OLD % ("3.8.10", 1))
        done = self.call(CONFIG=self.path("build/config.mk"))
        self.assertEqual((done.returncode, done.stdout, self.log()), (1, "", ""))
        self.assertEqual(done.stderr, "setup: python3 is Python 3.8.10, and the grader needs 3.9 "
                         "or later: install a newer one and name it, as in: make grade "
                         "PYTHON=python3.11\n")
        self.assertFalse(os.path.exists(self.path("build")))
        self.program("python3.12", "#!/bin/sh\nexit 0\n")
        self.call(0, PYTHON="python3.12")
        self.state("new")
        self.call(0)

    def test_a_python_that_does_not_start(self):
        self.everything(apt=False)
        self.program("python3", self.OLD % ("'no such file: libpython'", 127))
        done = self.call(1)
        self.assertEqual(done.stderr, "setup: python3 cannot be started: no such file: libpython\n")


class Config(Machine):
    """The file that make includes."""

    def setUp(self):
        super().setUp()
        self.everything(apt=False)

    def values(self):
        return dict(line.split(" := ") if " := " in line else (line.split(" :=")[0], "")
                    for line in self.read("build/config.mk").splitlines()
                    if not line.startswith("#"))

    def call(self, status=None, **more):
        return super().call(status, **{"CONFIG": self.path("build/config.mk"), **more})

    def compiled(self):
        """How often the compiler was called since the last time."""
        path = self.path("log.cc")
        count = len(self.read("log.cc").splitlines()) if os.path.exists(path) else 0
        if count:
            os.unlink(path)
        return count

    def test_what_it_says(self):
        self.call(0)
        values = self.values()
        self.assertEqual(sorted(values),
                         ["BLAS", "BLAS_DEFS", "BLAS_LIBS", "COMPILER", "LIBRARY_FOLDERS",
                          "LIBRARY_INCLUDES", "PROCESSOR", "VECTOR_FLAGS"])
        self.assertEqual((values["BLAS"], values["BLAS_DEFS"], values["BLAS_LIBS"],
                          values["COMPILER"]),
                         ("dnnl", "-DSIMGPU_DNNL", "-ldnnl", "cc (made up) 1.0"))
        self.assertRegex(values["PROCESSOR"], r"^\d+$")
        self.assertEqual(os.listdir(self.path("build")), ["config.mk"])

    def test_openblas(self):
        self.write("include/cblas.h", "openblas_set_num_threads")
        self.program("pkg-config", "#!/bin/sh\n[ \"$1\" = --libs ] && echo '-L/opt/o -lopenblas ' "
                                   "|| echo -I/opt/o/include\n")
        self.call(0, BLAS="openblas")
        values = self.values()
        self.assertEqual((values["BLAS"], values["BLAS_DEFS"], values["BLAS_LIBS"].strip()),
                         ("openblas", "-I/opt/o/include",
                          "-L/opt/o -lopenblas  -Wl,--disable-new-dtags,-rpath,/opt/o"))

    def test_it_looks_again_only_where_something_changed(self):
        self.call(0)
        self.assertGreater(self.compiled(), 0)
        before = self.values()
        self.call(0)
        self.assertEqual(self.compiled(), 0)
        self.program("gcc-99", COMPILER)
        for change in ({"CC": "gcc-99"}, {"CFLAGS": "-Og"}, {"LDFLAGS": "-s"}, {"BLAS": "dnnl"},
                       {"LIBRARY_PATH": "/opt/lib"}):
            with self.subTest(change):
                self.call(0, **change)
                self.assertGreater(self.compiled(), 0)
                self.call(0, **change)
                self.assertEqual(self.compiled(), 0)
                self.assertEqual(self.values()["BLAS"], "dnnl")
        self.call(0)
        self.assertEqual(self.values(), before)

    def test_of_the_path_only_the_tools_that_it_leads_to_count(self):
        self.call(0)
        self.assertGreater(self.compiled(), 0)
        os.makedirs(self.path("other"))
        path = {"PATH": self.path("other") + ":" + self.path("bin")}
        self.call(0, **path)
        self.assertEqual(self.compiled(), 0)
        self.write("other/cc", COMPILER, 0o755)
        self.call(0, **path)
        self.assertGreater(self.compiled(), 0)

    def test_a_library_that_is_gone_is_missed(self):
        self.call(0)
        os.unlink(self.path("include/dnnl.h"))
        done = self.call(1, NO_INSTALL="1")
        self.assertIn("libdnnl-dev", done.stderr)
        self.assertIn("the compiler says: ", done.stderr)
        self.write("include/cblas.h", "openblas_set_num_threads")
        self.call(0)
        self.assertEqual(self.values()["BLAS"], "openblas")

    def test_another_processor(self):
        self.call(0)
        old = self.values()["PROCESSOR"]
        lines = self.read("build/config.mk").splitlines(True)
        lines[1] = lines[1].rstrip("\n") + " amx_tile\n" # as another machine would have written it
        lines[-1] = "PROCESSOR := 1\n"
        self.write("build/config.mk", "".join(lines))
        self.call(0)
        self.assertEqual(self.values()["PROCESSOR"], old)

    def test_a_damaged_file_is_written_anew(self):
        for text in ("", "BLAS := ", "#\n#\n#\n"):
            self.write("build/config.mk", text)
            self.call(0)
            self.assertEqual(self.values()["BLAS"], "dnnl")


@unittest.skipUnless(shutil.which("cc"), "there is no cc")
class RealCompiler(TempFolder):
    """With this machine's compiler and a BLAS of our own making."""

    HEADER = ("enum { CblasColMajor = 102, CblasNoTrans = 111 };\n"
              "void cblas_sgemm(int, int, int, int, int, int, float, const float *, int,\n"
              "                 const float *, int, float, float *, int);\n")
    SOURCE = ("void openblas_set_num_threads(int n) { (void)n; }\n"
              "void cblas_sgemm(void) {}\n")

    def look(self, **more):
        environment = dict(os.environ, BLAS="openblas", NO_INSTALL="1",
                           CPATH=self.path("include"), LIBRARY_PATH=self.path("lib"),
                           CONFIG=self.path("build/config.mk"),
                           PKG_CONFIG_LIBDIR=self.path("none"))
        for name in ("CC", "CFLAGS", "LDFLAGS", "BACKEND", "PKG_CONFIG_PATH", "CONDA_PREFIX"):
            environment.pop(name, None)
        environment.update(more)
        return run(["sh", os.path.join(GRADER, "setup.sh")], environment=environment)

    def test_a_blas_counts_when_a_call_of_it_links(self):
        os.makedirs(self.path("lib"))
        self.write("include/cblas.h", self.HEADER)
        self.assertIn("libopenblas-dev", self.look().stderr) # the header of a reference BLAS
        self.write("include/cblas.h", self.HEADER + "void openblas_set_num_threads(int);\n")
        done = self.look()                                   # OpenBLAS's, and no library
        if done.returncode == 0:
            self.skipTest("OpenBLAS is installed on this machine")
        self.assertIn("libopenblas-dev", done.stderr)
        self.write("blas.c", self.SOURCE)
        run(["cc", "-shared", "-fPIC", self.path("blas.c"), "-o", self.path("lib/libopenblas.so")],
            status=0)
        done = self.look()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("\nBLAS := openblas\n", self.read("build/config.mk"))
        os.unlink(self.path("lib/libopenblas.so"))
        self.assertIn("libopenblas-dev", self.look().stderr)

    def test_libraries_in_a_folder_of_ones_own(self):
        """That of a conda environment, and one that pkg-config finds."""
        place = self.path("own")
        os.makedirs(place + "/lib/pkgconfig")
        self.write("own/include/cblas.h", self.HEADER + "void openblas_set_num_threads(int);\n")
        self.write("blas.c", self.SOURCE)
        run(["cc", "-shared", "-fPIC", self.path("blas.c"), "-o", place + "/lib/libopenblas.so"],
            status=0)
        if self.look().returncode == 0:
            self.skipTest("OpenBLAS is installed on this machine")
        self.check_folder(CONDA_PREFIX=place)
        # Of a library that the system has, too.
        self.write("own/lib/pkgconfig/jansson.pc", "libdir=%s/lib\nincludedir=%s/include\nName: j\n"
                   "Description: j\nVersion: 1\n" % (place, place))
        self.check_folder(PKG_CONFIG_LIBDIR=place + "/lib/pkgconfig")
        os.rename(place, self.path("moved"))
        self.assertIn("libopenblas-dev", self.look(CONDA_PREFIX=place).stderr)

    def check_folder(self, **more):
        done = self.look(**more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        config = self.read("build/config.mk")
        place = self.path("own")
        self.assertIn("\nLIBRARY_INCLUDES := -isystem %s/include\n" % place, config)
        self.assertIn("\nLIBRARY_FOLDERS := -L%s/lib -Wl,--disable-new-dtags,-rpath,%s/lib\n"
                      % (place, place), config)
        # What is graded may read them when it runs.
        self.assertEqual(confinement.libraries(SimpleNamespace(build=self.path("build"))),
                         [place + "/lib"])


if __name__ == "__main__":
    unittest.main()
