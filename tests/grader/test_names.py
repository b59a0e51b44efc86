"""The names in objects and libraries, and what is kept of them between two gradings."""

import json
import os
import unittest
from unittest import mock

from helpers import TempFolder, run
import names


class Names(TempFolder):
    def setUp(self):
        super().setUp()
        self.kept = self.path("names.json")

    def object(self, name, text):
        """Compiles a file; its object's path."""
        source, made = self.write(name + ".c", text), self.path(name + ".o")
        run(["cc", "-c", source, "-o", made], status=0)
        return made

    def library(self, name, *objects):
        made = self.path(name)
        run(["ar", "rcs", made, *objects], status=0)
        return made

    def test_what_is_defined_and_used_by_others(self):
        one = self.object("one", "int used(int); static int own = 3; int more = 4;\n"
                                 "int one(void) { return used(own); }\n")
        two = self.object("two", "int two;\n")
        both = self.library("lib[1].a", one, two)
        self.assertEqual(names.names_in([one], self.kept), {"one", "used", "more"})
        self.assertEqual(names.names_in([both], self.kept), {"one", "used", "more", "two"})
        self.assertEqual(names.names_in([two, one], self.kept), {"one", "used", "more", "two"})

    def test_nm_is_asked_of_what_has_changed(self):
        one, two = self.object("one", "int one;\n"), self.object("two", "int two;\n")
        self.assertEqual(names.names_in([one, two], self.kept), {"one", "two"})
        with mock.patch.object(names, "ask", wraps=names.ask) as asked:
            self.assertEqual(names.names_in([two], self.kept), {"two"})
            self.assertEqual(names.names_in([one, two], self.kept), {"one", "two"})
            asked.assert_not_called()
            self.object("one", "int another;\n")
            self.assertEqual(names.names_in([one, two], self.kept), {"another", "two"})
            asked.assert_called_once_with([one])

    def test_what_is_kept_may_be_broken(self):
        one = self.object("one", "int one;\n")
        names.names_in([one], self.kept)
        entry = json.loads(self.read("names.json"))[one]
        for text in ("", "[]", "3", "{", json.dumps({one: 1}), json.dumps({one: {}}), "[" * 9999,
                     json.dumps({one: dict(entry, names="one")}),
                     json.dumps({one: dict(entry, **{"is": 7})})):
            self.write("names.json", text)
            self.assertEqual(names.names_in([one], self.kept), {"one"}, text[:20])

    def test_files_that_are_none(self):
        self.assertEqual(names.names_in([self.write("empty.a", "")], self.kept), set())
        with self.assertRaises(OSError):
            names.names_in([self.path("nothing.o")], self.kept)
        one = self.object("one", "int one;\n")
        with mock.patch.dict(os.environ, PATH=self.folder), self.assertRaises(OSError):
            names.names_in([one], self.kept)


if __name__ == "__main__":
    unittest.main()
