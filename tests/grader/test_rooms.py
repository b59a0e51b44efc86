"""Rooms have an order. Of the grader: grader/ is what students and platforms run, grader/course/
what course staff run, grader/devtools/ what developers of the kit run. The latter two import from
grader/, and nothing else crosses; every program there runs from any folder. Of simgpu/src: a room
includes those below it alone, in the order that simgpu/README.md gives."""

import ast
import glob
import os
import re
import subprocess
import sys
import unittest

from helpers import COURSE, DEVTOOLS, GRADER, ROOT, TempFolder, read

ROOMS = {"grader": GRADER, "course": COURSE, "devtools": DEVTOOLS}
MAY_USE = {"grader": {"grader"}, "course": {"course", "grader"}, "devtools": {"devtools", "grader"}}
# How a program of course/ and devtools/ finds the modules of grader/: the same lines everywhere.
PATH = '''ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))
'''


def files(room):
    """The Python files of a room; of grader/ its emitters too."""
    found = glob.glob(os.path.join(ROOMS[room], "*.py"))
    return sorted(found + (glob.glob(os.path.join(GRADER, "emit", "*.py"))
                           if room == "grader" else []))


def imported(text):
    """The top names of all modules that a program imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    return names


def module_rooms():
    """{module: its room}"""
    rooms = {os.path.splitext(os.path.basename(path))[0]: room for room in ROOMS
             for path in files(room) if os.path.dirname(path) == ROOMS[room]}
    return dict(rooms, emit="grader")


def crossing(text, room, rooms):
    """The modules that a program of the room must not import."""
    return sorted(name for name in imported(text)
                  if name in rooms and rooms[name] not in MAY_USE[room])


class Rooms(TempFolder):
    def test_imports_go_one_way(self):
        rooms = module_rooms()
        for room in ROOMS:
            self.assertIn(room, rooms.values())
            for path in files(room):
                self.assertEqual(crossing(read(path), room, rooms), [], "%s imports what its room "
                                 "must not: move that to grader/" % os.path.relpath(path, ROOT))

    def test_what_the_check_finds(self):
        rooms = {"release": "course", "mutants": "devtools", "grade": "grader"}
        text = "import grade, release\ndef late():\n    from mutants import run\n"
        self.assertEqual(crossing(text, "grader", rooms), ["mutants", "release"])
        self.assertEqual(crossing(text, "course", rooms), ["mutants"])
        self.assertEqual(crossing(text, "devtools", rooms), ["release"])

    def test_no_two_modules_have_one_name(self):
        names = [os.path.basename(path) for room in ROOMS for path in files(room)
                 if os.path.dirname(path) == ROOMS[room]]
        self.assertEqual(len(names), len(set(names)))

    def test_the_path_is_found_in_one_way(self):
        rooms = module_rooms()
        for room in ("course", "devtools"):
            for path in files(room):
                text = read(path)
                uses = any(rooms.get(name) == "grader" for name in imported(text))
                if uses and '__name__ == "__main__"' in text:
                    self.assertIn(PATH, text, os.path.relpath(path, ROOT))
                self.assertEqual(text.count("sys.path"), text.count(PATH) +
                                 text.count("sys.path.insert(0, folder)"), path)

    def test_programs_run_from_anywhere(self):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
        for room in ROOMS:
            for path in files(room):
                text = read(path)
                if '__name__ == "__main__"' not in text or "ArgumentParser" not in text:
                    continue
                program = os.path.dirname(path) if path.endswith("__main__.py") else path
                done = subprocess.run([sys.executable, "-B", program, "--help"], cwd=self.folder,
                                      env=environment, stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), program)
                self.assertIn("usage:", done.stdout, program)


SIMGPU = os.path.join(ROOT, "simgpu", "src")


def room_order(text):
    """{room: the rooms below it}, from the list at the top of simgpu/README.md, highest first."""
    lines = re.findall(r"^    ((?:[a-z]+/ )+)", text, re.M)
    order, below = {}, set()
    for rooms in reversed([re.findall(r"[a-z]+", line) for line in lines]):
        order.update((room, set(below)) for room in rooms)
        below.update(rooms)
    return order


def included(text):
    return re.findall(r'^#include "([^"]+)"', text, re.M)


def upward(sources, order):
    """The includes that a room must not have, a sentence each. sources: {room/file: text}"""
    found = []
    for path, text in sorted(sources.items()):
        room = path.split("/")[0]
        for number, line in enumerate(text.splitlines(), 1):
            other = "".join(included(line)).partition("/")[0]
            if other in order and other != room and other not in order[room]:
                found.append(
                    "simgpu/src/%s:%d: %s, and %s/ is not below %s/ (the list of rooms in "
                    "simgpu/README.md). Declare what you need in a room below both, or let %s/ "
                    "hand it down: a pointer, an argument"
                    % (path, number, line, other, room, other))
    return found


def circle(sources):
    """Headers that include each other, on whatever way: the first of them, or None."""
    headers = {path: [path.split("/")[0] + "/" + name if "/" not in name else name
                      for name in included(text)]
               for path, text in sources.items() if path.endswith(".h")}
    while headers:
        free = [path for path, names in headers.items()
                if not any(name in headers for name in names)]
        if not free:
            return min(headers)
        for path in free:
            del headers[path]
    return None


class RoomsOfSimgpu(unittest.TestCase):
    def setUp(self):
        self.order = room_order(read(os.path.join(ROOT, "simgpu", "README.md")))
        self.sources = {os.path.relpath(path, SIMGPU): read(path)
                        for path in glob.glob(os.path.join(SIMGPU, "*", "*.[ch]"))}

    def test_every_room_is_in_the_list(self):
        self.assertEqual({path.split("/")[0] for path in self.sources}, set(self.order))

    def test_includes_point_down(self):
        self.assertEqual("", "\n".join(upward(self.sources, self.order)))

    def test_no_header_includes_itself(self):
        self.assertIsNone(circle(self.sources), "a header of simgpu/src includes itself, by way of "
                          "others: take what they need of it into a header of its own")

    def test_what_the_checks_find(self):
        order = room_order("text\n    blas/ nccl/  both\n    core/  one\n    report/  two\n")
        self.assertEqual(order, {"blas": {"core", "report"}, "nccl": {"core", "report"},
                                 "core": {"report"}, "report": set()})
        sources = {"blas/a.c": '#include "a.h"\n#include "nccl/b.h"\n#include "core/c.h"\n',
                   "core/c.h": '#include <stdio.h>\n#include "report/d.h"\n',
                   "report/d.h": '#include "core/c.h"\n#include "gpulog.h"\n'}
        found = upward(sources, order)
        self.assertEqual([text.partition(" (the list")[0] for text in found], [
            'simgpu/src/blas/a.c:2: #include "nccl/b.h", and nccl/ is not below blas/',
            'simgpu/src/report/d.h:1: #include "core/c.h", and core/ is not below report/'])
        self.assertEqual(circle(sources), "core/c.h")
        self.assertIsNone(circle({"core/c.h": '#include "report/d.h"\n', "report/d.h": ""}))


class SixFiles(unittest.TestCase):
    """Neither the contract of the six files nor they themselves know of part two."""

    def test_they_name_no_lab(self):
        contracts = {name: read(os.path.join(ROOT, "include", name))
                     for name in os.listdir(os.path.join(ROOT, "include"))}
        labs = {name: text for name, text in contracts.items() if name == "extensions.h" or
                {"extensions.h", "strategy.h"} & set(included(text))}
        self.assertIn("prefetch.h", labs)
        types = set(re.findall(r"(?m)^} (\w+);", "".join(labs.values()))) - {"FsdpExtensions"}
        self.assertIn("PrefetchState", types)
        files = {path: read(path) for folder in ("reference", "skeleton")
                 for path in glob.glob(os.path.join(ROOT, folder, "*.c"))}
        for path, text in dict(files, **{"include/fsdp.h": contracts["fsdp.h"]}).items():
            self.assertEqual(set(), set(labs) & set(included(text)), path)
            self.assertEqual(set(), types & set(re.findall(r"\w+", text)), path)


def seams(header):
    """{struct: the functions that it points to}, of those that point to any."""
    found = {}
    for name, body in re.findall(r"(?ms)^(?:typedef )?struct (\w+) \{\n(.*?)^\}", header):
        fields = re.findall(r"\(\*(\w+)\)\(|^ +(?:\w+Fn|Hook \*)\s?(\w+)[;[]", body, re.M)
        if fields:
            found[name] = {first or second for first, second in fields}
    return found


class Seams(unittest.TestCase):
    """The table of architecture.md names all that may be replaced, and each in its struct's row."""

    def test_the_table_is_whole(self):
        header = read(os.path.join(ROOT, "include", "fsdp.h"))
        table = read(os.path.join(ROOT, "handouts", "architecture.md")).partition(
            "\n## What may be replaced\n")[2].partition("\n## ")[0]
        named, struct = {}, None
        for cell, entries in re.findall(r"(?m)^\| (.*?) ?\| (.*?) \|", table):
            struct = (re.findall(r"`(\w+)`", cell) or [struct])[0]
            if struct:
                named.setdefault(struct, set()).update(re.findall(r"`(\w+)", entries))
        want = seams(header)
        self.assertLessEqual({"FlatLayoutOps", "FsdpRootOps", "FsdpUnit", "FsdpAdamW"}, set(want))
        for struct, fields in want.items():
            self.assertEqual(fields - named.get(struct, set()), set(), struct)
        for struct, entries in named.items():
            body = re.search(r"(?ms)^(?:typedef )?struct %s \{\n(.*?)^\}" % struct, header)
            self.assertLessEqual(entries, set(re.findall(r"\w+", body.group(1))), struct)

    def test_what_counts_as_a_seam(self):
        self.assertEqual(seams("struct A {\n    int n;\n    Status (*f)(int (*)(int));\n"
                               "    HookFn g; // (*no)\n    Hook *hooks[2];\n    LayoutFn l;\n};\n"
                               "typedef struct B {\n    int *p;\n} B;\n"),
                         {"A": {"f", "g", "hooks", "l"}})


def lacking(text, enums):
    """[(table, what has no row)] of the tables of a file that have a row for each value of an enum.
    enums: {the last name, which is the number of values: the values}"""
    found = []
    for name, size, body in re.findall(r"(?ms)\b(\w+)\[(\w+)\] = \{(.*?)\};", text):
        rows = re.findall(r"\[(\w+)\] = ", body)
        if rows and size in enums and set(rows) != set(enums[size]):
            found.append((name, sorted(set(enums[size]) ^ set(rows))))
    return found


def enums_of(text):
    """Without those that a macro lists."""
    text = re.sub(r"//.*", "", text)
    lists = [re.findall(r"\b[A-Z]\w*(?![\w(])", re.sub(r"\w+\(\w*\)", "", body))
             for body in re.findall(r"(?s)\benum \w*\s*\{(.*?)\}", text)]
    return {names[-1]: names[:-1] for names in lists if names}


class Tables(unittest.TestCase):
    """Of a value that somebody adds to an enum, no table that names its values lacks the row."""

    def test_tables_have_every_row(self):
        paths = [path for room in ("simgpu/src", "gpulog", "lib", "plan", "include")
                 for path in glob.glob(os.path.join(ROOT, room, "**", "*.[ch]"), recursive=True)]
        texts = {path: read(path) for path in paths}
        headers = enums_of("\n".join(text for path, text in texts.items() if path.endswith(".h")))
        self.assertIn("GPU_FREE", headers["GPU_OP_KINDS"])
        for path, text in texts.items():
            self.assertEqual(lacking(text, dict(headers, **enums_of(text))), [], path)

    def test_what_the_check_finds(self):
        enums = enums_of("typedef enum E { A, // F\n B = 3, MORE(X) C, KINDS } E;")
        self.assertEqual(enums, {"KINDS": ["A", "B", "C"]})
        tables = "int t[KINDS] = {[A] = 1, [C] = 2};\nint u[2] = {[A] = 1};"
        self.assertEqual(lacking(tables, enums), [("t", ["B"])])


class Maps(unittest.TestCase):
    """The table that says what is where has every folder, and no other."""
    # Folders whose own are chapters or files of one kind, and no rooms.
    NO_ROOMS = {"labs", "tasks", "handouts", "site"}

    def folders(self, above=""):
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard",
                                 os.path.join(".", above)], cwd=ROOT, text=True,
                                stdout=subprocess.PIPE, check=True).stdout.splitlines()
        inside = [os.path.relpath(path, above or ".").split("/") for path in listed
                  if os.path.exists(os.path.join(ROOT, path))]
        return {parts[0] for parts in inside if len(parts) > 1}

    def test_architecture(self):
        page, tools = "handouts/architecture.md", {".ci", ".devcontainer", ".vscode"}
        table = read(os.path.join(ROOT, page)).partition("\n## The rooms\n")[2]
        rows = re.findall(r"(?m)^\| (`.*?) \|(.*)\|$", table.partition("\n## ")[0])
        named = {name: set(re.findall(r"`([\w.]+)/`", text)) for cell, text in rows
                 for name in re.findall(r"`([\w.]+)/`", cell)}
        self.assertEqual(self.folders() - tools, set(named))
        for room, inner in named.items():
            if room not in self.NO_ROOMS:
                self.assertEqual(sorted(self.folders(room) - inner), [], room)
        self.assertEqual([], [name for inner in named.values() for name in inner if not any(
            os.path.isdir(os.path.join(ROOT, above, name)) for above in ["", "lib/kernels", *named]
        )])

    def test_plan_files_call_those_below(self):
        """plan.h lists its files in that order."""
        plan = os.path.join(ROOT, "plan")
        lines = re.findall(r"(?m)^ \*   ((?:\w+\.c(?:, )?)+)", read(os.path.join(plan, "plan.h")))
        place = {name: at for at, line in enumerate(lines) for name in line.split(", ")}
        texts = {name: re.sub(r"(?s)/\*.*?\*/|//[^\n]*", "", read(os.path.join(plan, name)))
                 for name in os.listdir(plan) if name.endswith(".c")}
        self.assertEqual(set(place), set(texts))
        home = {function: name for name, text in texts.items()
                for function in re.findall(r"(?m)^\w[\w *]*?\b(plan_\w+)\(", text)}
        self.assertGreater(len(home), 20)
        for name, text in texts.items():
            self.assertEqual([], sorted(called for called in set(re.findall(r"\bplan_\w+", text))
                                        if place[home.get(called, name)] < place[name]), name)


if __name__ == "__main__":
    unittest.main()
