"""The version is in one place, VERSION: archives and simgpu's pkg-config file read it there, and
what cannot read it (CITATION.cff, CHANGELOG.md) has the same."""

import os
import re
import shutil
import unittest

from helpers import ROOT, TempFolder, outside_make, read, run

import release
import settings


class Version(TempFolder):
    def setUp(self):
        super().setUp()
        self.version = read(ROOT, "VERSION").strip()

    def test_it_is_a_version(self):
        self.assertRegex(self.version, r"^\d+\.\d+(\.\d+)?$")

    def test_those_that_state_it(self):
        self.assertIn('\nversion: "%s"\n' % self.version, read(ROOT, "CITATION.cff"))
        self.assertEqual(re.search(r"(?m)^## ([\d.]+)\b", read(ROOT, "CHANGELOG.md")).group(1),
                         self.version)

    def test_the_course_has_none_of_its_own(self):
        self.assertEqual(settings.load(ROOT)["version"], "")

    def test_archives(self):
        self.assertEqual(release.version_of(ROOT).partition("-")[0], self.version)
        shutil.copytree(os.path.join(ROOT, "tasks"), self.path("tasks")) # a kit without git
        self.write("VERSION", "7.8\n")
        self.assertRegex(release.version_of(self.folder, "no-such-commit"), r"^7\.8$")

    def test_pkg_config(self):
        text = run(["make", "-s", "--eval", "print: ; $(info $(PC_TEXT))", "print"], timeout=120,
                   status=0, environment=outside_make()).stdout
        self.assertIn("\nVersion: %s\n" % self.version, text)
        for name in ("simgpu/install.sh", "make/build.mk"):
            self.assertNotRegex(read(ROOT, name), r"Version: \d")


if __name__ == "__main__":
    unittest.main()
