#!/usr/bin/env python3
"""`make lint`: the habits that a program can see, in every file that git knows or would take.

    columns        a line of code has at most 100, unless it is one word
    clang-format   C and CUDA are as .clang-format says, by version 14: others differ
    shellcheck     scripts, and programs whose first line names a shell
    pyflakes3      Python: names that nobody uses or has defined

Interface: lint.py; exit status 0; 1 with a line for each thing that is wrong; 3 where a tool is not
there, and all else is well. long_lines(text) -> [(number, columns)].
"""

import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOST = 100
C_FILES = (".c", ".h", ".cu", ".cpp")
ATTACKS = "tests/attacks/" # how they are written is what they try
# What looks at files with these endings, as a command.
TOOLS = {"clang-format-14": (["--dry-run", "-Werror", "--ferror-limit=1"], C_FILES),
         "shellcheck": (["--format=gcc"], (".sh",)),
         "pyflakes3": ([], (".py",))}


def code_files(root):
    """{ending: paths} of all code that git knows. A shell's program without an ending has .sh."""
    found = {}
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=root, stdout=subprocess.PIPE, text=True,
                            check=True).stdout.splitlines()
    for path in listed:
        ending = os.path.splitext(path)[1]
        if os.path.basename(path) == "Makefile":
            ending = ".mk"
        elif ending not in (".py", ".mk", ".sh") + C_FILES and os.path.exists(
                os.path.join(root, path)):
            with open(os.path.join(root, path), "rb") as file:
                ending = ".sh" if re.match(rb"#!.*\b(ba)?sh\b", file.readline()) else ""
        if ending and os.path.exists(os.path.join(root, path)) and not path.startswith(ATTACKS):
            found.setdefault(ending, []).append(path)
    return found


def long_lines(text):
    """[(number, columns)] of the lines that are too long and could be broken."""
    return [(at, len(line)) for at, line in enumerate(text.splitlines(), 1)
            if len(line) > MOST and " " in line.strip(" \t#*/")]


def main():
    files = code_files(ROOT)
    wrong, missing = [], []
    for path in sorted(path for paths in files.values() for path in paths):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            wrong += ["%s:%d: %d columns" % (path, at, columns)
                      for at, columns in long_lines(file.read())]
    for tool, (options, endings) in TOOLS.items():
        if not shutil.which(tool):
            missing.append(tool)
            continue
        paths = [path for ending in endings for path in files.get(ending, [])]
        done = subprocess.run([tool] + options + paths, cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        # Of clang-format its first line for each file, not the code that it quotes.
        wrong += [line for line in done.stdout.splitlines() if re.match(r"\S+:\d+:", line)]
        if done.returncode != 0 and not wrong:
            wrong.append("%s failed: %s" % (tool, done.stdout.strip()[-500:]))
    for line in wrong:
        print(line)
    print("lint: %d files, %d things to fix" % (sum(map(len, files.values())), len(wrong)))
    if missing:
        print("lint: not all is checked; to do so: apt-get install %s" % " ".join(missing),
              file=sys.stderr)
    return 1 if wrong else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
