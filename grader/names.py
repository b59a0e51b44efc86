"""The names that objects and libraries define or use, by nm.

To ask nm takes 0.1 s, in every grading. So what it said of a file is kept in the build tree
(names.json), with the file's time and length, and it is asked of those that have changed since.

Interface: names_in(files, kept) -> set of names; OSError where nm cannot be started.
"""

import json
import os
import subprocess

from files import write_atomically

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def seen_before(kept):
    """{file: {"is": [time, length], "names": […]}}, as far as the file says so."""
    try:
        with open(kept, encoding="utf-8") as file:
            found = json.load(file)
        return {path: entry for path, entry in found.items()
                if isinstance(entry["is"], list) and isinstance(entry["names"], list)}
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return {}


def ask(files):
    """{file: names}, from nm: a line for each name, after `library.a[member.o]: ` or `file.o: `."""
    done = subprocess.run(["nm", "-P", "-A", "-g"] + files, cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    found = {path: set() for path in files}
    for line in done.stdout.splitlines():
        where, colon, rest = line.rpartition(": ")
        words = rest.split()
        path = where if where in found else where.rpartition("[")[0]
        if colon and words and path in found and words[0] != "_GLOBAL_OFFSET_TABLE_": # gcc 10's
            found[path].add(words[0])
    return found


def names_in(files, kept):
    """All names in the files, which exist; `kept`: where what is known of them is."""
    known, now = seen_before(kept), {}
    for path in files:
        info = os.stat(os.path.join(ROOT, path))
        now[path] = [info.st_mtime_ns, info.st_size]
    asked = [path for path in files if known.get(path, {}).get("is") != now[path]]
    if asked:
        for path, names in ask(asked).items():
            known[path] = {"is": now[path], "names": sorted(names)}
        write_atomically(kept, json.dumps(known))
    return {name for path in files for name in known[path]["names"]}
