#!/usr/bin/env python3
"""Writes compile_commands.json, which tells clangd how each file is compiled.

Reads the commands that make would run (`make -Bn V=1`) on standard input and takes those that
compile a file. Each has the folder it runs in, so that paths stay relative.

Interface: compile_commands.py FILE; `make compile_commands.json` calls it.
"""

import json
import os
import shlex
import sys

from files import write_atomically


def entries(lines, folder):
    """One entry for each file; a file that is compiled twice has its first."""
    found = {}
    for line in lines:
        try:
            words = shlex.split(line)
        except ValueError: # a line of a recipe that goes on in the next
            continue
        if "--" in words: # a task file's: the command that it would be compiled with follows
            words = words[words.index("--") + 1:]
        if "-c" not in words[1:-1] or "-o" not in words:
            continue
        file = words[words.index("-c") + 1]
        if not file.endswith(".i"): # which is the same file once more
            found.setdefault(file, {"directory": folder, "file": file, "arguments": words})
    return [found[file] for file in sorted(found)]


def main():
    if len(sys.argv) != 2:
        print("compile_commands: FILE is missing", file=sys.stderr)
        return 2
    made = entries(sys.stdin, os.getcwd())
    if not made:
        print("compile_commands: make names no file that is compiled", file=sys.stderr)
        return 1
    write_atomically(sys.argv[1], json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
