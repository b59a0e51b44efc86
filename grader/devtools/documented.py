#!/usr/bin/env python3
"""Which commands the pages print, and what runs each of them: what nothing runs goes stale.

A command is a line of an indented or fenced block, or a code span (those of tables too), whose
first word, after settings such as SEED=8812, is one of PROGRAMS or a program of build/. A block
with a loop, and a script, are one command. CHECKS says of each command how it is checked:

    QUICK      tests/grader/test_documented.py runs it: `make test` a third of them, by the seed
    PROOF      a test of `make test` or `make test-all` runs it already: which one
    LONG       `make test-all` runs it
    ELSEWHERE  it cannot be run here: why. The targets, variables, files and options that it names
               must exist, as those of all others

Interface: documented.py [--long] checks the table, and with --long runs the LONG ones, a line each;
exit status 1 if anything is wrong. problems(pages), commands(text), quick(), Check.run(folder).
"""

import argparse
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import manifest

PAGES = ("README.md", "CONTRIBUTING.md", "handouts/*.md", "labs/*/handout.md",
         "simgpu/README.md", "simgpu/pages/*.md",
         "grader/course/platforms/student/README.md", "bench/README.md")
PROGRAMS = {"make", "python3", "sh", "bash", "cc", "export", "for", "rm", "cd", "git", "apt-get",
            "launch", "mpirun", "torchrun", "srun", "sbatch", "nvidia-smi", "gdb", ".ci/run"}
QUICK, PROOF, LONG, ELSEWHERE = "quick", "proof", "long", "elsewhere"
LIMITS = {QUICK: 120, LONG: 3600} # seconds


@dataclass
class Check:
    """How a command is checked. command: an expression that it matches from end to end; why: of
    PROOF the tests, of ELSEWHERE the reason; run: what is run where it is not the command itself
    ($TMP is an empty folder); want: an expression that is then printed."""
    command: str
    how: str
    why: str = ""
    run: str = ""
    want: str = ""

    def script(self):
        return self.run or self.command.replace("\\", "")

    def execute(self, folder):
        """Runs it in the kit; ("" or what went wrong, what it printed)."""
        factor = float(os.environ.get("SHARDLAB_TIME_FACTOR", "1"))
        unwanted = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "IMPL", "TASK", "BUILD")
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        process = subprocess.Popen(["sh", "-c", self.script()], cwd=ROOT, text=True,
                                   env=dict(environment, TMP=folder), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   errors="replace", start_new_session=True)
        try:
            text, _ = process.communicate(timeout=LIMITS[self.how] * factor)
        except BaseException as problem:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
            if isinstance(problem, subprocess.TimeoutExpired):
                return "it took longer than %g s" % (LIMITS[self.how] * factor), text
            raise
        if process.returncode != 0:
            return "exit status %d" % process.returncode, text
        if not re.search(self.want, text):
            return "it did not print %r" % self.want, text
        return "", text


def test(file, *names):
    return "tests/%s::%s" % (file, ",".join(names))


ARCHIVE = test("grader/test_platforms.py", "Platforms.test_6_every_target_of_make_help_works")
STUDENT = test("grader/test_platforms.py", "Platforms.test_1_student_and_github")
REAL = test("grader/test_real_suites.py", "RealSuites.test_the_reference_has_all_points")
SEEDS = test("grader/test_grade.py", "Seeds.test_a_seed_is_taken_back")
AFTER = test("fsdp/examples.c", "after_trains_on_four")
NO_GPU = "no GPU is at hand"
NO_LAUNCHER = ("needs that launcher, for several hosts those too; tests/launch/env.c sets its "
               "variables, simgpu/tests/programs.c runs mpirun where there is one")
HOSTS = "needs several hosts"
SUITE = "make -s IMPL=reference build/impl/reference/suite/forward && "
NO_GDB = "command -v gdb >/dev/null || { echo no gdb here; exit 0; }; "
STAND_INS = "stands for a program of the reader's"


def training(options, ranks=4, steps=3):
    """Some steps of a model of two small blocks, by the reference's files."""
    return ("make -s IMPL=reference example-programs && build/bin/launch -n %d "
            "build/impl/reference/bin/train_gpt2 --layers 2 --dim 64 --steps %d --sample 0 %s "
            "README.md" % (ranks, steps, options))


def lab_training(options):
    """A check of the command by which a lab's handout trains."""
    return Check(r"build/bin/launch -n 4 build/bin/train_gpt2 %s FILE" % options, QUICK,
                 run=training(options), want="step +3 of 3")


def numbers(kind):
    return "|".join(str(task.number) for task in manifest.load(ROOT, kind))


CHECKS = (
    # Grading and what belongs to it.
    Check(r"make grade", PROOF, STUDENT),
    Check(r"make grade TASK=(%s|[nN])" % numbers(manifest.TASK), PROOF, ARCHIVE),
    Check(r"make grade TASK=4 SEED=8812", PROOF, SEEDS),
    Check(r"make grade LAB=(%s|all|strategies)" % numbers(manifest.LAB), PROOF,
          test("grader/test_labs.py", "Grading.test_the_skeleton_gets_nothing")),
    Check(r"make quiz( TASK=n| LAB=\d| ID=anna@example\.edu)?", PROOF,
          test("grader/test_quiz.py", "Command.test_asks_then_marks",
               "Command.test_the_numbers_are_the_file_s")),
    Check(r"make challenge( IMPL=DIR)?", PROOF,
          test("grader/test_challenge.py", "Command.test_a_plan")),
    Check(r"make plan MODEL=gpt2-xl GPUS=1024 BATCH=4096", QUICK,
          run="make plan IMPL=reference MODEL=gpt2-xl GPUS=1024 BATCH=4096",
          want=r"It fits: [\s\S]*MFU [\s\S]*What would help most: "),
    Check(r"make plan MODEL=gpt2-medium GPUS=8 BATCH=64 RANKS=all SLOW=3:10% "
          r"DTYPE=float EFFICIENCY=100", QUICK,
          run="for slow in '' SLOW=3:10%; do make plan IMPL=reference MODEL=gpt2-medium GPUS=8 "
              "BATCH=64 RANKS=all DTYPE=float EFFICIENCY=100 $slow; done",
          want=r"step takes 386 ms[\s\S]*exposed 1\.5\s[\s\S]*step takes 424 ms[\s\S]*"
               r"exposed 11\.2\s[\s\S]*idle\s+31\.0"),
    Check(r"make plan MODEL=gpt2 GPUS=128 BATCH=128 SEQ=256 DTYPE=tf32 REGROUP=0", QUICK,
          run="for with in '' REGROUP=0; do make plan IMPL=reference MODEL=gpt2 GPUS=128 BATCH=128 "
              "SEQ=256 DTYPE=tf32 $with; done",
          want=r"step takes 18\.3 ms[\s\S]*exposed 13\.3\s[\s\S]*step takes 9\.7 ms[\s\S]*"
               r"exposed 5\.0\s"),
    Check(r"make compare( DTYPE=bf16| STAGES=2 SCHEDULE=1f1b| LAYOUT=per_parameter GATHER=fp8|"
          r" GRAPH=yes REGROUP=0)?",
          LONG,
          run="for with in '' DTYPE=bf16 'STAGES=2 SCHEDULE=1f1b' "
              "'LAYOUT=per_parameter GATHER=fp8' 'GRAPH=yes REGROUP=0'; "
              "do make compare IMPL=reference $with || exit 1; done",
          want=r"(HSDP, 2 replicas[\s\S]*){5}"),
    Check(r"make grade IMPL=DIR", PROOF, test("grader/test_real_suites.py",
                                              "RealSuites.test_a_copy_elsewhere_has_all_points")),
    Check(r"make grade IMPL=reference( TASK=N)?", PROOF, REAL),
    Check(r"make grade HTML=1", PROOF, STUDENT),
    Check(r"make grade HTML=1 IMPL=reference", LONG, want=r"Score: (\d+)/\1\b"),
    Check(r"make grade NO_INSTALL=1", PROOF, test("grader/test_setup.py",
                                                  "Setup.test_no_install_names_the_command")),
    Check(r"make hint( TASK=[2n])?", PROOF, ARCHIVE),
    Check(r"make watch", PROOF, ARCHIVE),
    Check(r"python3 grader/page\.py results\.json > page\.html", PROOF,
          test("grader/test_page.py", "CommandLine.test_a_page_of_results")),
    Check(r"make grade-all(?: DIR=submissions JOBS=2)?", LONG,
          run="mkdir $TMP/submissions && cp -r reference $TMP/submissions/one && "
              "cp -r skeleton $TMP/submissions/two && "
              "make grade-all DIR=$TMP/submissions JOBS=2 OUT=$TMP/all && ls $TMP/all/results && "
              "cat $TMP/all/points.csv",
          want=r"one\.json\ntwo\.json\n[\s\S]*\none,all,110,,\ntwo,task 1,0,,[\s\S]*\ntwo,all,0,"),

    # A debugging session.
    Check(r"build/impl/skeleton/suite/forward --list", QUICK,
          run=SUITE + "build/impl/reference/suite/forward --list",
          want="unshard_gathers_all_shards"),
    Check(r"build/impl/skeleton/suite/forward --only unshard_gathers_all_shards", PROOF,
          test("grader/test_debugging.py", "Printed.test_standard_output_is_shown")),
    Check(r"make gdb TEST=(unshard_gathers_all_shards WORLD=2 RANK=1 BREAK=fsdp_unshard|name)",
          LONG, run=NO_GDB + "echo bt | make IMPL=reference gdb TEST=unshard_gathers_all_shards "
          "WORLD=2 RANK=1 BREAK=fsdp_unshard",
          want=r"no gdb here|#1 .* gather_body"),
    Check(r"build/bin/launch -n 2 sh -c '\[ \$RANK = 1 \] && exec gdb .*", LONG,
          run=NO_GDB + "make -s start >/dev/null 2>&1 && build/bin/launch -n 2 sh -c "
          "'[ $RANK = 1 ] && exec gdb -q -batch -ex \"break forward\" -ex run -ex bt "
          "-ex \"print *layer\" -ex continue build/start/missing_wait; "
          "exec build/start/missing_wait' 2>&1",
          want=r"no gdb here|sharded = 0x[\s\S]*exited normally"),

    # What the kit builds and shows.
    Check(r"make help", QUICK, want="(?m)^make grade"),
    Check(r"make build( IMPL=reference)?", PROOF, ARCHIVE),
    Check(r"make clean", PROOF, ARCHIVE),
    Check(r"make compile_commands\.json", PROOF, ARCHIVE),
    Check(r"make demo-oom", PROOF, ARCHIVE),
    Check(r"make start", PROOF, test("grader/test_start.py", "Repaired.test_after_the_line",
                                     "Missing.test_the_report")),
    Check(r"make demo", LONG),
    Check(r"make gpt2-medium", LONG, want=r"PASSED  \] 1 test"),
    Check(r"make check-model", LONG,
          want=r"mean error 8\.3 %[\s\S]*mean error 4\.9 %[\s\S]*all, left out: mean [1-5]\.\d %"),
    Check(r"make bench( BENCH=full)?", PROOF,
          test("grader/test_bench_run.py", "Run.test_a_page_of_figures")),
    Check(r"make check-trace", ELSEWHERE, "it takes a package from PyPI"),
    Check(r"make compare-pytorch", ELSEWHERE, "it takes 3 GB of packages from PyPI"),
    Check(r"make (check-)?site", ELSEWHERE, "it takes packages from PyPI, and a browser"),
    Check(r"make check-aarch64", ELSEWHERE,
          "it takes a cross compiler, qemu and a quarter of an hour"),
    Check(r"make check-pytorch-map", ELSEWHERE, "it takes 3 GB of packages from PyPI"),
    Check(r"make pairs", LONG, want=r"as the oracle: all \d+ sets of three values"),
    Check(r"make soak", LONG, run="make soak SOAK_SECONDS=300", want=r"PASSED  \] 1 test"),
    Check(r"make check-clock", LONG, want=r"10000 programs, \d+ calls: all times equal"),
    Check(r"python3 grader/devtools/figure\.py", QUICK,
          run="python3 -B grader/devtools/figure.py --out $TMP && for i in memory step; do "
              "cmp $TMP/$i.svg handouts/figures/$i.svg || exit; done && echo the same",
          want="the same"),

    # only simgpu.
    Check(r"make simgpu", PROOF, ARCHIVE),
    Check(r"make install PREFIX=(DIR|\$HOME/simgpu)", PROOF,
          test("grader/test_install.py", "Installed.test_a_program_elsewhere")),
    Check(r"export PKG_CONFIG_PATH=DIR/lib/pkgconfig", PROOF,
          test("grader/test_setup.py", "RealCompiler.test_libraries_in_a_folder_of_ones_own")),
    Check(r"make CC=clang …", ELSEWHERE, ".ci/run grades the reference so, where there is a clang"),
    Check(r'export PKG_CONFIG_PATH="\$PWD/build/lib/pkgconfig"', QUICK,
          run='export PKG_CONFIG_PATH="$PWD/build/lib/pkgconfig" && make -s simgpu && '
              "pkg-config --libs simgpu", want="-lsimgpu"),
    Check(r"cc -g prog\.c \$\(pkg-config --cflags --libs simgpu\) -o prog", QUICK,
          run='export PKG_CONFIG_PATH="$PWD/build/lib/pkgconfig" && make -s simgpu && cd $TMP && '
              "printf '%s\\n' '#include <cuda_runtime.h>' '#include <stdio.h>' 'int main(void) {' "
              "'int n; return cudaGetDeviceCount(&n) || printf(\"%d devices\\n\", n) < 0; }' "
              ">prog.c && case $PKG_CONFIG_PATH in "
              "*' '*) eval \"cc -g prog.c $(pkg-config --cflags --libs simgpu) -o prog\" ;; "
              "*) cc -g prog.c $(pkg-config --cflags --libs simgpu) -o prog ;; esac && ./prog",
          want=r"\d+ devices"),
    Check(r"SIMGPU_CHECK=… build/bin/launch -n 4 build/bin/train_gpt2 --steps 60 --sample 0 "
          r"handouts/\*\.md", LONG,
          run="make -s build IMPL=reference && for check in off fast full; do "
              "SIMGPU_CHECK=$check build/bin/launch -n 4 build/bin/train_gpt2 --steps 60 "
              "--sample 0 handouts/*.md || exit 1; done",
          want=r"(step +60 of 60[\s\S]*){3}"),

    # Training, in the labs.
    lab_training("--dtype bf16 --reduce-dtype float"),
    lab_training("--prefetch 2"),
    lab_training("--recompute blocks --offload"),
    lab_training("--layout per_parameter --gather fp8"),
    lab_training("--stages 2 --pipeline 1f1b --accumulate 8"),
    lab_training("--graph --regroup 0"),
    Check(r"build/bin/launch -n [34] build/bin/train_gpt2 (--save DIR --every 20|--resume DIR) "
          "FILE",
          QUICK, run=training("--save $TMP/checkpoint") + " && " +
          training("--resume $TMP/checkpoint", 3, 5),
          want=r"step +3 of 3[\s\S]*step +5 of 5"),

    Check(r"build/bin/launch -n 4 build/bin/train_gpt2 --from MODEL .* --export NEW", PROOF,
          test("fsdp/train_gpt2.c", "a_model_leaves_and_comes_back")),
    Check(r"build/bin/launch -n [24] build/bin/train_gpt2 --from MODEL .* "
          r"(--save DIR --save-every 50|--resume DIR)", PROOF,
          test("fsdp/train_gpt2.c", "saves_in_the_background")),
    Check(r"build/bin/launch -n 2 build/bin/train_gpt2 --from NEW --generate .*", PROOF,
          test("fsdp/train_gpt2.c", "draws_by_temperature_and_seed")),
    Check(r"make tokenizers", ELSEWHERE, "it takes a package from PyPI"),

    # Starting ranks.
    Check(r"build/bin/launch -n 4 build/bin/after_fsdp README\.md", PROOF, AFTER),
    Check(r"build/bin/launch -n 4 build/bin/fsdp_300 README\.md", PROOF,
          test("fsdp/examples.c", "one_file_trains_on_three")),
    Check(r"build/bin/launch -n 4 (PROGRAM ARGUMENTS|\./prog)", ELSEWHERE, STAND_INS),
    Check(r"launch --limit( 60)?", PROOF, test("launch/program.c", "test_limit")),
    Check(r"SHARE_GPU=1 build/bin/launch -n 4 build/bin/after_fsdp README\.md", PROOF,
          test("launch/share.c", "test_training_is_the_same")),
    Check(r"build/bin/launch -n 4 --share-gpu build/bin/after_fsdp README\.md", PROOF,
          test("launch/program.c", "test_more_ranks_than_devices")),
    Check(r"(torchrun|mpirun|srun) .*(PROGRAM|after_fsdp README\.md)", ELSEWHERE, NO_LAUNCHER),
    Check(r"#!/bin/bash #SBATCH .*", ELSEWHERE, HOSTS),
    Check(r"nvidia-smi -q -d COMPUTE", ELSEWHERE, NO_GPU),

    # Real GPUs.
    Check(r"make BACKEND=cuda …", ELSEWHERE, NO_GPU),
    Check(r"make BACKEND=cuda (grade|demo)", ELSEWHERE, NO_GPU),
    Check(r"make BACKEND=cuda SANITIZE=memcheck test", ELSEWHERE, NO_GPU),
    Check(r"make BACKEND=emulated-cuda( …| test)", LONG, run="make BACKEND=emulated-cuda test",
          want=r"(?m)^\d+ passed, 0 failed"),

    # The kit's own tests, and what course staff run.
    Check(r"make test", ELSEWHERE, "it is what runs this check"),
    Check(r"make test-simgpu", ELSEWHERE, "its tests are in make test, which runs this check"),
    Check(r"make test-all", ELSEWHERE, "it is what runs this check"),
    Check(r"make mutants", LONG),
    Check(r"make mutants (TASK|LAB)=N", PROOF,
          test("grader/test_mutants.py", "Mutants.test_only_and_task")),
    Check(r"python3 grader/devtools/check_tasks\.py", PROOF,
          test("grader/test_manifest.py", "Kit.test_names_are_those_of_the_suites")),
    Check(r"make mutants TASK=2", LONG),
    Check(r"make mutation( TASK=2)?", PROOF, test("grader/test_mutation.py",
                                               "Machine.test_what_becomes_of_them")),
    Check(r"make alternatives", LONG),
    Check(r"make claims", QUICK, want=r"\d+ claims"),
    Check(r"make lint", ELSEWHERE, "it needs tools that .ci/run installs, and runs it"),
    Check(r"make flakiness", LONG),
    Check(r"make skeleton", PROOF, test("grader/test_skeleton.py",
                                        "Program.test_write_then_check",
                                        "Program.test_a_students_work_is_kept")),
    Check(r"make regrade(?: EXPORT=submissions\.zip)?", PROOF, test(
        "grader/test_grade_export.py", "Again.test_an_archive_twice")),
    Check(r"make release", LONG, run="make release OUT=$TMP/release && ls $TMP/release",
          want="student.tar.gz"),
    Check(r"make release GAPS=2", PROOF, test(
        "grader/test_release.py",
        "Archives.test_with_gaps_2_more_is_left_to_be_written_and_is_secret")),
    Check(r"make release AT=TAG", LONG, run="make release AT=HEAD OUT=$TMP/release",
          want="student.tar.gz"),
    Check(r"python3 grader/course/release\.py --out DIR --given shardlab/given", LONG,
          run="make release OUT=$TMP/release && tar xzf $TMP/release/*student.tar.gz -C $TMP && "
              "mv $TMP/shardlab/given/reference-* $TMP/shardlab/given/reference-elsewhere && "
              "python3 grader/course/release.py --out $TMP/both --given $TMP/shardlab/given && "
              "tar tzf $TMP/both/*student.tar.gz",
          want="given/reference-elsewhere/api.o"),
    Check(r"for s in \$\(seq 300\); do .* done", LONG,
          run="make -s IMPL=reference build/impl/reference/suite/backward && for s in $(seq 30); "
              "do SEED=$s build/impl/reference/suite/backward >$TMP/out 2>&1 || exit 1; done; "
              "echo thirty seeds passed", want="thirty seeds passed"),
)


# ---- The commands of a page ----

SETTING = re.compile(r"[A-Z_]+=\S*")
MARK = re.compile(r" {0,3}(```|~~~)")


def is_command(text):
    """Whether a line or span is a command: its first word that sets no variable, and one more."""
    words = text.split()
    while words and SETTING.fullmatch(words[0]):
        words.pop(0)
    if words[:1] == ["for"]:
        return words[2:3] == ["in"] and not text.rstrip().endswith(":") # not C's, not Python's
    return len(words) > 1 and (words[0] in PROGRAMS or words[0].startswith(("build/bin/",
                                                                                    "build/impl/")))


def split(text):
    """(blocks, prose): the blocks as (number of the first line, lines), and the lines that are in
    none, with empty ones in the place of the others."""
    blocks, prose, block, fence, before = [], [], None, None, ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = MARK.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = None if fence else mark.group(1)
            block = [] if fence else None
            if fence:
                blocks.append((number + 1, block))
        elif fence:
            block.append(line)
        elif line.startswith("    ") and (block is not None or not before.strip()):
            if block is None:
                block = []
                blocks.append((number, block))
            block.append(line[4:])
        elif not line.strip() and block is not None:
            block.append("")
        else:
            block = None
            prose.append((number, line))
            before = line
            continue
        prose.append((number, ""))
        before = line
    return blocks, prose


def flat(text):
    return " ".join(text.split())


def of_block(number, lines):
    """[(line number, command)] of a block."""
    if lines[0].startswith("#!") or any(re.match(r"\s*done\b", line) for line in lines):
        return [(number, flat(" ".join(lines)))]
    found, i = [], 0
    while i < len(lines):
        first, line = i, lines[i]
        while line.endswith("\\") and i + 1 < len(lines):
            i += 1
            line = line[:-1].rstrip() + " " + lines[i].strip()
        line = re.split(r" {2,}", line.strip())[0] # what follows explains it
        if is_command(line):
            found.append((number + first, flat(line)))
        i += 1
    return found


def paragraphs(prose):
    """[(number of the first line, text)]: a code span ends where its paragraph does."""
    found = []
    for number, line in prose:
        if not line.strip():
            found.append((number + 1, ""))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
        else:
            found.append((number, line + "\n"))
    return found


def commands(text):
    """[(line number, command)] of a page."""
    blocks, prose = split(text)
    found = [place for number, lines in blocks for place in of_block(number, lines)]
    for number, paragraph in paragraphs(prose):
        for span in re.finditer(r"`([^`]+)`", paragraph):
            command = flat(span.group(1).replace("\\|", "|"))
            if is_command(command):
                found.append((number + paragraph.count("\n", 0, span.start()), command))
    return sorted(found)


# ---- What is wrong ----

def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def pages():
    """{page: text}"""
    paths = [path for pattern in PAGES for path in sorted(glob.glob(os.path.join(ROOT, pattern)))]
    return {os.path.relpath(path, ROOT): read(path) for path in paths}


def makefile_text():
    """The Makefile and its parts, one after the other."""
    parts = sorted(glob.glob(os.path.join(ROOT, "make", "*.mk")))
    return "".join(read(path) for path in ["Makefile"] + parts)


def source_of(program):
    """The source that reads the command line of a program of the kit, or None where a command names
    none."""
    name = os.path.basename(program)
    suite = re.fullmatch(r"build/impl/\w+/suite/(\w+)", program)
    if suite:
        task = glob.glob(os.path.join(ROOT, "tasks", "[0-9]*_" + suite.group(1), "tests.c"))
        return "tests/support/suite.c" if task else ""
    if program.startswith(("build/bin/", "build/cuda/bin/")) or program == "launch":
        found = [path for path in ("examples/%s/options.c" % name, "examples/%s.c" % name,
                                   "lib/launch/main/%s.c" % name)
                 if os.path.exists(os.path.join(ROOT, path))]
        return found[0] if found else ""
    if program.startswith("grader/") and program.endswith(".py"):
        return program if os.path.exists(os.path.join(ROOT, program)) else ""
    return None


def unknown(command):
    """What a command names that does not exist, as sentences."""
    words = command.split()
    makefile = makefile_text()
    targets = re.findall(r"(?m)^## make (\S+)", makefile)
    said, source = [], None
    for i, word in enumerate(words):
        if word == "make":
            source = "Makefile"
        elif source == "Makefile" and re.fullmatch(r"[a-z][\w.-]*", word):
            if word not in targets:
                said.append("there is no target %s" % word)
        elif source == "Makefile" and SETTING.fullmatch(word):
            if not re.search(r"\b%s\b" % word.split("=")[0], makefile):
                said.append("the Makefile knows no %s" % word.split("=")[0])
        elif source_of(word) is not None:
            source = source_of(word)
            if not source:
                said.append("there is no program %s" % word)
        elif source and re.fullmatch(r"--[a-z-]+", word):
            if not re.search(r'"(--)?%s["=]' % word[2:], read(source)):
                said.append("%s knows no %s" % (source, word))
        elif word in ("mpirun", "torchrun", "srun"):
            source = None
    return said


def missing_tests(why):
    """The tests of a PROOF that are not there."""
    path, _, names = why.partition("::")
    if not os.path.exists(os.path.join(ROOT, path)):
        return [path]
    text = read(path)
    missing = []
    for name in names.split(","):
        wanted = [r"(?m)^class %s\b", r"(?m)^    def %s\("] if path.endswith(".py") else \
                 [r"(?m)^\w*TEST\w*\(%s\b"]
        for part, pattern in zip(name.split(".") if len(wanted) == 2 else [name], wanted):
            if not re.search(pattern % re.escape(part), text):
                missing.append("%s::%s" % (path, name))
                break
    return missing


def problems(texts, checks=CHECKS):
    """What is wrong with pages and table, a line each."""
    found, used = [], set()
    for page, text in texts.items():
        for number, command in commands(text):
            place = "%s:%d: `%s`" % (page, number, command)
            matching = [check for check in checks if re.fullmatch(check.command, command)]
            if not matching:
                found.append("%s: nothing checks it (CHECKS in grader/devtools/documented.py)"
                             % place)
            used.update(id(check) for check in matching)
            found += ["%s: %s" % (place, what) for what in unknown(command)]
    for check in checks:
        if id(check) not in used:
            found.append("documented.py: no page has a command that matches `%s`" % check.command)
        if check.how == PROOF:
            found += ["documented.py: `%s`: there is no test %s" % (check.command, test)
                      for test in missing_tests(check.why)]
        if check.how == ELSEWHERE and not check.why:
            found.append("documented.py: `%s`: no reason is given" % check.command)
    return found


def quick():
    return [check for check in CHECKS if check.how == QUICK]


# ---- The long tier ----

def run_long():
    """Runs the LONG ones; how many failed."""
    failed, long_ones = 0, [check for check in CHECKS if check.how == LONG]
    for check in long_ones:
        began = time.monotonic()
        print("%s" % check.script()[:90], flush=True)
        with tempfile.TemporaryDirectory(prefix="shardlab-documented-") as folder:
            wrong, text = check.execute(folder)
        print("    %-40s %6.0f s" % (wrong or "works", time.monotonic() - began), flush=True)
        if wrong:
            failed += 1
            print("".join("    | %s\n" % line for line in text.splitlines()[-40:]), flush=True)
    print("%d documented commands work, %d do not" % (len(long_ones) - failed, failed))
    return failed


def main():
    parser = argparse.ArgumentParser(description="Check the commands that the pages print.")
    parser.add_argument("--long", action="store_true", help="run those that `make test` does not")
    options = parser.parse_args()
    found = problems(pages())
    for line in found:
        print(line)
    if options.long:
        return 1 if run_long() + len(found) else 0
    print("%d commands of %d pages are checked" % (
        sum(len(commands(text)) for text in pages().values()), len(pages())))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
