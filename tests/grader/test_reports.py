"""simgpu's reports as JSON: what simgpu writes, what the grader makes of it, and what it makes of
text that only looks like it."""

import json
import os
import re
import subprocess
import unittest

from helpers import FakeKit, ROOT, ReferenceCopy, TempFolder, build_folder, read, run
import runner

GOOD = {"class": "lifetime", "title": "device memory was freed twice", "rank": 1, "device": 1,
        "pid": 77, "follows": False,
        "calls": [{"call": "cudaFree", "file": "a.c", "line": 12, "function": "f",
                   "stream": "default"}],
        "ranges": [{"allocation": "x", "where": "a.c:9 (f)", "begin": 0, "end": 8}],
        "hardware": None, "question": "Do two owners free it?",
        "read": "simgpu/pages/mistakes.md, \"Lifetime\"", "text": "simgpu: …\n"}


def lines(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


class CleanReports(unittest.TestCase):
    def test_a_report_stays_as_it_is(self):
        self.assertEqual(runner.clean_reports(lines(GOOD, GOOD)), [GOOD, GOOD])

    def test_what_is_no_report_is_left_out(self):
        for text in (None, 7, [], "", "\n\n", "{", "[1]\n", "null\n", "{}\n", '{"class": 1}\n',
                     '{"class": "x"}\n', '{"class": [], "title": "t"}\n', "[" * 100000,
                     '{"class": "x", "title": "t"', "1" * 5000 + "\n", "NaN\n"):
            self.assertEqual(runner.clean_reports(text), [], str(text)[:40])
        self.assertEqual(runner.clean_reports("garbage\n" + lines(GOOD) + "\x00\xff\n"), [GOOD])

    def test_fields_of_another_kind_or_name_are_left_out(self):
        bad = dict(GOOD, rank="1", device=True, pid=1.5, follows=0, calls={"a": 1}, score=100,
                   status="passed", ranges=[1, None, {"begin": "0", "end": 10 ** 30, "more": 1}])
        report, = runner.clean_reports(lines(bad))
        self.assertEqual(report["ranges"], [{}])
        for name in ("rank", "device", "pid", "follows", "calls", "score", "status"):
            self.assertNotIn(name, report)

    def test_there_is_a_limit_to_everything(self):
        long = dict(GOOD, text="x" * 100000, calls=GOOD["calls"] * 1000)
        reports = runner.clean_reports(lines(*[long] * 100))
        self.assertEqual(len(reports), runner.REPORT_LIMIT)
        self.assertEqual(len(reports[0]["text"]), runner.MESSAGE_LIMIT)
        self.assertEqual(len(reports[0]["calls"]), runner.REPORT_LIMIT)


class InResults(FakeKit):
    def test_reports_go_with_their_test(self):
        self.suite("one", "abc", "say('a'); say('b', 'failed', 'x', reports=%r)\n"
                   "say('c', reports='rubbish'); end()" % lines(GOOD))
        tests = self.grade()[2]
        self.assertEqual([tests[name]["reports"] for name in "abcde"], [[], [GOOD], [], [], []])

    def test_a_report_earns_nothing(self):
        forged = dict(GOOD, status="passed", test="b", score=20, max_score=0, message="well done")
        self.suite("one", "abc", "say('a'); say('b', 'failed', 'x', reports=%r); rest('ab')"
                   % lines(forged))
        status, _, tests, _ = self.grade()
        self.assertEqual(status, 0)
        self.assertEqual((tests["b"]["status"], tests["b"]["score"], tests["b"]["message"]),
                         ("failed", 0, "x"))
        self.assertEqual(tests["b"]["reports"], [GOOD])

    def test_the_file_may_vanish_or_be_something_else(self):
        for what in ("os.unlink(path)", "os.unlink(path); os.mkdir(path)",
                     "os.unlink(path); os.symlink('/etc/passwd', path)",
                     "open(path, 'wb').write(b'\\xff' * 1000000)"):
            self.suite("one", "abc", "path = os.environ['SIMGPU_REPORT']\n%s\nrest()" % what)
            status, out, tests, _ = self.grade()
            self.assertEqual(status, 0, self.err)
            self.assertIn("Score: 100/100", out)


class FromSimgpu(TempFolder):
    """A program that makes mistakes, compiled against the built library."""

    PROGRAM = r'''
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
static void mistakes(int rank)
{
    char host, *x; /* "quoted" \ and bytes that are no UTF-8: \xff */
    cudaSetDevice(rank);
    cudaMalloc((void **)&x, 64);
    cudaFree(x); cudaFree(x); /* caf\xe9 "x\y" */
    for (int i = 0; i < 50; i++) cudaFree(&host);
    exit(0);
}
int main(void)
{
    for (int rank = 0; rank < 4; rank++)
        if (fork() == 0) mistakes(rank);
    while (wait(NULL) > 0) continue;
    return 0;
}
'''

    def build(self):
        lib = os.path.join(build_folder(), "lib")
        if not os.path.exists(os.path.join(lib, "libsimgpu.a")):
            self.skipTest("simgpu is not built")
        source = self.path("prog.c")
        with open(source, "wb") as file:
            file.write(self.PROGRAM.replace(r"\xe9", "\xe9").encode("latin-1"))
        flags = run(["pkg-config", "--libs", "openblas"]).stdout.split() or ["-lopenblas"]
        includes = ["-I" + os.path.join(ROOT, "simgpu", "include"),
                    "-I" + os.path.join(ROOT, "gpulog", "include")]
        for blas in (["-ldnnl"], flags):
            done = run(["cc", "-g", "-o", self.path("prog"), source, *includes, "-L" + lib,
                        "-lsimgpu", *blas, "-ldw", "-lgomp", "-lm", "-ldl", "-lrt", "-lpthread"])
            if done.returncode == 0:
                return
        self.skipTest("the program does not link: " + done.stderr[-200:]) # a build with sanitizers

    def test_every_line_is_an_object_with_all_that_is_known(self):
        self.build()
        records = self.path("records.jsonl")
        done = subprocess.run([self.path("prog")], timeout=60, capture_output=True, check=False,
                              env=dict(runner.clean_environment(), SIMGPU_REPORT=records))
        reports = [json.loads(line) for line in self.read(records).splitlines()]
        self.assertEqual(len(reports), 4 * 51)
        self.assertEqual(len({report["pid"] for report in reports}), 4)
        firsts = [report for report in reports if not report["follows"]]
        self.assertEqual(sorted(report["device"] for report in firsts), [0, 1, 2, 3])
        for report in firsts:
            self.assertEqual((report["class"], report["title"], report["rank"]),
                             ("lifetime", "device memory was freed twice", None))
            call = report["calls"][0]
            self.assertEqual((call["call"], call["function"]), ("cudaFree", "mistakes"))
            self.assertTrue(call["file"].endswith("prog.c"), call)
            self.assertEqual(call["line"], 12)
            self.assertEqual(report["ranges"][0]["allocation"], "x")
            self.assertIn('caf? "x\\y"', report["text"])
            self.assertRegex(report["hardware"], r"^On a GPU ")
            self.assertTrue(report["question"].endswith("?"))
            self.assertEqual(report["read"], 'simgpu/pages/mistakes.md, "Lifetime"')
        # What is printed: one report a process, and how many followed.
        printed = done.stderr.decode("utf-8", "replace")
        self.assertEqual(printed.count("device memory was freed twice [lifetime]"), 4)
        self.assertEqual(printed.count("50 more reports followed"), 4)

    def test_every_class_has_its_section(self):
        pages = re.findall(r'ROW\(\w+, "[^"]+",\s[^"]*"[^"]+",[\s\\]*"([^"]+)", \w+\)',
                           read(ROOT, "simgpu", "src", "report", "report.c"))
        text = read(ROOT, "simgpu", "pages", "mistakes.md")
        self.assertEqual(len(pages), 15)
        self.assertEqual(re.findall(r"(?m)^## (.*)$", text), pages)
        for section in text.split("\n## ")[1:]:
            for words in ("*What it is.*", "real GPU", "*How to find it.*"):
                if words == "real GPU" and section.startswith("Host dereference"):
                    words = "machine with a GPU"
                self.assertIn(words, section)


class InAGrading(ReferenceCopy):
    def test_a_students_mistake_is_told_with_its_report(self):
        self.change("optimizer.c", "fsdp_zero_grad_default", "char host;\n    cudaFree(&host);")
        tests, _, _ = self.grade("--task", "optimizer")
        bad = tests["zero_grad_zeroes"]
        self.assertEqual(bad["status"], "failed")
        self.assertIn("a pointer that is not device memory is freed [wrong", bad["message"])
        self.assertIn("| cudaFree(&host);", bad["message"])
        self.assertIn('Read: simgpu/pages/mistakes.md, "Wrong pointer"', bad["message"])
        report = bad["reports"][0]
        self.assertEqual((report["class"], report["calls"][0]["function"], report["follows"]),
                         ("wrong-pointer", "fsdp_zero_grad_default", False))
        self.assertEqual(tests["sgd_step_with_decay"]["reports"], [])


if __name__ == "__main__":
    unittest.main()
