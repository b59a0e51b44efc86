"""handouts/0_start.md: its commands are run, and print what the page says; its line of code is the
repair of examples/missing_wait.c. A "…" on the page stands for anything."""

import os
import re
import unittest

from helpers import ROOT, TempFolder, build_folder, outside_make, program, read, run

import documented

PAGE = os.path.join(ROOT, "handouts", "0_start.md")
EXAMPLE = os.path.join(ROOT, "examples", "missing_wait.c")
TODO = re.compile(r"(?m)^ *// TODO.*\n")


def block(beginning):
    """The lines of the page's first indented block that has a line which begins so."""
    for _, lines in documented.split(read(PAGE))[0]:
        if any(line.lstrip().startswith(beginning) for line in lines):
            return [line for line in lines if line.strip()]
    raise AssertionError("no block of the page has %r" % beginning)


def settled(line, example="examples/missing_wait.c"):
    """A line without what may differ: which rank says it, and where the program is."""
    line = re.sub(r"\b(rank|device) \d", r"\1 N", line.strip())
    return line.replace(example, "examples/missing_wait.c")


def missing(want, printed):
    """The first line of `want` that is not in `printed`, after the ones before it; or None."""
    at = 0
    for line in map(settled, want):
        if line != "…":
            form = re.compile(".*".join(map(re.escape, line.split("…"))))
            while at < len(printed) and not form.fullmatch(printed[at]):
                at += 1
            if at == len(printed):
                return line
            at += 1
    return None


class Start(TempFolder):
    def make_start(self, *words, status=0):
        """What `make start` prints."""
        return run(["make", "-s", "start", "START_DIR=" + self.path("start"), *words],
                   timeout=280, status=status, merged=True, environment=outside_make()).stdout

    def lines(self, text, program="examples/missing_wait.c"):
        return [settled(line, program) for line in text.splitlines()]

    def expect(self, want, printed):
        line = missing(want, printed)
        self.assertIsNone(line, "the page has %r, and this was printed:\n%s" % (
            line, "\n".join(printed)))

    def repaired(self, line):
        """A copy of the example with a line in the place of the TODO."""
        text, times = TODO.subn(lambda found: line + "\n", read(EXAMPLE))
        self.assertEqual(times, 1)
        return self.write("missing_wait.c", text)


class Missing(Start):
    def test_the_page_shows_the_code(self):
        code = "\n".join(line.strip() for line in block("NCCL_TRY(ncclAllGather"))
        source = "\n".join(line.strip() for line in read(EXAMPLE).splitlines() if line.strip())
        self.assertIn(code, source)

    def test_the_report(self):
        text = self.make_start()
        self.expect(block("simgpu: rank 0, device 0: two"), self.lines(text))
        self.assertEqual(text.count("[race between streams]"), 1)
        self.assertLessEqual(sum(1 + len(line) // 80 for line in text.splitlines()), 48)
        self.expect(block("twice the weights"), self.lines(text))
        self.assertIn("Not right yet: change examples/missing_wait.c, then: make start", text)

    def test_the_rows_of_the_table(self):
        """The lines of the two calls, which the table below the report names."""
        rows = dict(re.findall(r"`(kernel_add|ncclAllGather)` in line (\d+)", read(PAGE)))
        lines = read(EXAMPLE).splitlines()
        self.assertEqual(len(rows), 2)
        for call, number in rows.items():
            self.assertIn(call + "(", lines[int(number) - 1])


class Repaired(Start):
    def test_after_the_line(self):
        path = self.repaired(block("CUDA_TRY(cudaStreamWaitEvent")[0])
        text = self.make_start("START=" + path)
        self.assertNotIn("simgpu", text)
        want = [line for _, lines in documented.split(read(PAGE))[0] for line in lines
                if any("No report" in other for other in lines)]
        self.expect([line for line in want if line.strip()], self.lines(text, path))

    def test_what_goes_wrong(self):
        """The rows of "What can go wrong" are true."""
        wait = "    CUDA_TRY(cudaStreamWaitEvent(layer->%s, layer->all_gather_done, 0));"
        for line, reported in ((wait % "all_gather_stream", True),
                               ("    CUDA_TRY(cudaStreamSynchronize(layer->all_gather_stream));",
                                False)):
            text = self.make_start("START=" + self.repaired(line))
            self.assertEqual("[race between streams]" in text, reported, text)
        early = read(EXAMPLE).replace("    CUDA_TRY(cudaEventRecord(",
                                      wait % "compute_stream" + "\n    CUDA_TRY(cudaEventRecord(")
        text = self.make_start("START=" + self.write("early.c", early))
        self.assertIn("[race between streams]", text)

    def test_a_name_with_spaces_and_a_file_that_does_not_compile(self):
        text = self.make_start("START=" + self.write("my files/missing wait.c", read(EXAMPLE)))
        self.assertIn("my files/missing wait.c, then: make start", text)
        text = self.make_start("START=" + self.write("bad.c", "int main("), status=2)
        self.assertIn("bad.c:1:", text)


class OutOfMemory(Start):
    def test_what_demo_oom_says(self):
        done = run(program("demo.py", "oom", "--impl", "reference", "--build", build_folder(),
                           "--backend", "simgpu"), timeout=280, status=0, merged=True)
        printed = [settled(line) for line in done.stdout.splitlines()]
        self.expect(block("== Alone on one GPU"), printed)
        self.assertIn("GPT-2 of 4820992 parameters", done.stdout)
        self.assertIn("4,820,992 parameters cost 77.1 MB", " ".join(read(PAGE).split()))
        self.assertEqual("%.1f" % (4820992 * 16 / 1e6), "77.1")
        self.assertEqual("%.1f" % (4820992 * 4 / 1e6), "19.3")


if __name__ == "__main__":
    unittest.main()
