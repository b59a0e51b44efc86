"""Every link of the repository's own pages leads to a file, and to a heading, that is there."""

import os
import unittest

from helpers import ROOT, TempFolder

import links

# Pages that are staged elsewhere: test_site.py checks their links.
STAGED = os.path.join(ROOT, "site")
# Its links are those of the archive that it is packed into, whose root is the kit's.
TEMPLATE = os.path.join("grader", "course", "platforms", "student", "README.md")


def pages():
    """All .md of the tree, as paths within it."""
    found = []
    for at, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name != "build" and
                      os.path.join(at, name) != STAGED and
                      (not name.startswith(".") or name in (".devcontainer", ".github"))]
        found += [os.path.relpath(os.path.join(at, name), ROOT)
                  for name in names if name.endswith(".md")]
    return sorted(found)


class ThePages(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        found = pages()
        self.assertIn("README.md", found)
        self.assertGreater(len(found), 25)
        self.assertEqual(links.problems([os.path.join(ROOT, path) for path in found
                                         if path != TEMPLATE]), [])

    def test_those_of_the_archives_page(self):
        self.assertEqual(links.problems([os.path.join(ROOT, TEMPLATE)], ROOT), [])


class TheCheck(TempFolder):
    def found(self, text):
        self.write("other.md", "# One\n## Two *words*, `code`\n## Two words, code\n")
        self.write("a (b).txt", "")
        return [line.split(": ", 1)[1] for line in links.problems([self.write("page.md", text)])]

    def test_what_is_there(self):
        self.assertEqual(self.found("# Top\n[a](other.md) [b](#top) ![c\nd](other.md#one)\n"
                                    "[e](other.md#two-words-code-1) <https://x.org/none>\n"
                                    "[f](https://x.org) `[g](none.md)`\n\n    [h](none.md)\n\n"
                                    "```\n[i](none.md)\n```\n"), [])

    def test_what_is_not_there(self):
        self.assertEqual(self.found("[a](none.md) [![b](none.svg)](other.md#two)\n"), [
            "none.md: there is no such file", "none.svg: there is no such file",
            "other.md#two: there is no such heading"])


if __name__ == "__main__":
    unittest.main()
