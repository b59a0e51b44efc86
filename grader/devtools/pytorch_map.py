#!/usr/bin/env python3
"""Checks handouts/pytorch.md against PyTorch's source: every name of the page is there, in the file
that the page says, and the page has a row for each function that students write.

A name is written FILE::NAME or FILE::CLASS.NAME; a file without a folder is one of FSDP2's. The
source is read, not run. It is that of the virtual environment of `make compare-pytorch`, which is
made where there is none; or a folder that holds torch/, or a wheel, that --source names.

Another version than the page's is checked too, and said: then the page is to be read again.

Interface: pytorch_map.py --build DIR [--source PATH] (make check-pytorch-map); problems(page,
source); missing_rows(page, root). Exit status 1 where a name is not there.
"""

import argparse
import ast
import glob
import os
import re
import subprocess
import sys
import zipfile

import pytorch_environment

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join("handouts", "pytorch.md")
FSDP2 = "torch/distributed/fsdp/_fully_shard/"
NAME = re.compile(r"`([\w./]+\.(?:py|pyi|h))::([\w.]+)`")
# A region that is left out of the skeleton begins so; the function it is in began above it.
REGION = re.compile(r"\s*//\[(\d\.\d)\]")
FUNCTION = re.compile(r"[A-Za-z].*?\b(\w+)\(")


class Folder:
    """PyTorch's files below a folder."""

    def __init__(self, path):
        self.path = path

    def read(self, name):
        try:
            with open(os.path.join(self.path, name), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return None


class Wheel:
    """PyTorch's files within a wheel."""

    def __init__(self, path):
        self.archive = zipfile.ZipFile(path)

    def read(self, name):
        try:
            return self.archive.read(name).decode("utf-8")
        except KeyError:
            return None


def source_of(path):
    return Wheel(path) if os.path.isfile(path) else Folder(path)


def names_of(text, is_header):
    """All names that a file defines: functions, classes, and theirs as CLASS.NAME."""
    if is_header:
        return set(re.findall(r"\b(\w+)\(", text))
    found = set()

    def walk(node, before):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(before + child.name)
                if isinstance(child, ast.ClassDef):
                    walk(child, before + child.name + ".")
            elif isinstance(child, (ast.If, ast.Try)):
                walk(child, before)
    walk(ast.parse(text), "")
    return found


def version_of_page(page):
    return re.search(r"PyTorch (\d+\.\d+\.\d+)", page).group(1)


def version_of(source):
    text = source.read("torch/version.py")
    found = text and re.search(r"__version__ = '([\d.]+\d)", text)
    return found.group(1) if found else None


def mentions(page):
    """[(file, name)] of a page, in its order."""
    return [(file if "/" in file else FSDP2 + file, name) for file, name in NAME.findall(page)]


def problems(page, source):
    """Names of the page that are not in the source, a line each."""
    wrong, known = [], {}
    for file, name in mentions(page):
        if file not in known:
            text = source.read(file)
            known[file] = None if text is None else names_of(text, file.endswith(".h"))
        if known[file] is None:
            wrong.append("%s: PyTorch has no such file" % file)
        elif name not in known[file]:
            wrong.append("%s: there is no %s in it" % (file, name))
    return sorted(set(wrong))


def written_by_students(root):
    """{part: function} of the reference's regions; of X_default the page has the name X."""
    found = {}
    for path in sorted(glob.glob(os.path.join(root, "reference", "*.c"))):
        function = ""
        with open(path, encoding="utf-8") as file:
            for line in file:
                begins = FUNCTION.match(line)
                if begins and not line.rstrip().endswith(";"):
                    function = begins.group(1)
                region = REGION.match(line)
                if region:
                    found[region.group(1)] = re.sub("_default$", "", function)
    return found


def missing_rows(page, root):
    """Parts of the tasks that have no row with their function, a line each."""
    rows = dict(re.findall(r"(?m)^\| (\d\.\d) \| `(\w+)` \|", page))
    return ["part %s, %s: %s has no such row" % (part, function, PAGE)
            for part, function in sorted(written_by_students(root).items())
            if rows.get(part) != function]


def main():
    parser = argparse.ArgumentParser(description="Look up the names of handouts/pytorch.md.")
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", default="", metavar="PATH",
                        help="a folder that holds torch/, or a wheel, instead of PyPI's")
    options = parser.parse_args()
    path = options.source
    if not path:
        try:
            python = pytorch_environment.environment(os.path.join(options.build, "pytorch"),
                                                     "check-pytorch-map")
            path = subprocess.run([python, "-c", "import sysconfig; "
                                   "print(sysconfig.get_path('purelib'))"], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout.strip()
        except subprocess.CalledProcessError as error:
            print("check-pytorch-map: the environment cannot be made (%s): is PyPI to be reached?"
                  % " ".join(error.cmd), file=sys.stderr)
            return 1
    source = source_of(path)
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as file:
        page = file.read()
    version = version_of(source)
    if version is None:
        print("check-pytorch-map: %s holds no torch/version.py" % path, file=sys.stderr)
        return 1
    wrong = problems(page, source) + missing_rows(page, ROOT)
    for line in wrong:
        print("check-pytorch-map: %s" % line, file=sys.stderr)
    names = len(set(mentions(page)))
    print("PyTorch %s: %d of %d names of %s are where the page says" % (
        version, names - len(problems(page, source)), names, PAGE))
    if version != version_of_page(page):
        print("The page is of PyTorch %s: read it again, and change its version."
              % version_of_page(page))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
