"""The pages of the site: copies of the Markdown pages, in the same folders, for the generator.

Links between pages stay as they are; a link to a file of the kit that is no page becomes its
path, or leads into REPOSITORY where that is given. Formulas become TeX (site_formulas.py).
What is for staff, and students do not get (release.py), is left out unless it is asked for.

Interface: pages(root, staff) -> [Section]; stage(root, out, staff, repository) -> the paths
written.
"""

import glob
import os
import posixpath
import re
import shutil
from dataclasses import dataclass

import release
import settings
import site_formulas

# Sections of the site: title, and pages in order; a pattern stands for those not named before.
SECTIONS = (
    ("Start", ("README.md", "handouts/README.md", "handouts/0_start.md")),
    ("Tasks", ("handouts/[1-9]*_*.md",)),
    ("Figures that move", ("figures/memory.md", "figures/timeline.md", "figures/ring.md")),
    ("Labs", ("labs/*/handout.md",)),
    ("More", ("handouts/architecture.md", "handouts/pytorch.md", "handouts/train.md",
              "handouts/plan.md", "handouts/outlook.md", "handouts/interview.md",
              "handouts/learning_goals.md",
              "handouts/running_ranks.md", "handouts/real_gpus.md", "handouts/*.md")),
    ("simgpu", ("simgpu/README.md", "simgpu/pages/mistakes.md", "simgpu/pages/*.md")),
    ("For course staff", ("handouts/instructors.md", "handouts/interview_answers.md")),
)
OWN = "site" # where the site's own pages and files are
# A figure that moves, beside one that does not: {picture: (page, what it says)}
MOVING = {
    "handouts/figures/memory.svg": ("memory", "The same for any model, ranks and strategy"),
    "handouts/figures/stages.svg": ("memory", "The same for any model, ranks and precision"),
    "handouts/figures/forward.svg": ("ring", "An all-gather, step by step"),
    "handouts/figures/step.svg": ("timeline", "A step at other bandwidths, tokens and depths"),
}
# A row of handouts/README.md: number, title, page, question, points.
CARD = re.compile(r"(?m)^\| \[(\d) ([^]]+)\]\(([^)]+)\) \|[^|]*\| ([^|]+) \| (\d+) \|$")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
SPAN = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)
ELSEWHERE = re.compile(r"[a-z]+:")
FENCE = re.compile(r" {0,3}(```|~~~)")


@dataclass
class Section:
    title: str
    pages: list # paths within the kit


def source(root, path):
    """Where a page is: the site's own are in site/."""
    own = os.path.join(root, OWN, path)
    return own if os.path.exists(own) and path.startswith("figures/") else os.path.join(root, path)


def matches(root, pattern):
    if pattern.startswith("figures/"):
        return [pattern]
    return sorted(os.path.relpath(path, root) for path in glob.glob(os.path.join(root, pattern)))


def pages(root, staff=False):
    """What is on the site, in order."""
    taken, sections = set(() if staff else release.withheld(settings.load(root))), []
    named = {path for _, patterns in SECTIONS for path in patterns if "*" not in path}
    for title, patterns in SECTIONS:
        found = []
        for pattern in patterns:
            found += [path for path in matches(root, pattern)
                      if path not in taken and (path == pattern or path not in named)]
            taken.update(found)
        if found:
            sections.append(Section(title, found))
    return sections


# ---- A page ----

def pieces(text):
    """[(kind, lines)]: kind is "prose", "block" (indented, without its four blanks) or "fence"."""
    found, fence, before = [], None, ""

    def add(kind, line):
        if not found or found[-1][0] != kind or (kind == "fence" and fence is None):
            found.append((kind, []))
        found[-1][1].append(line)
    for line in text.split("\n"):
        mark = FENCE.match(line)
        last = found[-1][0] if found else "prose"
        if fence:
            found[-1][1].append(line)
            fence = None if mark and mark.group(1) == fence else fence
        elif mark:
            add("fence", line)
            fence = mark.group(1)
        elif line.startswith("    ") and (last == "block" or not before.strip()):
            add("block", line[4:])
        elif not line.strip() and last == "block":
            add("block", "")
        else:
            add("prose", line)
        before = line
    return found


class Page:
    """One page on its way: what its links become."""

    def __init__(self, path, staged, repository):
        self.path = path
        self.staged = staged
        self.repository = repository.rstrip("/")
        self.moving = []

    def target(self, link):
        """The path within the kit that a link leads to."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.path), link))

    def link(self, match):
        picture, text, link = match.groups()
        name = link.partition("#")[0]
        text = LINK.sub(self.link, text) # a picture that is a link
        if ELSEWHERE.match(link) or not name:
            return "%s[%s](%s)" % (picture, text, link)
        path = self.target(name)
        if picture:
            if path in MOVING:
                self.moving.append(path)
            return "![%s](%s)" % (text, link)
        if path in self.staged:
            return "[%s](%s)" % (text, link)
        if self.repository:
            return "[%s](%s/%s)" % (text, self.repository, path)
        return text if path in text else "%s (`%s`)" % (text, path)

    def prose(self, text):
        """Links outside of code spans. A link's own text may hold one."""
        kept = []

        def keep(match):
            kept.append(match.group())
            return "\0%d\0" % (len(kept) - 1)
        text = LINK.sub(self.link, SPAN.sub(keep, text))
        return re.sub("\0(\\d+)\0", lambda match: kept[int(match.group(1))], text)

    def figures(self):
        """A paragraph for each figure above that moves elsewhere."""
        up = "../" * self.path.count("/")
        said = ["*[%s](%sfigures/%s.md).*" % (MOVING[name][1], up, MOVING[name][0])
                for name in self.moving]
        self.moving = []
        return said


def cells(line):
    """A row of a table, with formulas as TeX."""
    if not re.match(r"\|.*\|\s*$", line) or re.fullmatch(r"[|\s:-]+", line):
        return line
    parts = re.split(r"(?<!\\)\|", line)
    done = [site_formulas.cell(part) if part.strip() and "`" not in part else None
            for part in parts]
    return "|".join(" %s " % new if new else part for part, new in zip(parts, done))


def paragraphs(lines):
    """Lines by paragraph, the blank ones between them each by itself."""
    found = []
    for line in lines:
        if line.strip() and found and found[-1][0].strip():
            found[-1].append(line)
        else:
            found.append([line])
    return found


def rewritten(path, text, staged, repository=""):
    """A page as the generator is to read it."""
    page, out = Page(path, staged, repository), []
    for kind, lines in pieces(text):
        formula = site_formulas.block(lines) if kind == "block" else None
        if formula:
            out += [formula] + [""] * (1 if lines[-1] == "" else 0)
        elif kind == "block":
            out += ["    " + line if line else "" for line in lines]
        elif kind == "fence":
            out += lines
        else:
            for paragraph in paragraphs(lines):
                done = page.prose("\n".join(paragraph)).split("\n")
                out += [cells(line) for line in done]
                for said in page.figures():
                    out += ["", said]
    return "\n".join(out)


# ---- All of them ----

def entry(path):
    """The site's first page has the name of the kit, too."""
    return "What the kit is <README>" if path == "README.md" else path[:-3]


def contents(sections):
    """The generator's lists of pages, one for each section; the menu shows them."""
    return "\n".join("```{toctree}\n:caption: %s\n:hidden:\n\n%s\n```\n" % (
        section.title, "\n".join(entry(path) for path in section.pages)) for section in sections)


def cards(root):
    """A card for the start, for each task and for each lab: its page, the question that it answers
    (a row of handouts/README.md) and the command to copy."""
    rows = CARD.findall(read(os.path.join(root, "handouts", "README.md")))
    made = [("Start: ten minutes", "handouts/0_start.md", "",
             "What is FSDP for, and what does a missing wait look like?", "make start")]
    for number, title, link, question, points in rows:
        path = posixpath.normpath(posixpath.join("handouts", link))
        word = "lab" if path.startswith("labs/") else "task"
        made.append(("%s %s: %s" % (word.capitalize(), number, title), path,
                     points + "\u00a0points", question,
                     "make grade %s=%s" % (word.upper(), number)))
    return '<div class="cards">\n%s</div>\n' % "".join(
        '<div class="card">\n\n**[%s](%s)** %s\n\n%s\n\n    %s\n\n</div>\n' % one for one in made)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def pictures(root, path, text):
    """The files of the kit that a page shows."""
    found = {posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
             for picture, _, link in LINK.findall(text) if picture and not ELSEWHERE.match(link)}
    return sorted(one for one in found if os.path.isfile(os.path.join(root, one)))


def stage(root, out, staff=False, repository=""):
    """Writes all pages, the index and the pictures into the folder; [page]."""
    shutil.rmtree(out, ignore_errors=True)
    sections = pages(root, staff)
    staged = [path for section in sections for path in section.pages]
    for path in staged:
        text = read(source(root, path))
        write(os.path.join(out, path), rewritten(path, text, staged, repository))
        for picture in pictures(root, path, text):
            os.makedirs(os.path.dirname(os.path.join(out, picture)), exist_ok=True)
            shutil.copyfile(os.path.join(root, picture), os.path.join(out, picture))
    index = read(os.path.join(root, OWN, "index.md"))
    write(os.path.join(out, "index.md"),
          rewritten("index.md", index.replace("@CARDS@", cards(root)), staged, repository)
          + "\n" + contents(sections))
    shutil.copytree(os.path.join(root, OWN, "static"), os.path.join(out, "static"))
    shutil.copyfile(os.path.join(root, OWN, "conf.py"), os.path.join(out, "conf.py"))
    return staged
