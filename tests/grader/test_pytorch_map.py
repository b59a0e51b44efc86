"""handouts/pytorch.md and the program that looks its names up in PyTorch's source
(grader/devtools/pytorch_map.py): here without PyTorch, on made-up sources."""

import unittest
import zipfile

from helpers import ROOT, TempFolder, read

import pytorch_map

SOURCE = """
class Group:
    state: int = 0
    def unshard(self): pass
    if state:
        def late(self): pass
def fully_shard(module): pass
"""
PAGE = """PyTorch 2.15.0
| 1.1 | `meta_numel` | `_group.py::Group.unshard`, `_group.py::fully_shard` | |
| | | `torch/engine.h::single_round` | |
"""


def page():
    return read(ROOT, pytorch_map.PAGE)


class ThePage(unittest.TestCase):
    def test_it_has_every_function_that_students_write(self):
        parts = pytorch_map.written_by_students(ROOT)
        self.assertEqual(parts["3.3"], "fsdp_wait_for_unshard")
        self.assertGreater(len(parts), 35)
        self.assertEqual(pytorch_map.missing_rows(page(), ROOT), [])

    def test_a_row_of_another_function_is_none(self):
        wrong = pytorch_map.missing_rows(page().replace("`fsdp_unshard`", "`fsdp_reshard`"), ROOT)
        self.assertEqual(len(wrong), 1)
        self.assertIn("part 3.2, fsdp_unshard", wrong[0])

    def test_its_version_and_names_are_found(self):
        self.assertRegex(pytorch_map.version_of_page(page()), r"^\d+\.\d+\.\d+$")
        self.assertGreater(len(set(pytorch_map.mentions(page()))), 70)


class Lookup(TempFolder):
    def setUp(self):
        super().setUp()
        self.write("torch/version.py", "__version__ = '2.15.0+cu132'\n")
        self.write(pytorch_map.FSDP2 + "_group.py", SOURCE)
        self.write("torch/engine.h", "inline UINT4 single_round(UINT4 ctr) {}\n")

    def source(self):
        return pytorch_map.source_of(self.folder)

    def test_what_is_there(self):
        self.assertEqual(pytorch_map.problems(PAGE, self.source()), [])
        self.assertEqual(pytorch_map.version_of(self.source()), "2.15.0")

    def test_what_is_not_there(self):
        for old, new, says in (
                ("Group.unshard", "Group.unshards", "_group.py: there is no Group.unshards in it"),
                ("Group.unshard", "unshard", "_group.py: there is no unshard in it"),
                ("_group.py::f", "_groups.py::f", "_groups.py: PyTorch has no such file"),
                ("single_round", "single", "torch/engine.h: there is no single in it")):
            wrong = pytorch_map.problems(PAGE.replace(old, new), self.source())
            self.assertEqual(len(wrong), 1, wrong)
            self.assertIn(says, wrong[0])

    def test_a_name_in_a_condition(self):
        self.assertIn("Group.late", pytorch_map.names_of(SOURCE, False))

    def test_a_wheel(self):
        wheel = self.path("torch.whl")
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in ("torch/version.py", pytorch_map.FSDP2 + "_group.py", "torch/engine.h"):
                archive.write(self.path(name), name)
        self.assertEqual(pytorch_map.problems(PAGE, pytorch_map.source_of(wheel)), [])


if __name__ == "__main__":
    unittest.main()
