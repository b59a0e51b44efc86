""".vscode/: its problem matchers find the places in what make start and make grade print, in
programs as they are; what its tasks name is there."""

import glob
import json
import os
import re
import unittest

from helpers import ROOT, ReferenceCopy, build_folder, in_terminal, outside_make, program, read, run

import manifest
import release

FOLDER = os.path.join(ROOT, ".vscode")
COLOUR = re.compile(r"\x1b\[[\d;]*m") # which an editor takes away before it looks


def load(name):
    return json.loads(read(FOLDER, name))


TASKS = {task["label"]: task for task in load("tasks.json")["tasks"]}


def problems(text, label="grade this task"):
    """{(file, line, message)} that the matchers of a task find in what was printed."""
    found = set()
    for line in COLOUR.sub("", text).splitlines():
        for matcher in TASKS[label]["problemMatcher"]:
            pattern = matcher["pattern"]
            match = re.search(pattern["regexp"], line)
            if match:
                found.add(tuple(match.group(pattern[name]) for name in ("file", "line", "message")))
    return found


class Matchers(ReferenceCopy):
    def setUp(self):
        super().setUp()
        self.copy = self.copy + "/skeleton" # whose files messages call skeleton/NAME.c
        os.rename(os.path.dirname(self.copy), self.path("away"))
        os.makedirs(os.path.dirname(self.copy))
        os.rename(self.path("away"), self.copy)

    def found(self, text):
        """The same with lines as numbers, and each of a file that is there."""
        for file, _, message in problems(text):
            self.assertTrue(os.path.exists(os.path.join(ROOT, file)), message)
        return {(file, int(line)): message for file, line, message in problems(text)}

    def on_both(self, *words):
        """What a grading prints into a pipe, and on a narrow terminal."""
        _, _, out = self.grade(*words)
        _, shown = in_terminal(program("grade.py", "--impl", self.copy, "--build", build_folder(),
                                       "--out", self.path("out", "results.json"), *words), ROOT)
        return out, shown

    def test_a_report(self):
        """As simgpu prints it, and in a test's message."""
        text = run(["make", "-s", "start", "START_DIR=" + self.path("start")], timeout=280,
                   merged=True, environment=outside_make()).stdout
        lines = read(ROOT, "examples", "missing_wait.c").splitlines()
        for call in "kernel_add", "ncclAllGather":
            places = [line for (_, line), message in self.found(text).items()
                      if message.startswith(call + ", called at examples/missing_wait.c:")]
            self.assertEqual([call + "(" in lines[line - 1] for line in places], [True])
        line = self.rewrite("forward.c", "CUDA_TRY(cudaStreamWaitEvent(unit->ctx->compute_stream",
                            "(void)sizeof(cudaStreamWaitEvent(unit->ctx->compute_stream")
        for text in self.on_both("--task", "3"):
            self.assertIn("race between streams", text)
            self.assertTrue([one for (file, one) in self.found(text)
                             if file == "skeleton/forward.c" and one < line])

    def test_a_part_that_is_not_written(self):
        line = self.change("forward.c", "fsdp_unshard", 'NOT_YET("3.2");')
        for text in self.on_both("--task", "3"):
            self.assertIn(("skeleton/forward.c", line), self.found(text))

    def test_what_does_not_compile(self):
        line = self.change("meta_init.c", "meta_numel", "int x = nowhere;")
        for text in self.on_both("--task", "1"):
            self.assertIn("meta_init.c does not compile",
                          self.found(text)[("skeleton/meta_init.c", line)])

    def test_a_lab(self):
        out = run(program("grade.py", "--impl", os.path.join(ROOT, "skeleton"), "--build",
                          build_folder(), "--lab", "3_prefetch", "--out", self.path("r.json")),
                  timeout=280, status=0).stdout
        self.assertTrue(any(file == "labs/3_prefetch/skeleton.c" for file, _ in self.found(out)))

    def test_what_names_no_place_of_a_students(self):
        for line in ("Score: 3/14", "  ok     counts_elements   2/2", "1:2: 3", "a b.c:3",
                     "called at reference/forward.c:57 (fsdp_all_gather),",
                     "tests/support/harness.c:12: x", "(made at reference/api.c:27)"):
            self.assertEqual(problems(line), set(), line)


class Files(unittest.TestCase):
    def test_what_tasks_run(self):
        """Each command is a target; a file's name is that of a task, its folder's of a lab."""
        rules = "".join(read(path) for path in glob.glob(os.path.join(ROOT, "make", "*.mk")))
        for task in TASKS.values():
            target = re.match(r"make (?:-s )?(\S+)", task["command"]).group(1)
            self.assertTrue("/suite/" in target or re.search(r"(?m)^%s:" % target, rules), target)
        for kind, words in ((manifest.TASK, lambda task: task.file[:-2]),
                            (manifest.LAB, lambda lab: os.path.basename(lab.folder))):
            every = manifest.load(ROOT, kind)
            for task in every:
                self.assertEqual(manifest.choose(every, words(task)), [task])

    def test_when_a_grading_begins_and_ends(self):
        background = TASKS["watch this task"]["problemMatcher"][0]["background"]
        for line in "Grading skeleton/forward.c …", "12:30:01  skeleton/forward.c saved":
            self.assertRegex(line, background["beginsPattern"])
        self.assertRegex("Score: 16/16 (task 3 only)", background["endsPattern"])

    def test_a_rank_for_gdb(self):
        launch, = load("launch.json")["configurations"]
        waits = TASKS[launch["preLaunchTask"]]
        ends = waits["problemMatcher"][0]["background"]["endsPattern"]
        self.assertRegex("rank 1 of 2 waits for a debugger: gdb -p 4711", ends)
        self.assertRegex("gdb: there is no test x; `make grade` lists the tests", ends)
        asked = {entry["id"] for entry in load("tasks.json")["inputs"]}
        self.assertLessEqual(set(re.findall(r"\$\{input:(\w+)\}", str(TASKS))), asked)

    def test_extensions(self):
        container = json.loads(read(ROOT, ".devcontainer", "devcontainer.json"))
        self.assertEqual(load("extensions.json")["recommendations"],
                         container["customizations"]["vscode"]["extensions"])

    def test_students_have_them(self):
        self.assertIn(".vscode", release.STUDENT_FOLDERS)


if __name__ == "__main__":
    unittest.main()
