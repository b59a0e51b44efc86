"""What course platforms export: who handed in what, and what it was graded with.

    Gradescope    submission_metadata.yml, a folder for each submission; its results are in it
    Autolab       email_VERSION_handin.tar, or a folder email/ with VERSION_handin.tar and
                  VERSION_autograde.txt
    PrairieLearn  UID_INSTANCE_QUESTION_VARIANT_NUMBER_ID_file.c, as its Downloads page packs them
    Canvas        name_LATE_USER_ID_file.c
    Moodle        Name_ID_assignsubmission_file_/file.c, or the same with _ before the file's name
    by hand       a folder, or an archive, for each student

The forms are those of Gradescope's Export Submissions, autolab/Autolab (submission.rb),
PrairieLearn (instructorAssessmentDownloads), instructure/canvas-lms (content_zipper.rb) and
Moodle's "Download all submissions". Of several submissions of a student the last one counts.

Interface: read(folder) -> [Student]; BadExport.
"""

import json
import os
import re
from dataclasses import dataclass, field

METADATA = "submission_metadata.yml"
# The archives that are one student's hand-in.
PACKED = re.compile(r"(.+?)\.(zip|tar|tgz|tar\.\w+)", re.IGNORECASE)
MOODLE = re.compile(r"(?P<who>.+_\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)")
PRAIRIELEARN = re.compile(r"(?P<who>.+?)_\d+_.+?_(?P<version>\d+_\d+)_\d+_(?P<file>.+)")
CANVAS = re.compile(r"(?P<who>\w+?)(?P<late>_LATE)?_(?P<user>\d+)_\d+_(?P<file>.+)")
AUTOLAB = re.compile(r"(?P<who>[^@]+@.+?)_(?P<version>\d+)_(?P<file>.+)")
FORMS = (MOODLE, PRAIRIELEARN, CANVAS, AUTOLAB)
AUTOLAB_OWN = re.compile(r"(?P<version>\d+)_(?P<file>.+)")
KEY = re.compile(r"(:?[\w.+-]+|'[^']*'|\"[^\"]*\"):(?: +(.*))?$")


class BadExport(Exception):
    """It holds no submissions that can be told apart."""


@dataclass
class Student:
    """A submission. key: what names it, for files too; files: {name: path}; folder: in their place;
    before: what it was graded with, {"score", "tests": {name: status}}, None where that is not
    known; metadata: of Gradescope's submission_metadata.json; late: as the platform says."""
    key: str
    who: str
    files: dict = field(default_factory=dict)
    folder: str = ""
    before: dict = None
    metadata: dict = field(default_factory=dict)
    late: bool = False


# ---- Gradescope's metadata ----

def unquoted(value):
    """A scalar of YAML that stands in a line."""
    value = re.sub(r"^[&!]\S+ ", "", value.strip())
    if value[:1] == "'":
        return value[1:].rstrip("'").replace("''", "'")
    if value[:1] == '"':
        try:
            return json.loads(value)
        except ValueError:
            return value[1:].rstrip('"')
    return value


def scalars(text):
    """(path, value) of each value of a YAML file whose keys have lines of their own, as Ruby writes
    them. Lines that go on with a value are deeper than its key, and passed over: a student's words
    are no keys."""
    path, inside, count = [], None, 0 # [(indentation, key)]; of the key whose value goes on
    for line in text.split("\n"):
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        if not body or inside is not None and indent > inside:
            continue
        inside = None
        while body.startswith("- "):
            while path and (path[-1][0] > indent or path[-1] == (indent, "#%d" % count)
                            or path[-1][0] == indent and path[-1][1].startswith("#")):
                path.pop()
            count += 1
            path.append((indent, "#%d" % count))
            rest = body[2:].lstrip(" ")
            indent, body = indent + len(body) - len(rest), rest
        found = KEY.match(body)
        if not found:
            inside = indent
            continue
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, unquoted(found.group(1)).lstrip(":")))
        if found.group(2):
            inside = indent
            yield [key for _, key in path], unquoted(found.group(2))


def gradescope(folder):
    """The students of Gradescope's export."""
    with open(os.path.join(folder, METADATA), encoding="utf-8", errors="replace") as file:
        text = file.read()
    students, people, rows = {}, {}, {}
    for path, value in scalars(text):
        student = students.setdefault(path[0], Student(path[0], ""))
        if path[1:2] == ["submitters"] and len(path) == 4:
            people.setdefault((path[0], path[2]), {})[path[3]] = value
        elif path[1:] == ["created_at"]:
            student.metadata["created_at"] = value.replace(" Z", "+00:00").replace(" ", "T", 1)
        elif path[1:] == ["score"] and number(value) is not None:
            student.before = {"score": number(value), "tests": {}}
        elif path[1:3] == ["results", "tests"] and len(path) > 4:
            rows.setdefault((path[0], path[3]), {})["/".join(path[4:])] = value
    for (key, _), person in people.items():
        student = students[key]
        student.who += (", " if student.who else "") + (
            person.get("email") or person.get("name") or "")
        student.metadata.setdefault("users", []).append(person)
    for (key, _), row in rows.items():
        if students[key].before and "name" in row:
            students[key].before["tests"][row["name"]] = row.get(
                "extra_data/status", row.get("status", ""))
    for student in students.values():
        student.folder = os.path.join(folder, student.key)
        student.who = student.who or student.key
    return [student for student in students.values() if os.path.isdir(student.folder)]


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


# ---- The others ----

def version_of(match):
    return tuple(int(digits) for digits in re.findall(r"\d+", match.groupdict().get("version", "")))


def last_only(files):
    """Of {(version, name): path} those of the last version."""
    last = max(version for version, _ in files)
    return {name: path for (version, name), path in files.items() if version == last}


def autolab_folder(student):
    """Of a folder with all versions of a handin the last one, and what it was graded with."""
    names = os.listdir(student.folder)
    found = [AUTOLAB_OWN.fullmatch(name) for name in names]
    handins = {(version_of(match), match.group("file")):
               os.path.join(student.folder, match.group()) for match in found if match}
    if not names or not all(found):
        return
    feedback = {version: path for (version, name), path in handins.items()
                if name == "autograde.txt"}
    handins = {key: path for key, path in handins.items() if key[1] != "autograde.txt"}
    if handins:
        last = max(version for version, _ in handins)
        student.files, student.folder = last_only(handins), ""
        student.before = scores_of(feedback.get(last, ""))


def scores_of(path):
    """What Autolab's feedback says of the points, in its last line."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            scores = json.loads(file.read().rstrip().split("\n")[-1])["scores"]
        return {"score": sum(scores.values()), "tests": {}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def from_names(folder):
    """The students by the names of files and folders."""
    students, versions, late = {}, {}, set()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith((".", "__MACOSX")) or os.path.islink(path):
            continue
        if os.path.isdir(path):
            moodle = MOODLE.fullmatch(name)
            key = moodle.group("who") if moodle else name
            students[key] = Student(key, key, folder=path)
            autolab_folder(students[key])
            continue
        found = next(filter(None, (form.fullmatch(name) for form in FORMS)), None)
        if found:
            parts = found.groupdict()
            key = "_".join(part for part in (parts["who"], parts.get("user")) if part)
            versions.setdefault(key, {})[version_of(found), parts["file"] or name] = path
            if parts.get("late"):
                late.add(key)
        elif PACKED.fullmatch(name):
            key = PACKED.fullmatch(name).group(1)
            students[key] = Student(key, key, files={name: path})
    for key, files in versions.items():
        students[key] = Student(key, key, files=last_only(files), late=key in late)
    return list(students.values())


def is_the_exports(folder):
    """Whether it is the folder around all submissions, and not one of them."""
    names = os.listdir(folder)
    if all(AUTOLAB_OWN.fullmatch(name) for name in names):
        return False
    return METADATA in names or any(
        form.fullmatch(name) for form in FORMS for name in names) or (
        "skeleton" not in names and any(os.path.isdir(os.path.join(folder, name))
                                        or PACKED.fullmatch(name) for name in names))


def read(folder):
    """The students of an unpacked export."""
    while not os.path.exists(os.path.join(folder, METADATA)):
        names = [name for name in os.listdir(folder) if not name.startswith((".", "__MACOSX"))]
        inner = os.path.join(folder, names[0]) if len(names) == 1 else ""
        if not os.path.isdir(inner) or any(form.fullmatch(names[0]) for form in FORMS) \
                or not is_the_exports(inner):
            break
        folder = inner
    known = os.path.exists(os.path.join(folder, METADATA))
    students = gradescope(folder) if known else from_names(folder)
    if not students:
        raise BadExport("it holds no submissions: an export of Gradescope, Autolab, PrairieLearn, "
                        "Canvas or Moodle has them by student")
    return sorted(students, key=lambda student: student.who)
