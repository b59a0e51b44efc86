"""The Makefile on a kit in miniature: the real Makefile, setup.sh and impl_folder.sh, and sources
of a line each. What a change makes again and what not, jobs, paths that make cannot name.

The last class has the real kit: folders with odd names and mistakes that the compiler finds.
"""

import glob
import json
import os
import re
import shutil
import sys
import unittest

from helpers import ROOT, ReferenceCopy, TempFolder, build_folder, outside_make, read, run
import builder
import manifest
import runner

TASKS = [(task.name, task.folder) for task in manifest.load(ROOT)]
KIT = ("Makefile", "make", "grader/setup.sh", "grader/check_settings.sh",
       "grader/impl_folder.sh", "grader/compile_commands.py",
       "grader/files.py", "grader/expand.py", "grader/submission.py", "grader/layout.py",
       "grader/plain.py", "grader/source_text.py", "grader/confine.c", "grader/confine_calls.h",
       "simgpu/machines/texts.sh")
TOLD = re.compile(r"^  (CC|AR|LD|CP) +(\S+)$", re.MULTILINE)
ODD = ("a=b", "two  words", "a:b;c", "it's $HOME #1 100% \"x\"", "(a) [b] *?", "back\\slash", "-d",
       "~", "é")


def clean(**more):
    """An environment that no make has written to."""
    return dict(outside_make("CC", "CFLAGS", "LDFLAGS", "WERROR", "BLAS", "BACKEND", "SANITIZE",
                             "IMPL", "BUILD", "TASK", "V", "PYTHON"), **more)


@unittest.skipUnless(os.path.exists(os.path.join(ROOT, "reference")), "the reference is not here")
class Miniature(TempFolder):
    FOLDER = "kit"
    config = ""

    def setUp(self):
        super().setUp()
        self.kit = self.path(self.FOLDER)
        for name in KIT:
            os.makedirs(os.path.dirname(os.path.join(self.kit, name)), exist_ok=True)
            copy = shutil.copytree if os.path.isdir(os.path.join(ROOT, name)) else shutil.copy
            copy(os.path.join(ROOT, name), os.path.join(self.kit, name))
        for name in ("simgpu/src/blas/multiply", "simgpu/src/nccl/reduce", "simgpu/src/memory/one",
                     "gpulog/log/log", "lib/nn/layer", "lib/kernels/add", "tests/support/harness"):
            self.source(name, "int %s(void);\nint %s(void) { return 1; }\n"
                        % ((name.replace("/", "_"),) * 2))
        for name in ("lib/launch/main/launch", "tests/nn/suite"):
            self.source(name, "int main(void) { return 0; }\n")
        for folder in ("reference", "mine"):
            for task, _ in TASKS:
                self.source("%s/%s" % (folder, task),
                            "extern const char *%s;\nconst char *%s = __FILE__;\n" % (task, task))
        for _, task in TASKS:
            self.source(task + "/tests", "int main(void) { return 0; }\n")
            self.write(os.path.join(self.FOLDER, task, "task.json"), "{}")
        self.source(TASKS[-1][1] + "/together", "int main(void) { return 0; }\n")
        for folder in ("include", "simgpu/include", "gpulog/include", "build"):
            os.makedirs(os.path.join(self.kit, folder))
        self.write(os.path.join(self.FOLDER, "simgpu/machines/small.machine"), "memory 1 GiB\n")
        self.write(os.path.join(self.FOLDER, "simgpu/src/machine/machine_file.h"),
                   "typedef struct { const char *name, *text; } SimMachineText;\n")
        # What this machine has is looked for once.
        if not Miniature.config:
            self.make("deps")
            Miniature.config = self.read(os.path.join(self.FOLDER, "build/config.mk"))
        self.write(os.path.join(self.FOLDER, "build/config.mk"), Miniature.config)

    def source(self, name, text):
        self.write(os.path.join(self.FOLDER, name + ".c"), text)

    def make(self, *words, status=0, **more):
        """What make prints."""
        return run(["make", *words], self.kit, 240, status, merged=True,
                   environment=clean(**more)).stdout

    ALL = ("build/lib/libsimgpu.a", "build/lib/libshardlab.a", "build/lib/libharness.a",
           "build/bin/launch", "build/impl/reference/api.o")

    def made(self, *words, goals=ALL):
        """What was made, by its name in make's output: sources of objects, paths of the others."""
        return {name for _, name in TOLD.findall(self.make(*(words + goals)))}


class Changes(Miniature):
    EVERY_C = {"simgpu/src/blas/multiply.c", "simgpu/src/nccl/reduce.c", "simgpu/src/memory/one.c",
               "gpulog/log/log.c",
               "lib/nn/layer.c", "lib/kernels/add.c", "tests/support/harness.c",
               "lib/launch/main/launch.c", "reference/api.c"}
    VECTOR = {"simgpu/src/nccl/reduce.c", "simgpu/src/blas/multiply.c", "lib/kernels/add.c"}

    def edit(self, name, old, new):
        text = self.read(os.path.join(self.FOLDER, name))
        self.assertIn(old, text)
        self.write(os.path.join(self.FOLDER, name), text.replace(old, new))

    def sources(self, *words):
        return {name for name in self.made(*words) if name.endswith(".c")}

    def test_a_flag_or_a_compiler_makes_every_object_anew_and_once(self):
        self.assertEqual(self.sources(), self.EVERY_C)
        self.assertEqual(self.made(), set())
        self.write("bin/gcc-99", '#!/bin/sh\nexec cc "$@"\n', 0o755)
        for words in (("CFLAGS=-O1",), ("WERROR=1",), ("CC=" + self.path("bin/gcc-99"),), ()):
            with self.subTest(words):
                self.assertEqual(self.sources(*words), self.EVERY_C)
                self.assertEqual(self.made(*words), set())

    def test_what_passed_as_strict_is_as_good_without(self):
        self.made("WERROR=1")
        self.assertEqual(self.made(), set())
        self.assertEqual(self.sources("CFLAGS=-O1"), self.EVERY_C)
        self.assertEqual(self.sources("CFLAGS=-O1", "WERROR=1"), self.EVERY_C)

    def test_a_flag_in_the_makefile(self):
        self.made()
        self.edit("make/flags.mk", "VECTOR    := -O2", "VECTOR    := -O3")
        self.assertEqual(self.sources(), self.VECTOR)
        self.edit("Makefile", "\n.PHONY:", "\n# A sentence.\n.PHONY:")
        self.assertEqual(self.made(), set())
        self.edit("make/flags.mk", "-fno-omit-frame-pointer", "-fomit-frame-pointer")
        self.assertEqual(self.sources(), self.EVERY_C)

    def test_what_is_compiled_with_less(self):
        """Where CFLAGS is given, it alone says how much is optimised and what a debugger finds."""
        def words(name, *more):
            shown = self.make("-n", "V=1", "IMPL=skeleton", "build/obj/%s.o" % name, *more)
            line = next(line for line in shown.splitlines() if " -c %s.c " % name in line)
            return [word for word in line.split() if re.match("-[gO]", word)]
        self.assertEqual(words("lib/kernels/add"), ["-g", "-g1", "-O2", "-O2"])
        self.assertEqual(words("lib/nn/layer"), ["-g", "-g1", "-O2", "-O1"])
        self.assertEqual(words("gpulog/log/log"), ["-g", "-g1", "-O2", "-O1"])
        self.assertEqual(words("tests/support/harness"), ["-g", "-g1", "-O2", "-O0"])
        self.assertEqual(words("tasks/6_api/tests"), ["-g", "-O2", "-O0"])
        for name in ("simgpu/src/memory/one", "lib/nn/layer", "tests/support/harness",
                     "tasks/6_api/tests"):
            self.assertEqual(words(name, "CFLAGS=-O0 -g3"), ["-g", "-O0", "-g3"])

    def test_another_blas(self):
        self.made()
        self.edit("build/config.mk", "BLAS_DEFS := ", "BLAS_DEFS := -DANOTHER ")
        self.assertEqual(self.made(), {"simgpu/src/blas/multiply.c", "build/lib/libsimgpu.a",
                                       "build/bin/launch"})
        self.edit("build/config.mk", "BLAS_LIBS := ", "BLAS_LIBS := -L. ")
        self.assertEqual(self.made(), {"build/bin/launch"})
        self.assertEqual(self.made(), set())

    def test_another_processor(self):
        self.made()
        config = self.read("kit/build/config.mk")
        self.write("kit/build/config.mk", re.sub(r"PROCESSOR := \d+", "PROCESSOR := 1", config))
        self.assertEqual(self.sources(), self.VECTOR)
        # And the file of another processor does not hold here.
        self.write("kit/build/config.mk", re.sub(r"(?m)\|cc\|.*$", "|cc|another", config))
        self.make("deps")
        self.assertEqual(self.read("kit/build/config.mk"), config)

    def test_a_source_that_is_gone_leaves_its_library(self):
        self.made()

        def members(name):
            return run(["ar", "t", os.path.join(self.kit, "build/lib", name)],
                       status=0).stdout.split()
        self.assertIn("one.o", members("libsimgpu.a"))
        os.unlink(os.path.join(self.kit, "simgpu/src/memory/one.c"))
        self.assertEqual(self.made(), {"build/lib/libsimgpu.a", "build/bin/launch"})
        self.assertEqual(sorted(members("libsimgpu.a")), ["log.o", "machines.o", "multiply.o",
                                                           "reduce.o"])
        self.assertEqual(self.made(), set())
        self.source("simgpu/src/memory/one", "extern int one;\nint one = 1;\n")
        self.made()
        self.assertIn("one.o", members("libsimgpu.a"))

    def test_objects_of_a_folder(self):
        for folder in ("reference", "mine"):
            key = self.make("IMPL=" + folder, "print-key", "--eval=print-key:;@echo $(IMPL_KEY)")
            target = ("IMPL=" + folder, "build/impl/%s/api.o" % key.split()[-1])
            self.assertEqual(self.made(*target, goals=()), {folder + "/api.c"})
            self.assertEqual(self.made(*target, goals=()), set())
            self.assertEqual(self.made("CFLAGS=-O1", *target, goals=()), {folder + "/api.c"})

    def test_a_dry_run_changes_nothing(self):
        self.made()
        self.make("-n", "CFLAGS=-O1", *self.ALL)
        self.assertEqual(self.made(), set())

    def test_words_that_are_no_backend_or_blas(self):
        for word in ("BLAS=mkl", "BACKEND=tpu"):
            self.assertRegex(self.make(word, "build", status=2),
                             r"^make/options.mk:\d+: \*\*\* there is no %s: it must be .*\n\Z"
                             % word)


# A compiler that waits, while it makes an object, until as many as MEET are at it, or until one has
# waited in vain for so many seconds.
MEETING = '''#!%s
import fcntl, os, subprocess, sys, time
words = sys.argv[1:]
if "-c" not in words:
    sys.exit(subprocess.call(["cc"] + words))
folder = os.environ["MEETING"]
mine = os.path.join(folder, "at-%%d" %% os.getpid())
open(mine, "w").close()
until = time.monotonic() + float(os.environ["PATIENCE"])
while not {"met", "alone"} & set(os.listdir(folder)):
    if sum(name.startswith("at-") for name in os.listdir(folder)) >= int(os.environ["MEET"]):
        open(os.path.join(folder, "met"), "w").close()
    elif time.monotonic() > until:
        open(os.path.join(folder, "alone"), "w").close()
    time.sleep(0.01)
status = subprocess.call(["cc"] + words)
os.unlink(mine)
sys.exit(status)
''' % sys.executable


class Jobs(Miniature):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("meeting"))
        self.write("bin/meeting", MEETING, 0o755)

    def together(self, meet, *words, patience=20):
        """Whether `meet` compilers were at work at a time in `make simgpu`."""
        shutil.rmtree(self.path("kit", "build"), ignore_errors=True)
        shutil.rmtree(self.path("meeting"))
        os.makedirs(self.path("meeting"))
        out = self.make("simgpu", "CC=" + self.path("bin/meeting"), *words,
                        MEETING=self.path("meeting"), MEET=str(meet),
                        PATIENCE="%g" % (patience * runner.time_factor()))
        self.assertNotIn("jobserver", out)
        return os.path.exists(self.path("meeting", "met"))

    def test_jobs_that_were_asked_for(self):
        self.assertTrue(self.together(3, "-j3"))
        # One at a time: nobody is met, which the first compiler waits for in vain.
        self.assertFalse(self.together(2, "-j1", patience=3))

    @unittest.skipUnless(len(os.sched_getaffinity(0)) > 1, "there is one processor")
    def test_by_itself_as_many_as_there_are_processors(self):
        self.assertTrue(self.together(2))

    def test_the_compiler_says_nothing_of_makes_jobs(self):
        """gcc -v tells which variables it changes, as where it cannot reach make's other jobs."""
        out = self.make("-j2", "IMPL=reference", "build/impl/reference/api.o")
        self.assertIn("reference/api.c", out)
        self.assertNotIn("MAKEFLAGS", out)

    def test_makes_own_rules_are_off(self):
        """They cost a tenth of a second in every call."""
        said = self.make("-p", "-q", "help", status=1)
        rules = re.findall(r"(?m)^(\S*%\S*): +%", said)
        self.assertIn("build/obj/%.o", rules)
        self.assertNotIn("%.o", rules)

    def test_no_rule_says_how_many(self):
        parts = os.listdir(self.path("kit", "make"))
        self.assertGreater(len(parts), 5)
        for name in ["Makefile"] + ["make/" + part for part in parts]:
            for line in self.read("kit/" + name).splitlines():
                if line.startswith("\t"):
                    self.assertNotRegex(line, r"\s-j ?\d", name)


class Spaces(Miniature):
    """The kit in a folder whose path make would cut."""

    FOLDER = "my lab é"

    def test_everything_is_made(self):
        made = self.made()
        self.assertIn("simgpu/src/memory/one.c", made)
        self.assertIn("build/bin/launch", made)
        self.assertEqual(self.made(), set())
        absolute = os.path.join(self.kit, "build")
        self.assertEqual(self.made("BUILD=" + absolute), set())
        self.assertIn("has a space", self.make("BUILD=/tmp/a b", "build", status=2))

    def test_pkg_config(self):
        self.make("simgpu")
        self.source("simgpu/src/memory/one", "int one(void);\nint one(void) { return 42; }\n")
        self.write("my lab é/simgpu/include/one.h", "int one(void);\n")
        self.make("simgpu")
        self.write("prog.c", "#include <one.h>\nint main(void) { return one(); }\n")
        done = run(
            ["sh", "-c",
             'eval "cc -g prog.c $(pkg-config --cflags --libs simgpu) -o prog" && ./prog'],
            self.folder,
            environment=clean(PKG_CONFIG_PATH=os.path.join(self.kit, "build/lib/pkgconfig")))
        self.assertEqual((done.returncode, done.stderr), (42, ""))

    def test_compile_commands(self):
        self.make("IMPL=mine", "compile_commands.json")
        commands = {entry["file"]: entry
                    for entry in json.loads(read(self.kit, "compile_commands.json"))}
        for name in ("simgpu/src/memory/one.c", "mine/api.c", "tests/nn/suite.c"):
            entry = commands[name]
            self.assertEqual(entry["directory"], self.kit)
            self.assertEqual(entry["arguments"][entry["arguments"].index("-c") + 1], name)
            run(entry["arguments"][:-1] + [self.path("x.o")], entry["directory"], status=0)
        self.made("IMPL=mine")
        os.unlink(os.path.join(self.kit, "compile_commands.json"))
        shutil.copytree(os.path.join(self.kit, "mine"), os.path.join(self.kit, "skeleton"))
        self.make("deps") # the first build makes it too, for the folder that an editor opens
        first = json.loads(read(self.kit, "compile_commands.json"))
        self.assertIn("skeleton/api.c", [entry["file"] for entry in first])
        self.make("IMPL=mine", "compile_commands.json") # which makes nothing again
        self.assertEqual(self.made("IMPL=mine"), set())


class Folders(Miniature):
    """IMPL in folders of any name."""

    def test_an_object_knows_its_file_by_the_folders_name(self):
        for name in ODD:
            for folder in (self.path("elsewhere", name), self.path("kit", name)):
                with self.subTest(folder):
                    shutil.copytree(self.path("kit", "mine"), folder)
                    key = self.make("show", "IMPL=" + folder, "--eval=show:;@echo $(IMPL_KEY)")
                    made = "build/impl/%s/meta_init.o" % key.strip()
                    self.make(made, "IMPL=" + folder)
                    with open(os.path.join(self.kit, made), "rb") as file:
                        told = os.path.join(name.replace("=", "_"), "meta_init.c").encode() + b"\0"
                        self.assertTrue(told in file.read(), told)
                    self.assertIn("up to date", self.make(made, "IMPL=" + folder))
                    # Recursive makes and the environment carry the name, too.
                    for words in (("IMPL=" + folder,), ()):
                        self.assertIn("up to date", self.make(
                            "again", "--eval=again:;@$(MAKE) " + made, *words, IMPL=folder))

    def test_a_header_with_a_name_that_make_would_read_otherwise(self):
        """It is refused in a line, and whatever lies in the folder, make goes on working."""
        target = ("IMPL=mine", "build/impl/%s/api.o" % self.make(
            "IMPL=mine", "show", "--eval=show:;@echo $(IMPL_KEY)").strip())
        plain = self.read("kit/mine/api.c")
        for name in ("a:b.h", "a;x.h", "a b.h", "$(error x).h", "a%b.h", "#.h"):
            with self.subTest(name):
                self.write("kit/mine/" + name, "#define NOTHING\n")
                self.source("mine/api", '#include "%s"\n%s' % (name, plain))
                lines = self.make(*target, status=2).splitlines()
                self.assertEqual([line for line in lines if "make: ***" not in line],
                                 ["mine/api.c includes %s, whose name has characters other than "
                                  "letters, digits, '_', '-' and '.': rename it." % name])
                self.source("mine/api", plain)
                self.assertEqual(self.made(*target, goals=()), {"mine/api.c"})
        # What an earlier kit left of such a header stops what is built, and never make clean.
        self.write("kit/" + target[1][:-1] + "d",
                   "%s: mine/api.c mine/a:b.h\n\nmine/a:b.h:\n" % target[1])
        self.make("help")
        self.make("IMPL=mine", "clean")
        self.assertFalse(os.path.exists(self.path("kit", "build")))

    def test_what_a_task_file_includes(self):
        target = ("IMPL=mine", "build/impl/%s/api.o" % self.make(
            "IMPL=mine", "show", "--eval=show:;@echo $(IMPL_KEY)").strip())
        self.write("kit/mine/own-1.h", '#include "kit.h"\n')
        self.write("kit/include/kit.h", "extern int kit;\n")
        self.source("mine/api", '#include "own-1.h"\n' + self.read("kit/mine/api.c"))
        self.assertEqual(self.made(*target, goals=()), {"mine/api.c"})
        for name in ("mine/own-1.h", "include/kit.h", "mine/api.c"):
            self.assertEqual(self.made(*target, goals=()), set())
            os.utime(self.path("kit", name))
            self.assertEqual(self.made(*target, goals=()), {"mine/api.c"}, name)
        os.unlink(self.path("kit/mine/own-1.h"))
        self.source("mine/api", "int api;\n")
        self.assertEqual(self.made(*target, goals=()), {"mine/api.c"})

    def test_two_folders_of_one_name(self):
        keys = set()
        for folder in ("a b", "c d"):
            shutil.copytree(self.path("kit", "mine"), self.path(folder, "x y"))
            keys.add(self.make("show", "IMPL=" + self.path(folder, "x y"),
                               "--eval=show:;@echo $(IMPL_KEY)"))
        self.assertEqual(len(keys), 2)

    def test_a_folder_that_cannot_be_used(self):
        for name, words in (("a\nb", "line break"), ("", "names no folder")):
            out = self.make("IMPL=" + name, "suites", status=2)
            self.assertIn(words, out)
            self.assertNotIn("recipe commences", out)

    def test_spellings_of_the_two_that_come_with_the_kit(self):
        for name in ("reference", "./reference", "reference/", self.path("kit", "reference")):
            self.assertEqual(self.make("show", "IMPL=" + name,
                                       "--eval=show:;@echo $(IMPL_KEY) $(IMPL_DIR)").split(),
                             ["reference", "reference"])


class RealKit(ReferenceCopy):
    def line_of(self, file, text):
        return read(self.copy, file).partition(text)[0].count("\n") + 1

    def message(self, *options):
        _, document, _ = self.grade(*options)
        self.assertEqual(document["score"], 0)
        messages = {test["message"] for test in document["tests"]}
        self.assertEqual(len(messages), 1, messages)
        return messages.pop()

    def test_a_file_with_the_text_of_before_is_not_compiled_again(self):
        self.grade("--task", "5")
        made, = glob.glob(os.path.join(build_folder(), "impl", os.path.basename(self.copy) + "-*",
                                       "optimizer.o"))
        before = os.stat(made).st_mtime_ns
        os.utime(os.path.join(self.copy, "optimizer.c"))
        self.grade("--task", "5")
        self.assertEqual(os.stat(made).st_mtime_ns, before)
        self.rewrite("optimizer.c", "    opt->t++;\n", "    opt->t += 1;\n")
        self.grade("--task", "5")
        self.assertNotEqual(os.stat(made).st_mtime_ns, before)
        # Older than what says by which flags, and by which compiler, objects are made.
        flags = max(os.stat(os.path.join(build_folder(), "made_with", name)).st_mtime
                    for name in ("c", "task"))
        os.utime(made, (flags - 1, flags - 1))
        self.grade("--task", "5")
        self.assertGreaterEqual(os.stat(made).st_mtime, flags)

    def test_what_two_jobs_say_is_not_mixed(self):
        """A linker writes a line in pieces: those of two at a time once made one line."""
        rule = ("said-%: ; @for i in 1 2 3 4 5; do printf ' %s' $*; sleep 0.1; done; echo")
        both = builder.Builder(os.path.join(ROOT, "reference"), build_folder(), "simgpu")
        status, said = both.make(["said-a", "said-b"], jobs=2, extra=["--eval=" + rule])
        self.assertEqual((status, sorted(said.splitlines())), (0, [5 * " a", 5 * " b"]))

    def test_a_file_may_call_what_no_suite_is_linked_with(self):
        """TASKS_LIB (make/objects.mk) has neither of these."""
        self.append(self.copy + "/meta_init.c", "#include <cublas_v2.h>\n#include \"kernels.h\"\n"
                    "void more(cublasHandle_t h, float *x);\n"
                    "void more(cublasHandle_t h, float *x)\n{\n    cublasSswap(h, 1, x, 1, x, 1);\n"
                    "    kernel_swiglu_forward(x, x, 1, 1, 0);\n}\n")
        _, document, _ = self.grade("--task", "1")
        self.assertEqual(document["score"], document["max_score"], document["tests"])

    def test_a_name_of_the_kits_is_taken_whatever_a_suite_is_linked_with(self):
        self.append(self.copy + "/meta_init.c", "#include \"kernels.h\"\n"
                    "cudaError_t kernel_swiglu_forward(\n"
                    "    float *a, const float *b, int c, int d, cudaStream_t e)\n"
                    "{\n    return cudaSuccess;\n}\n")
        self.assertIn("defines kernel_swiglu_forward, which belongs to another part",
                      self.message("--task", "1"))

    def test_a_forgotten_return_costs_the_task(self):
        self.append(self.copy + "/meta_init.c", "Status forgetful(int x);\n"
                    "Status forgetful(int x)\n{\n    if (x) return OK;\n}\n")
        line = self.line_of("meta_init.c", "if (x) return OK;") + 1
        self.assertRegex(
            self.message("--task", "1"),
            r"^meta_init\.c does not compile\. %s/meta_init\.c:%d: control reaches end of non-void "
            r"function \[-Werror=return-type\]: a path through forgetful ends without a return\. "
            r"Is `return OK;` missing\?$" % (re.escape(os.path.basename(self.copy)), line))

    def test_other_mistakes_that_are_more_than_warnings(self):
        for code, word in (("nobody_declares_this(1);", "implicit"),
                           ("float f = 0; int *p = &f; (void)p;", "incompatible"),
                           ("int *p = 5; (void)p;", "pointer from integer")):
            with self.subTest(code):
                shutil.copy(os.path.join(ROOT, "reference", "optimizer.c"), self.copy)
                self.append(self.copy + "/optimizer.c",
                            "void wrong(void);\nvoid wrong(void)\n{\n    %s\n}\n" % code)
                message = self.message("--task", "5")
                self.assertIn(word, message)
                self.assertIn("optimizer.c:%d: " % self.line_of("optimizer.c", code), message)

    def test_a_folder_with_an_odd_name(self):
        name = "it's $HOME: #1, 100%"
        odd = self.path(name)
        shutil.copytree(self.copy, odd)
        self.copy = odd
        _, document, _ = self.grade("--task", "5")
        self.assertEqual(document["score"], document["max_score"])
        self.assertEqual(document["impl"], odd)
        # A part that is not written, a compiler's error, a report, each with the folder's name.
        shutil.copy(os.path.join(ROOT, "skeleton", "optimizer.c"), odd)
        _, _, out = self.grade("--task", "5")
        self.assertIn("at %s/optimizer.c:" % name, out)
        self.assertIn("make grade TASK=5 IMPL='", out)
        self.append(odd + "/optimizer.c", "int wrong = ;\n")
        self.assertIn("%s/optimizer.c:%d: expected expression"
                      % (name, self.line_of("optimizer.c", "wrong")), self.message("--task", "5"))

    def test_what_a_file_says_commands_no_terminal(self):
        """Of `make build`: warnings and errors of the preprocessor, of the compiler, and lines of
        the file, which they quote."""
        evil = "\x1b[2J\x1b]0;title\x07\x9b31m \u202e"
        self.append(self.copy + "/api.c",
                    '#pragma message("%s")\n_Static_assert(0, "%s"); // here\nint x = ; // %s\n'
                    % (evil, evil, evil))
        text = run(["make", "build", "IMPL=" + self.copy, "BUILD=" + build_folder()], timeout=280,
                   status=2, merged=True, environment=clean()).stdout
        self.assertIn("api.c:%d: " % self.line_of("api.c", "int x = ;"),
                      re.sub(r"(api\.c:\d+:)\d+:", r"\1", text))
        for character in "\x1b\x07\x9b\u202e":
            self.assertNotIn(character, text)

    def forget_builds(self):
        super().forget_builds()
        for folder in glob.glob(os.path.join(build_folder(), "impl", "it_s_*")):
            shutil.rmtree(folder, ignore_errors=True)


class Missing(Miniature):
    def test_the_words_of_set_up_are_the_last(self):
        """Then make says in a line that it stops, and nothing of its own files."""
        os.unlink(os.path.join(self.kit, "build/config.mk"))
        for goal in ("grade", "plan", "build/bin/launch", "deps"):
            done = run(["make", goal, "CC=/nowhere/cc -O1", "NO_INSTALL=1"], self.kit,
                       environment=clean())
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            *told, command, last = done.stderr.splitlines()
            self.assertEqual(told[0], "setup: this machine lacks some things that ShardLab "
                             "needs:")
            self.assertRegex(command, "^  .* gcc ")
            self.assertRegex(last, r"make.* \*\*\* ")
            self.assertNotIn("No such file", done.stderr)


@unittest.skipUnless(shutil.which("setpriv") or os.getuid() != 0, "nobody to write as")
class Unwritable(Miniature):
    def test_one_line(self):
        self.make("deps")
        for folder in (self.folder, self.kit, os.path.join(self.kit, "build")):
            os.chmod(folder, 0o755)
        for folder in (self.kit, os.path.join(self.kit, "build")):
            os.chmod(folder, 0o555)
            self.addCleanup(os.chmod, folder, 0o755)
        words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] \
            if os.getuid() == 0 else []
        done = run(words + ["make", "grade"], self.kit, environment=clean(HOME="/"))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 2, done.stderr)
        self.assertRegex(lines[0], r"^setup: the folder .*/kit/build cannot be written, and .*: "
                         "copy the project to a folder of your own$")
        self.assertRegex(lines[1], r"^make: \*\*\* ")


if __name__ == "__main__":
    unittest.main()
