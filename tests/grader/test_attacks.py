"""The grader and student files that set out to deceive it, by the files of tests/attacks.

Each attack stands in front of the reference's optimizer.c, whose fsdp_zero_grad calls attack() and
zeroes nothing (attack_files.py). Without the attack that costs what the honest file loses here;
with it, nothing may be gained, the result must say what happened (Ends: and Says: at the head of
the attack), and nothing may be left behind. Those that are refused before anything runs are tried
six at a time, each in front of another file. A usual run draws some by SEED; ATTACKS=all tries all
of them, as `make test-all` does. Attacks that are no C code (links, old files, other objects)
follow.
"""

import glob
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from attack_files import (ATTACKS, FILES, HONEST, SOON, TARGET, TARGET_FILE, decoy_now, in_front,
                          lay_decoy, reference, refused_groups)
from helpers import ROOT, TempFolder, build_folder, processes_with, program, run
import builder
import files
import manifest
import runner
import submission


class Graded(TempFolder):
    """A folder that is graded for one task, in the build tree of the kit's tests."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.forget_builds)

    def forget_builds(self):
        for name in os.listdir(self.folder):
            for path in glob.glob(os.path.join(build_folder(), "impl", name + "-*")):
                shutil.rmtree(path, ignore_errors=True)

    def name(self, word):
        """A folder's name that no other test has."""
        return os.path.basename(self.folder) + "-" + word

    def copy(self, word, file="", text=None):
        """A copy of the reference, with another text for one of its files."""
        folder = self.path(self.name(word))
        os.makedirs(folder)
        for path in glob.glob(os.path.join(ROOT, "reference", "*.c")):
            shutil.copy(path, folder)
        if text is not None:
            self.write(os.path.join(folder, file), text)
        return folder

    def command(self, impl, task="5"):
        return program("grade.py", "--impl", impl, "--build", build_folder(), "--task", task,
                       "--out", impl + ".json")

    def start(self, impl, *options, task="5", **more):
        process = subprocess.Popen(
            self.command(impl, task) + list(options), cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # An attack may be compiled with warnings, whatever the kit itself is built with.
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1", WERROR="", **more))
        return process, impl + ".json"

    def finish(self, process, out, status=0):
        printed, errors = process.communicate(timeout=250)
        self.assertEqual(process.returncode, status, printed + errors)
        document = json.loads(self.read(out))
        self.assertLessEqual(document["score"], sum(t["score"] for t in document["tests"]) + 0.01)
        return {test["name"]: test for test in document["tests"]}, document, errors

    def grade(self, impl, *options, task="5", **more):
        return self.finish(*self.start(impl, *options, task=task, **more))


class Attacks(Graded):
    def wrong_with(self, attack, test):
        """What is wrong with how an attack ended; "" where nothing is."""
        if test["status"] != attack.ends or not re.search(attack.says, test["message"]):
            return "%s: %s" % (test["status"], test["message"])
        return ""

    def told(self, name, began, document, test):
        print("%-22s %4.1f s  %g  %s: %s" % (
            name, time.monotonic() - began, document["score"], test["status"],
            test["message"][:150].replace("\n", " ")), flush=True)

    def no_process(self, folder):
        suites = os.path.join(build_folder(), "impl", os.path.basename(folder))
        return "processes are left" if processes_with(suites) else ""

    def run_group(self, group):
        """{attack: what is wrong} of six that are refused, each in its file."""
        folder = self.copy("-".join(attack.name for attack, _ in group[:2]))
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        for attack, file in group:
            self.write(os.path.join(folder, file), in_front(attack.text, file))
        began = time.monotonic()
        _, document, _ = self.grade(folder, task="")
        wrong = {"left by " + folder: self.no_process(folder)}
        for attack, file in group:
            tests = [test for test in document["tests"] if self.files[test["task"]] == file
                     and not test["message"].startswith("Needs all %s files" % manifest.how_many())]
            self.told(attack.name, began, document, tests[0])
            points = sum(test["score"] for test in document["tests"])
            wrong[attack.name] = "%g points" % points if points or not tests else next(
                filter(None, (self.wrong_with(attack, test) for test in tests)), "")
        return wrong

    def run_alone(self, attack):
        """{attack: what is wrong} of one that runs."""
        folder = self.copy(attack.name, TARGET_FILE, in_front(attack.text))
        began = time.monotonic()
        tests, document, _ = self.grade(folder, *SOON.get(attack.name, []))
        self.told(attack.name, began, document, tests[TARGET])
        if document["status"] != "graded" or document["score"] > self.honest or \
                attack.name == "fair" and document["score"] != self.honest:
            return {attack.name: "%g points, %s; honest work has %g" % (
                document["score"], document["status"], self.honest)}
        return {attack.name: self.wrong_with(attack, tests[TARGET]) or self.no_process(folder)}

    def drawn(self):
        """The attacks of this run: two folders of six that are refused, and four that run."""
        refused = [attack for attack in ATTACKS if attack.refused]
        running = [attack for attack in ATTACKS if not attack.refused]
        self.assertGreater(min(len(refused) - 40, len(running) - 10), 0)
        if os.environ.get("ATTACKS") == "all":
            return refused, running
        seed = os.environ.get("SEED", "1")
        draw = random.Random(int(seed))
        print("drawn by SEED=%s" % seed, flush=True)
        return draw.sample(refused, 2 * len(FILES)), draw.sample(running, 4)

    def test_no_attack_gains_a_point_and_each_is_called_by_its_name(self):
        refused, running = self.drawn()
        self.files = {task.number: task.file for task in manifest.load(ROOT)}
        tests, document, _ = self.grade(self.copy("honest", TARGET_FILE, in_front(HONEST)))
        self.assertEqual(tests[TARGET]["status"], "failed")
        self.honest, before = document["score"], lay_decoy()
        self.assertGreater(self.honest, 5)
        wrong = {}
        with ThreadPoolExecutor(2) as pool:
            for found in list(pool.map(self.run_group, refused_groups(refused))) + \
                    list(pool.map(self.run_alone, running)):
                wrong.update(found)
        self.assertGreaterEqual(len(wrong), len(refused + running))
        self.assertEqual({name: text for name, text in wrong.items() if text}, {})
        self.assertEqual(glob.glob("/tmp/shardlab-attack-*"), [])
        self.assertEqual(decoy_now(), before)

    def test_the_file_must_be_a_file_of_the_folder(self):
        elsewhere = self.write("elsewhere.c", reference("optimizer.c"))
        for word, make, says in (
                ("link", lambda path: os.symlink(os.path.join(ROOT, "reference", "optimizer.c"),
                                                 path), "link to outside its folder"),
                ("other", lambda path: os.symlink(elsewhere, path), "link to outside its folder"),
                ("device", lambda path: os.symlink("/dev/zero", path), "to outside its folder"),
                ("pipe", os.mkfifo, "is not a regular file"),
                ("large", lambda path: self.write(path, reference("optimizer.c") + " " * (1 << 20)),
                 "more than 1048576 are not read")):
            with self.subTest(word):
                folder = self.copy(word)
                os.unlink(os.path.join(folder, "optimizer.c"))
                make(os.path.join(folder, "optimizer.c"))
                tests, document, _ = self.grade(folder)
                self.assertEqual((document["score"], tests[TARGET]["status"]), (0, "error"))
                self.assertIn(says, tests[TARGET]["message"])


class Bytes(Graded):
    """What was graded is the student's file, and the result proves it."""

    def test_the_result_names_the_bytes(self):
        folder = self.copy("sums")
        document = self.grade(folder)[1]
        entry, = [file for file in document["files"] if file["file"] == "optimizer.c"]
        made, = glob.glob(os.path.join(build_folder(), "impl", self.name("sums") + "-*",
                                       "optimizer.o"))
        self.assertEqual(entry["source_sha256"],
                         files.digest(os.path.join(folder, "optimizer.c")))
        self.assertEqual(entry["object_sha256"], files.digest(made))
        self.assertEqual((entry["task"], entry["linked"]), (5, True))

    def test_another_object_is_not_graded(self):
        wrong = reference("optimizer.c").replace("    opt->t++;\n", "")
        folder = self.copy("swapped", "optimizer.c", wrong)
        self.assertLess(self.grade(folder)[1]["score"], self.grade(self.copy("right"))[1]["score"])
        build, = glob.glob(os.path.join(build_folder(), "impl", self.name("swapped") + "-*"))
        # A suite with the reference's object, newer than all that it is made of.
        suite = os.path.join(build, "suite", "optimizer")
        shutil.copy(os.path.join(build_folder(), "impl", "reference", "suite", "optimizer"), suite)
        later = time.time() + 5
        os.utime(suite, (later, later))
        process, out = self.start(folder)
        document = self.finish(process, out, status=3)[1]
        self.assertEqual((document["status"], document["score"]), ("infrastructure", 0))
        self.assertIn("linked with a different optimizer.c", document["message"])


class Text(Graded):
    """The text that is compiled is the one that was looked at."""

    def compiler(self):
        """The words of a compilation, without the file."""
        known = builder.Builder(os.path.join(ROOT, "reference"), build_folder(), "simgpu")
        known.find_key()
        return known.compiler

    def test_a_precompiled_header_beside_the_file_has_no_effect(self):
        folder = self.copy("precompiled", "optimizer.c", '#include "mine.h"\n#ifdef PRECOMPILED\n'
                           "#error this is another header\n#endif\n" + reference("optimizer.c"))
        header = os.path.join(folder, "mine.h")
        self.write(header, "#define PRECOMPILED 1\n")
        for kind in ("gch", "pch"):
            made = "%s.%s" % (header, kind)
            run(self.compiler() + ["-x", "c-header", "-o", made, header], status=0)
        self.write(header, "#define FROM_TEXT 1\n")
        path = os.path.join(folder, "optimizer.c")
        direct = run(self.compiler() + ["-fsyntax-only", path])
        self.assertIn("another header", direct.stderr) # so the header is of a kind that counts
        document = self.grade(folder)[1]
        self.assertEqual(document["score"], document["max_score"])

    def test_a_header_that_leads_elsewhere_is_not_there(self):
        folder = self.copy("linked", "optimizer.c",
                           '#include "mine.h"\n' + reference("optimizer.c"))
        self.write("elsewhere.h", "#define MINE 1\n")
        os.symlink(self.path("elsewhere.h"), os.path.join(folder, "mine.h"))
        tests, document, _ = self.grade(folder)
        self.assertEqual(document["score"], 0)
        self.assertRegex(tests[TARGET]["message"], r"^optimizer\.c includes mine\.h, which is a "
                         r"link to outside its folder[^\n]*$")

    def test_messages_name_the_students_line(self):
        folder = self.copy("named", "optimizer.c",
                           '#include "mine.h"\n' + reference("optimizer.c"))
        for name, text, where in (("mine.h", "\nint a = ;\n", "mine.h:2: "),
                                  ("mine.h", "\n\n#error no\n", "mine.h:3: ")):
            self.write(os.path.join(folder, name), text)
            tests = self.grade(folder)[0]
            self.assertIn("optimizer.c does not compile. %s/%s" % (self.name("named"), where),
                          tests[TARGET]["message"])


class LimitsOfTheAccount(Graded):
    def test_the_reference_keeps_its_points_or_is_not_judged(self):
        folder = self.copy("limited")
        self.grade(folder) # so that times are known
        limits = ["-v 300000", "-v 3000000", "-n 30", "-f 4000", "-f 400"]
        if os.environ.get("ATTACKS") != "all":
            limits = random.Random(int(os.environ.get("SEED", "1"))).sample(limits, 2)
        for limit in limits:
            with self.subTest(limit):
                done = run(["bash", "-c", 'ulimit %s; exec "$@"' % limit, "bash"] +
                           self.command(folder), timeout=250)
                document = json.loads(self.read(folder + ".json"))
                if document["status"] == "graded":
                    self.assertEqual(document["score"], document["max_score"])
                else:
                    self.assertEqual((done.returncode, document["status"]), (3, "infrastructure"))
                    self.assertIn("not your code", done.stderr)


class TwoAtOnce(Graded):
    def test_a_second_grading_of_the_folder_waits_and_says_so(self):
        folder = self.copy("twice", "optimizer.c", reference("optimizer.c").replace(
            "    opt->t++;\n", "    opt->t++;\n    for (volatile int i = 0; i < 300000; i++) "
            "continue;\n"))
        one, first = self.start(folder)
        two, second = self.start(folder, "--out", folder + "-second.json")
        documents = [self.finish(one, first), self.finish(two, folder + "-second.json")]
        self.assertEqual(documents[0][1]["score"], documents[1][1]["score"])
        self.assertEqual(sum(errors.count("Another grading of the same folder is running: waiting")
                             for _, _, errors in documents), 1)

    def test_gradings_of_two_folders_run_side_by_side(self):
        runs = [self.start(self.copy(word)) for word in ("left", "right")]
        scores = [self.finish(*run)[1]["score"] for run in runs]
        self.assertEqual(scores[0], scores[1])


class Source(TempFolder):
    """What the looks at source and object say of single cases."""

    def look(self, text, expanded=None, files=(), headers="/usr/include"):
        self.write("mine/task.c", text)
        return submission.look_at_source(self.path("mine"), text if expanded is None else expanded,
                                         [self.path("mine/task.c")] + list(files),
                                         [headers], self.path("kit"))

    def test_headers_that_a_link_leads_to(self):
        for headers, fair in (("system/include", True), ("kit/include", False)):
            self.write("lib/asm/errno.h", "")
            os.makedirs(self.path(headers + "/asm"))
            os.symlink(self.path("lib/asm/errno.h"), self.path(headers + "/asm/errno.h"))
            found = self.look("", files=[self.path("lib/asm/errno.h")], headers=self.path(headers))
            self.assertEqual(found == "", fair, found)
            self.assertIn("of the system", self.look("", files=[self.path("lib/other.h")],
                                                     headers=self.path(headers)))

    def test_lines_that_hide(self):
        for text in ("#line 3\n", "  # 7 \"x.h\" 3\n", "%:line 3\n", "#\\\nline 3\n",
                     "/* a */ # /* b */ line 3\n", "#/*\n*/line 3\n", "\ufeff#line 3\n",
                     "char *a = \"/*\";\n#line 3\nchar *b = \"*/\";\n"):
            self.assertIn("#line", self.look(text), text)

    def test_what_would_be_read_otherwise_than_it_is_compiled(self):
        for text, says in (
                ('char *a = R"(\n/*)";\n#line 3\n//*/\n', "raw string"),
                ('char *a = u8R"x(\n/*)x";\n', "raw string"),
                ("#if __has_include(</*>)\n#endif\n#line 3 \"x\"\n//*/\n", "names a header"),
                ("#if 0\n#include </*> \" */ \"/*\"\n#endif\n#line 3\n//*/\n", "names a header"),
                ('#if __has_include("a\\") //"/*"\n#line 3\n//*/\n#endif\n', "names a header"),
                ("#if __has_include/**/(</*>)\n#line 3\n//*/\n#endif\n", "names a header")):
            self.assertIn(says, self.look(text), text)
        for text in ('#include "a.h" // don\'t <--\n', 'char *a = "r R", *b = "include";\n',
                     "#include <sys/types.h> /* \\ */\n"):
            self.assertEqual(self.look(text, ""), "", text)
        for expanded, says in (('#pragma GCC pch_preprocess "x.gch"\n', "precompiled"),
                               ("as \\\nm;\n", "backslash at the end"),
                               ('int a;\f# 1 "/usr/include/stdio.h" 1 3\n'
                                'int f(void) __asm__ ("x");\n', "assembly")):
            self.assertIn(says, self.look("", expanded), expanded)

    def test_what_is_no_such_line(self):
        for text in ("// #line 3\n", "/* # 3 of them\n # line up */\n", "#if 3\n#endif\n",
                     "char *a = \"\\n#line 3\";\n", "#pragma GCC ivdep\n", "int line = 3;\n"):
            self.assertEqual(self.look(text), "", text)

    def test_fair_source(self):
        for text in ("int section(int constructor) { return constructor; }\n",
                     "int f(void) __attribute__((unused, noinline));\n",
                     "int plasma, asm_count; // asm\n", "int a[3]; int b[a[1]];\n"):
            self.assertEqual(self.look(text, submission.bare(text)), "", text)

    def test_attributes_and_assembly(self):
        for text in ("[[gnu::section(\"x\")]] int a;\n",
                     "int a __attribute__((__section__(\"x\")));\n",
                     "int f(void) __asm__(\"write\");\n", "void f(void) { asm(\"nop\"); }\n",
                     "# 1 \"/usr/include/stdio.h\" 1 3\nint f(void) { __asm__ (\"syscall\"); }\n"):
            self.assertNotEqual(self.look("", text), "", text)
        system = ("# 1 \"/usr/include/stdio.h\" 1 3\n"
                  "extern int f (void) __asm__ (\"\" \"__isoc99_f\");\n")
        self.assertEqual(self.look("", system), "")

    def test_names_of_the_compilers(self):
        for name, want in (("__printf_chk", "printf"), ("__isoc23_strtol", "strtol"),
                           ("malloc", "malloc"), ("__isoc99_sscanf", "sscanf")):
            self.assertEqual(submission.plain(name), want)
        for name in ("fork", "write", "syscall", "dprintf", "dlsym", "signal", "environ", "system"):
            self.assertNotIn(name, submission.LIBRARY)


class Strays(TempFolder):
    """Processes that a test program leaves, by the runner alone."""

    def run_script(self, body, caps):
        path = self.write("suite", "#!%s\nimport json, os, subprocess, sys, time\n"
                          "fd, nonce = int(os.environ['SHARDLAB_RESULTS_FD']), "
                          "os.environ['SHARDLAB_NONCE']\n%s\n" % (sys.executable, body), 0o755)
        return runner.run_tests([path], ["a"], 20, caps)[0]["a"]

    def test_a_daemon_without_environment_is_found_by_its_descent(self):
        marker = self.path("marker-of-this-test")
        verdict = self.run_script(
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', %r],\n"
            "                 start_new_session=True, env={})\ntime.sleep(1)" % marker,
            runner.Caps())
        self.assertEqual(verdict.status, "error")
        self.assertEqual(processes_with(marker), [])

    def test_too_many_processes(self):
        verdict = self.run_script(
            "for i in range(40):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(600)",
            runner.Caps(processes=20))
        self.assertEqual((verdict.status, verdict.message),
                         ("error", "The test was stopped: more than 20 processes ran at once."))

    def test_too_much_memory(self):
        verdict = self.run_script("b = bytearray(b'x') * (300 << 20)\ntime.sleep(600)",
                                  runner.Caps(memory=100 << 20))
        self.assertEqual(verdict.status, "error")
        self.assertIn("more than 0.0977 GiB of memory", verdict.message)


if __name__ == "__main__":
    unittest.main()
