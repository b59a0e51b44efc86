#!/usr/bin/env python3
"""Grades one submission for a course platform, and leaves a result whatever dies.

    deliver.py --platform gradescope --submission DIR|FILE --results FILE [--build DIR]

First a result is written that says that the grading did not finish; it is replaced at the end. So a
grader that crashes, is killed or runs out of time leaves a valid file, and so does this program,
whatever kills it. What of the submission is taken is copied to a folder of its own (handin.py).

Exit status 0 where the grading worked, whatever the score; 3 where it did not.
Files: grade.py (the tests), hidden.py (the hidden ones), quiz.py (the quiz), challenge.py, emit/
(the formats), settings.py.
"""

import argparse
import datetime
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import account
import answers
import challenge
import emit
import handin
import manifest
import runner
import settings
from emit import common
from quiz_questions import QUESTIONS

UNFINISHED = "The grading was started but did not finish."


class Trouble(Exception):
    """The kit or the machine is at fault."""


# ---- Time ----

def due_date(course, metadata):
    """When a submission was due, and which date that is. `metadata` is Gradescope's
    submission_metadata.json
    (https://gradescope-autograders.readthedocs.io/en/latest/submission_metadata/). That page names
    assignment.due_date alone; the files themselves have each student's own date, with extensions,
    in users[].assignment. Of a group the latest counts."""
    found = {"users[].assignment": [user.get("assignment") for user in users_of(metadata)],
             "assignment": [metadata.get("assignment")], "course.json": [
                 {"due_date": course["dates"].get("due")}]}
    for name, places in found.items():
        dates = []
        for place in places:
            try:
                dates.append(settings.when(place["due_date"]))
            except (KeyError, TypeError, ValueError):
                pass # not there, or null
        if dates:
            return max(dates), name
    return None, ""


def lateness(course, metadata):
    """What the document says of the time: late, how much of the score lateness takes (0 to 1);
    days_late; a message; and due."""
    try:
        came = settings.when(metadata["created_at"])
        due, name = due_date(course, metadata)
        said = {"due": "%s, from %s" % (due.isoformat(), name)}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    if came <= due:
        return said
    days = -((due - came) // datetime.timedelta(days=1))
    share = min(1.0, days * course["late"]["percent_per_day"] / 100)
    text = "Handed in %d day%s late" % (days, "" if days == 1 else "s")
    said["days_late"] = days
    if course["late"]["taken_by"] != "grader":
        return dict(said, message=text + "; the score does not include the late penalty.")
    return dict(said, late=share,
                message="%s: %g %% of the score is deducted." % (text, 100 * share))


# ---- The grading ----

def run(program, words, out, deadline, seed, quiet=False, bad=0):
    """Runs a part of the grader, by its path there, in a group of its own, to its end or the
    deadline; its document. What it prints comes at its end: where the submission was copied to is
    nobody's business. bad: an exit status that says that what was handed in is wrong.
    The tests draw from `seed`, which all students share, whenever they hand in; None: nothing is
    drawn from one."""
    command = [sys.executable, os.path.join(ROOT, "grader", *program), "--out", out] + words
    work = os.path.dirname(os.path.dirname(out)) + os.sep
    log = tempfile.TemporaryFile()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, cwd=ROOT,
                               stdout=subprocess.DEVNULL if quiet else log, stderr=log,
                               env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1",
                                        SEED="" if seed is None else str(seed)))
    try:
        process.wait(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Trouble("the grading took longer than a submission's may")
    finally:
        end(process, out)
        with log:
            log.seek(0)
            sys.stdout.buffer.write(log.read().replace(os.fsencode(work), b""))
            sys.stdout.flush()
    with open(out, encoding="utf-8") as file:
        document = json.loads(file.read().replace(work, ""))
    if process.returncode not in (0, bad):
        raise Trouble(document.get("message") or "%s ended with status %d"
                      % (program[-1], process.returncode))
    return document


def end(process, mark):
    """Ends a part of the grader, which ends its tests first; where it has no time for that, them
    too."""
    if process.poll() is None:
        family = runner.Family(process, mark)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            family.members() # which are known from now on, whoever their parent is
            family.kill()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def keep_apart(options, work, impl):
    """What the tests' account may see: the kit that students have, and the submission, whose lines
    simgpu's reports show. Not the grader, the hidden tests, the reference."""
    os.umask(0o022) # what is built from here on, too
    os.chmod(work, 0o711)
    os.chmod(impl, 0o755)
    build = os.path.join(ROOT, options.build or "build")
    made = [os.path.join(build, *parts) for parts in (("impl", "reference"), ("obj", "tasks"))]
    for folder in made:
        os.makedirs(folder, exist_ok=True)
    secret = [os.path.join(ROOT, folder) for folder in ("grader", "given", "reference")]
    for path in made + secret + glob.glob(os.path.join(ROOT, "tasks", "*", "hidden*.c")):
        account.hide(path)


def grade(options, course, work):
    """The document of one grading."""
    began = time.monotonic()
    deadline = began + course["limit_seconds"]
    impl, out = os.path.join(work, "submission"), os.path.join(work, "out")
    os.mkdir(impl)
    os.mkdir(out, 0o700)
    taken = handin.take(options.submission, [file for task in course["tasks"]
                                             for file in task["files"]],
                        impl, (answers.NAME, challenge.NAME))
    words = ["--impl", impl, "--patient"] + (["--build", options.build] if options.build else [])
    if os.geteuid() == 0 and course["run_as"]:
        keep_apart(options, work, impl)
        words += ["--run-as", course["run_as"]]
    asked = ["--lab", course["lab"]] if course["lab"] else []
    document = run(("grade.py",), words + asked, os.path.join(out, "results.json"), deadline,
                   course["seed"])
    document["notes"] = taken.notes
    say_why(document["tests"], course, taken.missing)
    if course["hidden"]["tests"]:
        # Quiet: some platforms show students what is printed.
        unseen = run(("course", "hidden.py"), words, os.path.join(out, "hidden.json"), deadline,
                     course["hidden"]["seed"], quiet=True)
        document["tests"] += [dict(test, hidden=True) for test in unseen["tests"]]
    metadata = read_metadata(options.metadata)
    if course["quiz"]:
        document["tests"] += quiz(options, course, impl, out, deadline, metadata)
    if course["challenge"]:
        document["challenge"] = plan_challenge(words, out, deadline)
    document["seconds"] = time.monotonic() - began
    document.update(lateness(course, metadata))
    return document


def forget(options, impl):
    """Removes what was built of a submission, which lies nowhere else and comes no second time."""
    build = os.path.join(ROOT, options.build or "build")
    found = subprocess.run(["sh", "grader/impl_folder.sh", impl, build], cwd=ROOT, check=False,
                           stdout=subprocess.PIPE, text=True).stdout.split()
    if found:
        shutil.rmtree(os.path.join(build, "impl", found[0]), ignore_errors=True)


def say_why(tests, course, missing):
    """What is known of a file that is not there stands at the tests that needed it."""
    for test in tests:
        for task in course["tasks"]:
            reasons = [missing[file] for file in task["files"] if file in missing]
            if test["task"] == task["number"] and test["status"] == "error" and reasons:
                test["message"] = reasons[0]


def read_metadata(path):
    """What Gradescope says of the submission; None where there is nothing."""
    if not path or not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def quiz(options, course, impl, out, deadline, metadata):
    """The quiz's rows: a part each, or one that says why there is none."""
    if not os.path.exists(os.path.join(impl, answers.NAME)):
        return [quiz_row("skipped", course, "No %s was handed in: `make quiz` makes one."
                         % answers.NAME)]
    words = ["--impl", impl, "--mark-only"] + (["--build", options.build] if options.build else [])
    for name in names_of(metadata):
        words += ["--known", name]
    path = os.path.join(out, "quiz.json")
    # No SEED: the numbers are the student's.
    marked = run(("quiz.py",), words, path, deadline, None, quiet=True, bad=2)
    if marked["status"] != "graded":
        return [quiz_row("failed", course, marked["message"])]
    return [dict(row, quiz=True, score=course["quiz"] * row["score"], max_score=course["quiz"])
            for row in marked["tests"]]


def plan_challenge(words, out, deadline):
    """The leaderboard's number; 0 where there is none."""
    words = [word for word in words if word != "--patient"]
    planned = run(("challenge.py",), words, os.path.join(out, "challenge.json"), deadline, None,
                  quiet=True, bad=2)
    return challenge.entry(planned) or 0


def quiz_row(status, course, message):
    parts = sum(len(question.parts) for question in QUESTIONS.values())
    return {"name": "quiz", "task": 0, "title": "", "status": status, "score": 0,
            "max_score": course["quiz"] * parts, "message": message, "quiz": True}


def users_of(metadata):
    """Who hands in, an object each; one for each member of a group."""
    users = metadata.get("users") if isinstance(metadata, dict) else None
    return [user for user in (users if isinstance(users, list) else []) if isinstance(user, dict)]


def names_of(metadata):
    """The same, as they may have drawn their numbers: on Gradescope, e-mail addresses."""
    return [user["email"] for user in users_of(metadata)
            if isinstance(user.get("email"), str) and user["email"]]


def version():
    """What this kit calls itself."""
    try:
        with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def parse():
    parser = argparse.ArgumentParser(description="Grade a submission for a platform.")
    parser.add_argument("--platform", required=True, choices=sorted(emit.FORMATS))
    parser.add_argument("--submission", required=True, metavar="DIR|FILE")
    parser.add_argument("--results", required=True, metavar="FILE")
    parser.add_argument("--build", default=os.environ.get("SHARDLAB_BUILD", ""), metavar="DIR",
                        help="build tree (build/, or SHARDLAB_BUILD)")
    parser.add_argument("--metadata", default="", metavar="FILE",
                        help="Gradescope's submission_metadata.json")
    return parser.parse_args()


def main():
    options = parse()
    course = dict(settings.DEFAULTS, tasks=[])

    def tell(document):
        document["version"] = version()
        document = common.tidy(document)
        emit.write(options.results, emit.emit(options.platform, document, course))
        return document

    def stop(number, frame):
        for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        raise Trouble("stopped by %s before the end" % signal.Signals(number).name)
    work = None
    try:
        tell(common.infrastructure(UNFINISHED))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        course = settings.load()
        tell(common.infrastructure(UNFINISHED))
        work = os.path.realpath(tempfile.mkdtemp(prefix="shardlab-"))
        tell(grade(options, course, work))
        return 0
    except handin.Unusable as problem:
        tell({"status": "error", "message": str(problem), "tests": []})
        return 0
    except (Trouble, settings.BadCourse, manifest.BadManifest) as problem:
        message = str(problem)
    except Exception as problem: # whatever it is, there is a result, and it says so
        import traceback
        traceback.print_exc()
        message = "%s: %s" % (type(problem).__name__, problem)
    finally:
        if work:
            forget(options, os.path.join(work, "submission"))
            shutil.rmtree(work, ignore_errors=True)
    print("deliver: %s" % common.clean(message), file=sys.stderr)
    tell(common.infrastructure(message))
    return 3


if __name__ == "__main__":
    sys.exit(main())
