"""Links within the repository's own pages.

Interface: of_page(text) -> [target]; headings(text) -> {anchor}; problems(paths, at) -> a line for
each link to a file or heading that is not there.
"""

import os
import re

from helpers import ROOT, read

LINK = re.compile(r"\]\(([^()\s]+)\)") # of a picture within a link too
ELSEWHERE = re.compile(r"^(https?|mailto):")


def prose(text):
    """A page without its blocks and spans of code, line by line as it was."""
    text = re.sub(r"(?ms)^(```|~~~).*?^\1", lambda found: "\n" * found.group().count("\n"), text)
    text = re.sub(r"(?m)^    .*$", "", text)
    return re.sub(r"`[^`]*`", lambda found: "\n" * found.group().count("\n") + "x", text)


def of_page(text):
    """[target]: what links and pictures of a page lead to."""
    return LINK.findall(prose(text))


def headings(text):
    """The anchors of a page, as GitHub makes them."""
    found = set()
    text = re.sub(r"(?ms)^(```|~~~).*?^\1", "", text)
    for heading in re.findall(r"(?m)^#+ (.+?) *#*$", text):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while anchor + ("-%d" % number if number else "") in found:
            number += 1
        found.add(anchor + ("-%d" % number if number else ""))
    return found


def problems(paths, at=None):
    """at: the folder that the pages' links start from; else each page's own."""
    wrong = []
    for path in paths:
        for target in of_page(read(path)):
            if ELSEWHERE.match(target):
                continue
            name, _, anchor = target.partition("#")
            other = os.path.join(at or os.path.dirname(path), name) if name else path
            where = "%s: %s" % (os.path.relpath(path, ROOT), target)
            if not os.path.exists(other):
                wrong.append("%s: there is no such file" % where)
            elif anchor and anchor not in headings(read(other)):
                wrong.append("%s: there is no such heading" % where)
    return wrong
