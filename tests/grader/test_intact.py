"""A kit that is not as it was released or built is not graded with (grader/intact.py)."""

import os
import unittest

from helpers import FakeKit, read

import intact


class Released(FakeKit):
    def setUp(self):
        super().setUp()
        files = {}
        for top in intact.WATCHED + ("Makefile",):
            for folder, folders, names in os.walk(self.path(top)):
                folders[:] = [name for name in folders if name != "__pycache__"]
                files.update((os.path.relpath(os.path.join(folder, name), self.folder), "")
                             for name in names)
        files["Makefile"] = ""
        self.write(intact.NAME, intact.sums({
            path: read(self.folder, path).encode() for path in files}))

    def append(self, path):
        self.write(path, (self.read(path) if os.path.exists(self.path(path)) else "") + "\n")

    def student(self):
        """A student's archive has nothing for staff."""
        self.write(intact.NAME, "".join(
            line for line in self.read(intact.NAME).splitlines(True) if "deliver.py" not in line))
        os.unlink(self.path("grader", "course", "deliver.py"))

    def ends(self, path):
        status, _, _, document = self.grade()
        self.assertEqual((status, document["status"], document["score"]), (3, "infrastructure", 0))
        self.assertIn(path + " has changed since ", document["message"])

    def test_the_kit_as_it_was_released(self):
        for _ in range(2):
            status, _, _, document = self.grade()
            self.assertEqual((status, document["score"], self.err), (0, 100, ""))

    def test_a_file_that_was_changed_added_or_removed(self):
        for path in ("tasks/1_one/task.json", "Makefile", "tasks/1_one/tests_more.c", "GNUmakefile",
                     "grader/more.py"):
            with self.subTest(path):
                before = self.read(path) if os.path.exists(self.path(path)) else None
                self.append(path)
                self.ends(path)
                os.unlink(self.path(path))
                if before is not None:
                    self.write(path, before)
        os.unlink(self.path("tasks/2_two/task.json"))
        self.ends("tasks/2_two/task.json")

    def test_an_object_that_was_changed(self):
        self.grade()
        path = self.path("build/lib/libtasks.a")
        info = os.stat(path)
        with open(path, "w", encoding="ascii") as file:
            file.write("other")
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        self.ends("build/lib/libtasks.a")

    def test_a_student_is_warned(self):
        self.student()
        self.append("grader/more.py") # a file of their own
        self.assertEqual(self.grade()[3]["score"], 100)
        self.assertEqual(self.err, "")
        self.append("tasks/1_one/task.json")
        self.assertEqual(self.grade()[3]["score"], 100)
        self.assertIn("tasks/1_one/task.json is not as released", self.err)


if __name__ == "__main__":
    unittest.main()
