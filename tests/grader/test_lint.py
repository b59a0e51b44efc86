"""grader/devtools/lint.py: which lines are too long, and which files are looked at."""

import os
import subprocess
import sys
import unittest

from helpers import DEVTOOLS, TempFolder

sys.path.insert(0, DEVTOOLS)
import lint # noqa: E402


class Lint(TempFolder):
    def test_long_lines(self):
        word = "https://example.org/" + 90 * "x"
        text = "\n".join(["x" * 99 + "é", "a " + "x" * 99, "    // " + word, "see " + word])
        self.assertEqual(lint.long_lines(text), [(2, 101), (4, 114)])

    def test_all_code_is_found(self):
        for path, text in (("a/one.py", ""), ("run", "#!/usr/bin/env bash\n"),
                           ("go", "#!/bin/sh\n"), ("LICENSE", "MIT"), ("Makefile", ""),
                           ("k.cu", ""), (".gitignore", "made.py\n"), ("made.py", "")):
            self.write(path, text)
        for words in ["init", "-q"], ["add", "."]:
            subprocess.run(["git"] + words, cwd=self.folder, check=True)
        os.remove(self.path("k.cu"))
        self.write("new.py", "")
        found = {ending: sorted(paths) for ending, paths in lint.code_files(self.folder).items()}
        self.assertEqual(found, {".py": ["a/one.py", "new.py"], ".sh": ["go", "run"],
                                 ".mk": ["Makefile"]})


if __name__ == "__main__":
    unittest.main()
