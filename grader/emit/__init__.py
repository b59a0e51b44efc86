"""Emitters: from the grader's result (grade.py's JSON) to what a course platform reads.

Each module of this package knows one format and cites the page that documents it. It has one
function, emit(document, course), which returns the whole file as text. A document that came out of
common.load() is safe: its texts are clean and short, its numbers finite, its statuses known.

Interface: FORMATS; emit(name, document, course) -> text; write(path, text).
`python3 grader/emit FORMAT RESULTS` does the same from a command line (__main__.py).
"""

import os
import shutil
import tempfile

from emit import autolab, github, gradescope, junit, prairielearn

FORMATS = {"gradescope": gradescope, "autolab": autolab, "prairielearn": prairielearn,
           "junit": junit, "github": github}


def emit(name, document, course):
    """The document as the platform `name` reads it."""
    return FORMATS[name].emit(document, course)


def write(path, text):
    """Puts the text at the path: the old file or the whole new one. What a program under test may
    have put there instead, a link or a folder, goes."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".results-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
