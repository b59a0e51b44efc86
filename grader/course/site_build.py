#!/usr/bin/env python3
"""Builds the site: the pages of the kit as HTML in DIR/html, for any web server or for a browser
that opens DIR/html/index.html.

    site_build.py --out DIR --plan PROGRAM [--staff] [--repository URL]      (make site)

Pages are staged (site_pages.py), what the figures show is planned (site_data.py), and Sphinx
makes HTML of both, in a virtual environment below DIR with the versions of
site/requirements.txt. Answers of the planner are kept in DIR/plans. A warning of Sphinx's, such
as a link that leads nowhere, is an error.

Interface: main(); prepare(root, out, planner, staff, repository): all but Sphinx. Exit status 3:
the site cannot be built here.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import layout
import site_data
import site_formulas
import site_pages

REQUIREMENTS = os.path.join("site", "requirements.txt")
PYTHON = (3, 11) # what Sphinx of that version needs


class CannotBuild(Exception):
    """The text says why, and what to do."""


# ---- Tables: what the figures show, for readers without JavaScript ----

def table(head, rows):
    """A table of Markdown; numbers are aligned right."""
    right = [all(isinstance(row[i], str) and row[i][:1].isdigit() for row in rows)
             for i in range(len(head))]
    lines = [head, ["--:" if one else "---" for one in right]] + rows
    return "\n".join("| %s |" % " | ".join(line) for line in lines)


def memory_table(memory, model=3, world=2):
    rows = []
    for precision, types in enumerate(memory.data["precisions"]):
        for strategy, (_, name) in enumerate(memory.data["strategies"]):
            values = memory.values(site_data.Point(model, world, strategy, precision))
            rows.append([name, types["name"]] + ["{:,}".format(value // 1000000)
                                                 for value in values.values()])
    names = [entry["name"] for entry in memory.data["categories"]]
    return "%s on %d ranks, in MB:\n\n%s" % (
        memory.data["models"][model]["name"], memory.data["worlds"][world],
        table(["strategy", "precision"] + names, rows))


def memory_formulas(memory):
    """A table for each precision: categories down, strategies across."""
    parts = []
    strategies = memory.data["strategies"]
    for precision, types in enumerate(memory.data["precisions"][:2]): # the third is as both
        each = [memory.formulas(strategy, precision) for strategy in range(len(strategies))]
        rows = [[name] + ["{math}`%s`" % site_formulas.tex(one[name]) for one in each]
                for name in each[0] if name != "activations"]
        parts.append("In %s:\n\n%s" % (types["name"], table(
            ["category"] + [name for _, name in strategies], rows)))
        text = each[0]["activations"]
        parts.append("Activations, under all of them:\n\n%s" % site_formulas.block([text]))
    parts.append("In %s a and b are both 2: gradients as in float, all else as in bf16."
                 % memory.data["precisions"][2]["name"])
    return "\n\n".join(parts)


def timeline_table(grid):
    rows = [["%d" % bandwidth, "{:,}".format(tokens), "%d" % depth] +
            ["%.2f" % (cell[name] / 1e9)
             for name in ("step", "compute", "communication", "exposed")]
            for (bandwidth, tokens, depth), cell in grid.cells().items()]
    return table(["GB/s", "tokens per GPU", "depth", "step, ms", "computes", "communicates",
                  "exposed"], rows)


def ring_table(ranks=4):
    rows = []
    for step in range(ranks):
        has = ["rank %d: %s" % (rank, ", ".join(str((rank - k) % ranks)
                                               for k in range(step + 1))) for rank in range(ranks)]
        rows.append(["%d" % step, "; ".join(has)])
    return "%d ranks, the shards that each has:\n\n%s" % (
        ranks, table(["after step", "shards"], rows))


# ---- All but Sphinx ----

def prepare(root, out, planner, staff=False, repository=""):
    """Stages the pages, and writes what the figures show; [page]."""
    folder = os.path.join(out, "src")
    staged = site_pages.stage(root, folder, staff, repository)
    memory, grid = site_data.Memory(root), site_data.Grid(planner)
    for name, text in (("memory_data.js", memory.javascript()),
                       ("timeline_data.js", grid.javascript())):
        site_pages.write(os.path.join(folder, "static", name), text)
    fill(folder, "figures/memory.md", MEMORY_TABLE=memory_table(memory),
         MEMORY_FORMULAS=memory_formulas(memory))
    fill(folder, "figures/timeline.md", TIMELINE_TABLE=timeline_table(grid))
    fill(folder, "figures/ring.md", RING_TABLE=ring_table())
    return staged


def fill(folder, page, **values):
    path = os.path.join(folder, page)
    text = site_pages.read(path)
    for name, value in values.items():
        text = text.replace("@%s@" % name, value)
    site_pages.write(path, text)


# ---- Sphinx ----

def run(command, what, environment=None):
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace")
    if done.returncode != 0:
        raise CannotBuild("%s\n%s" % (what, done.stdout.strip()[-3000:]))
    return done.stdout


def environment(out):
    """The Python of a virtual environment that has the pinned packages."""
    with open(os.path.join(ROOT, REQUIREMENTS), "rb") as file:
        wanted = hashlib.sha256(file.read() + sys.version.encode()).hexdigest()
    folder = os.path.join(out, "venv")
    python, mark = os.path.join(folder, "bin", "python"), os.path.join(folder, "installed")
    if os.path.exists(mark) and site_pages.read(mark) == wanted:
        return python
    if sys.version_info < PYTHON:
        raise CannotBuild("Sphinx wants Python %d.%d, this is %d.%d: make site PYTHON=python3.11"
                          % (PYTHON + sys.version_info[:2]))
    print("make site: installs Sphinx and furo from PyPI into %s" % os.path.relpath(folder),
          flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", folder],
        "no virtual environment (on Debian: apt-get install python3-venv):")
    run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary",
         ":all:", "-r", os.path.join(ROOT, REQUIREMENTS)], "pip cannot install %s:" % REQUIREMENTS)
    site_pages.write(mark, wanted)
    return python


def sphinx(out):
    html = os.path.join(out, "html")
    shutil.rmtree(html, ignore_errors=True)
    with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as file:
        version = file.read().split()[0]
    run([environment(out), "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d",
         os.path.join(out, "doctrees"), os.path.join(out, "src"), html], "Sphinx says:",
        dict(os.environ, SHARDLAB_VERSION=version))
    return html


def main():
    parser = argparse.ArgumentParser(description="Build the site.")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of all that is made")
    parser.add_argument("--plan", required=True, metavar="PROGRAM", help="the planner")
    parser.add_argument("--staff", action="store_true", help="with the pages for staff")
    parser.add_argument("--repository", default="", metavar="URL",
                        help="where links to files that are not pages lead")
    options = parser.parse_args()
    out = os.path.abspath(options.out)
    try:
        planner = site_data.Planner(os.path.abspath(options.plan), os.path.join(out, "plans"))
        staged = prepare(ROOT, out, planner, options.staff, options.repository)
        html = sphinx(out)
    except (CannotBuild, site_data.NoPlan) as problem:
        layout.tell("make site: %s" % problem)
        return 3
    print("%d pages%s: %s" % (len(staged), ", with those for staff" if options.staff else "",
                              os.path.relpath(os.path.join(html, "index.html"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
