"""Every kernel that include/kernels.h declares says on simgpu what it costs."""

import glob
import os
import re
import unittest

from helpers import ROOT

# They compute nothing: what they cost are the bytes that they write.
MOVES = {"kernel_fill", "kernel_broadcast_bias", "kernel_broadcast_bias_ex"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def saying_their_cost(source):
    """The functions that do, themselves or in one of the same file that they hand their work to."""
    bodies = dict(re.findall(r"(?ms)^(?:static )?cudaError_t (\w+)\(.*?\n{\n(.*?)^}", source))
    own = {name for name, body in bodies.items() if re.search(r"simgpu_cost\(&?op, ", body)}
    return own | {name for name, body in bodies.items()
                  if any(re.search(r"\b%s\(&op, " % core, body) for core in own)}


class Costs(unittest.TestCase):
    def test_each_declared_kernel_says_its_flop(self):
        declared = set(re.findall(r"(?m)^cudaError_t (kernel_\w+)\(",
                                  read(os.path.join(ROOT, "include", "kernels.h"))))
        costed = set()
        for path in glob.glob(os.path.join(ROOT, "lib", "kernels", "*.c")):
            costed |= saying_their_cost(read(path))
        self.assertGreater(len(declared), 20)
        self.assertEqual(declared - costed, MOVES)
        self.assertEqual({name for name in costed if name.startswith("kernel_")} - declared, set())


if __name__ == "__main__":
    unittest.main()
