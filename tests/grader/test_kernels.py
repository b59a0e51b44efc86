"""Every kernel that include/kernels.h declares says on simgpu what it costs; and none computes with
vectors that a laptop's processor does not have."""

import glob
import os
import platform
import re
import subprocess
import unittest

from helpers import ROOT, read

# They compute nothing: what they cost are the bytes that they write.
MOVES = {"kernel_fill", "kernel_broadcast_bias", "kernel_broadcast_bias_ex"}


def saying_their_cost(source):
    """The functions that do, themselves or in one of the same file that they hand their work to."""
    bodies = dict(re.findall(r"(?ms)^(?:static )?cudaError_t (\w+)\(.*?\n{\n(.*?)^}", source))
    own = {name for name, body in bodies.items() if re.search(r"simgpu_cost\(&?op, ", body)}
    return own | {name for name, body in bodies.items()
                  if any(re.search(r"\b%s\(&op, " % core, body) for core in own)}


class Costs(unittest.TestCase):
    def test_each_declared_kernel_says_its_flop(self):
        declared = set(re.findall(r"(?m)^cudaError_t (kernel_\w+)\(",
                                  read(ROOT, "include", "kernels.h")))
        costed = set()
        for path in glob.glob(os.path.join(ROOT, "lib", "kernels", "*.c")):
            costed |= saying_their_cost(read(path))
        self.assertGreater(len(declared), 20)
        self.assertEqual(declared - costed, MOVES)
        self.assertEqual({name for name in costed if name.startswith("kernel_")} - declared, set())


@unittest.skipUnless(platform.machine() == "x86_64", "the levels are x86-64's")
class Vectors(unittest.TestCase):
    """A vector wider than the machine's is computed in memory: attention's backward took eight
    times as long on a processor without AVX-512."""

    def warnings(self, source, level):
        # The compiler's own vectors are never too wide; without them it takes a third of the time.
        command = ["gcc", "-std=gnu11", "-O0", "-march=" + level, "-Wvector-operation-performance",
                   "-Iinclude", "-Isimgpu/include", "-Igpulog/include", "-Ilib/kernels",
                   "-c", "-xc", "-", "-o", os.devnull]
        done = subprocess.run(command, cwd=ROOT, input=source, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=True)
        return done.stderr

    def test_no_vector_is_wider_than_the_processors(self):
        for path in glob.glob(os.path.join(ROOT, "lib", "kernels", "*.c")):
            source = read(path)
            if '"rows.h"' not in source:
                continue
            for level in ("x86-64", "x86-64-v3"): # SSE2, AVX2
                with self.subTest(kernel=os.path.basename(path), level=level):
                    self.assertEqual(self.warnings(source, level), "")

    def test_a_wider_one_is_found(self):
        wide = """typedef float Wide __attribute__((vector_size(64)));
                  void add(Wide *a, const Wide *b) { *a += *b; }"""
        for level in ("x86-64", "x86-64-v3"):
            self.assertIn("vector", self.warnings(wide, level))


if __name__ == "__main__":
    unittest.main()
