"""Whether the kit is the one that was released: SUMS, which release.py writes, has a digest of each
file that is not the student's, and the build tree one of each object that was built for all.

A submission that found a way to write could replace a test before the next one is graded. So where
course staff grade, nothing is built of a kit that differs. A student may change theirs; that is a
warning. A checkout has no SUMS.

Interface: sums(files) -> the text of SUMS; differing(root) -> paths; look(root, warn) and
Made(root, build).look(), .keep(paths), which raise Differs.
"""

import hashlib
import json
import os
import re

from files import digest, write_atomically

NAME = "SUMS"
# What students write, and what they may as well change.
THEIRS = re.compile(r"skeleton/|labs/[^/]+/skeleton|\.github/|README\.md|handouts/")
# Where a file that was added would be built or run.
WATCHED = ("grader", "make", "tasks", "labs", "lib", "include", "simgpu", "gpulog", "plan",
           "examples", "tests", "given")
MAKEFILES = ("GNUmakefile", "makefile")


class Differs(Exception):
    """The kit is not what was released or built; the text names a file."""


def sums(files):
    """`files`: {path: bytes}"""
    return "".join("%s  %s\n" % (hashlib.sha256(data).hexdigest(), path)
                   for path, data in sorted(files.items()) if not THEIRS.match(path))


def released(root):
    """{path: digest}; empty where this is no release."""
    try:
        with open(os.path.join(root, NAME), encoding="utf-8") as file:
            return {path: total for total, path in (line.rstrip("\n").split("  ", 1)
                                                    for line in file)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return {NAME: "cannot be read"}


def differing(root):
    """The files that are changed or gone, by name; then those that were added."""
    known = released(root)
    if not known:
        return [], []
    changed = [path for path, total in sorted(known.items())
               if not os.path.isfile(os.path.join(root, path))
               or digest(os.path.join(root, path)) != total]
    added = [name for name in MAKEFILES if os.path.lexists(os.path.join(root, name))]
    for top in WATCHED:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            paths = [os.path.relpath(os.path.join(folder, name), root) for name in sorted(names)]
            added += [path for path in paths if path not in known and not THEIRS.match(path)]
    return changed, added


def look(root, warn):
    """Before anything is built. Where course staff grade (deliver.py is there), a difference ends
    the grading; elsewhere `warn` is told."""
    changed, added = differing(root)
    staff = os.path.exists(os.path.join(root, "grader", "course", "deliver.py"))
    if staff and changed + added:
        raise Differs("%s has changed since the release: unpack the archive again"
                      % (changed + added)[0])
    if changed:
        warn("grade: %s%s not as released. A course grades with its own kit." % (
            changed[0], " is" if len(changed) == 1 else
            " and %d other files are" % (len(changed) - 1)))


class Made:
    """What was built for all submissions, as it was when the last grading had built it."""

    def __init__(self, root, build):
        self.root = root
        self.path = os.path.join(root, build, "made.json")
        self.staff = NAME in os.listdir(root) and os.path.exists(
            os.path.join(root, "grader", "course", "deliver.py"))
        self.known = {}

    def entry(self, path):
        """What changes with the file, whoever sets its time: the kernel keeps the last one."""
        info = os.stat(os.path.join(self.root, path))
        return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]

    def look(self):
        """Before make is called."""
        if not self.staff or not os.path.exists(self.path):
            return
        with open(self.path, encoding="utf-8") as file:
            self.known = json.load(file)
        for path, (entry, total) in self.known.items():
            full = os.path.join(self.root, path)
            if os.path.exists(full) and self.entry(path) != entry and digest(full) != total:
                raise Differs("%s has changed since it was built: remove the build tree, grade "
                              "again" % path)

    def keep(self, paths):
        """After it."""
        if not self.staff:
            return
        now = {path: self.entry(path) for path in paths}
        for path, entry in now.items():
            if self.known.get(path, [None])[0] != entry:
                self.known[path] = [entry, digest(os.path.join(self.root, path))]
        write_atomically(self.path, json.dumps(self.known))
