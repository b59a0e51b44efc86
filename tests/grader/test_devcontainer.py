"""The container of .devcontainer/: Debian's packages alone, and all that grader/setup.sh would
install. That a container is made of it is not tried here."""

import json
import os
import re
import unittest

from helpers import ROOT, read

import release

FOLDER = os.path.join(ROOT, ".devcontainer")


class Container(unittest.TestCase):
    def setUp(self):
        self.text = read(FOLDER, "Dockerfile")
        self.packages = set(re.search(r"--no-install-recommends ([\s\\a-z0-9+.-]+?)&&", self.text)
                            .group(1).replace("\\", " ").split())

    def test_its_description_names_it(self):
        description = json.loads(read(FOLDER, "devcontainer.json"))
        self.assertEqual(description["build"], {"dockerfile": "Dockerfile"})
        self.assertEqual(description["postCreateCommand"], "make deps")
        self.assertIn("useradd --create-home --shell /bin/bash " + description["remoteUser"],
                      self.text)

    def test_it_has_what_setup_would_install(self):
        """Of both BLAS one is enough; g++ is for emulated CUDA, which students do not have."""
        known = set(re.findall(r"(?m)^    ([a-z0-9+-]+)\) +echo ",
                               read(ROOT, "grader", "setup.sh")))
        self.assertGreater(len(known), 9)
        self.assertEqual(known - self.packages, {"g++", "libopenblas-dev"})

    def test_nothing_comes_from_elsewhere(self):
        self.assertRegex(self.text, r"(?m)^FROM debian:[a-z-]+$")
        for word in ("curl", "wget", "pip", "ADD", "COPY", "http"):
            self.assertNotIn(word, self.text)

    def test_students_have_it_too(self):
        self.assertIn(".devcontainer", release.STUDENT_FOLDERS)
        self.assertIn(".devcontainer/Dockerfile", release.STUDENT_FILES)


if __name__ == "__main__":
    unittest.main()
