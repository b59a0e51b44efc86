"""Every kernel that include/kernels.h declares says on simgpu what it costs."""

import glob
import os
import re
import unittest

from helpers import ROOT

# They compute nothing: what they cost are the bytes that they write.
MOVES = {"kernel_fill", "kernel_broadcast_bias"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Costs(unittest.TestCase):
    def test_each_declared_kernel_says_its_flop(self):
        declared = set(re.findall(r"(?m)^cudaError_t (kernel_\w+)\(",
                                  read(os.path.join(ROOT, "include", "kernels.h"))))
        costed = set()
        for path in glob.glob(os.path.join(ROOT, "lib", "kernels", "*.c")):
            for name, body in re.findall(r"(?ms)^cudaError_t (kernel_\w+)\(.*?\n{\n(.*?)^}",
                                         read(path)):
                if "simgpu_cost(&op, " in body:
                    costed.add(name)
        self.assertGreater(len(declared), 20)
        self.assertEqual(declared - costed, MOVES)


if __name__ == "__main__":
    unittest.main()
