"""find_cuda.sh on toolkits made of empty files: each layout NVIDIA ships, and each part missing."""

import os
import platform
import re
import unittest

from helpers import GRADER, TempFolder, run

CUDART = "#define CUDART_VERSION  13000\n"
NCCL = ("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n"
        "#define NCCL_SUFFIX \"\"\n")

# Where each part of a toolkit is, in a layout: below the folder that CUDA_HOME names.
TOOLKIT = {
    "nvcc": "bin/nvcc", "cuda_runtime_api.h": "include/cuda_runtime_api.h",
    "libcudart.so": "lib64/libcudart.so", "cublas_v2.h": "include/cublas_v2.h",
    "libcublas.so": "lib64/libcublas.so", "nccl.h": "include/nccl.h",
    "libnccl.so": "lib/libnccl.so"}
DEBIAN = {**TOOLKIT, **{name: "lib/%s-linux-gnu/%s" % (platform.machine(), name)
                        for name in ("libcudart.so", "libcublas.so", "libnccl.so")}}
PIP_13 = {
    "nvcc": "cu13/bin/nvcc", "cuda_runtime_api.h": "cu13/include/cuda_runtime_api.h",
    "libcudart.so": "cu13/lib/libcudart.so.13", "cublas_v2.h": "cu13/include/cublas_v2.h",
    "libcublas.so": "cu13/lib/libcublas.so.13", "nccl.h": "nccl/include/nccl.h",
    "libnccl.so": "nccl/lib/libnccl.so.2"}
PIP_12 = {
    "nvcc": "cuda_nvcc/bin/nvcc", "cuda_runtime_api.h": "cuda_runtime/include/cuda_runtime_api.h",
    "libcudart.so": "cuda_runtime/lib/libcudart.so.12",
    "cublas_v2.h": "cublas/include/cublas_v2.h", "libcublas.so": "cublas/lib/libcublas.so.12",
    "nccl.h": "nccl/include/nccl.h", "libnccl.so": "nccl/lib/libnccl.so.2"}


class FindCuda(TempFolder):
    def toolkit(self, layout, folder="toolkit", but=()):
        for name, path in layout.items():
            if name in but:
                continue
            text = {"cuda_runtime_api.h": CUDART, "nccl.h": NCCL}.get(name, "")
            self.write(os.path.join(folder, path), text, 0o755 if name == "nvcc" else 0o644)
        return self.path(folder)

    def find(self, **more):
        """(status, the line it prints, the variables it writes)"""
        out = self.path("out/cuda.mk")
        if os.path.exists(out):
            os.remove(out)
        done = run(["/bin/sh", os.path.join(GRADER, "find_cuda.sh"), out],
                   environment={"PATH": os.environ["PATH"], "PYTHON": "false", **more})
        self.assertEqual(done.stderr, "")
        found = {}
        if os.path.exists(out):
            found = dict(re.findall(r"(?m)^(\w+) := *(.*?) *$", self.read("out/cuda.mk")))
        self.assertEqual(bool(found), done.returncode == 0)
        return done.returncode, done.stdout, found

    def test_every_layout(self):
        for number, layout in enumerate((TOOLKIT, DEBIAN, PIP_13, PIP_12)):
            with self.subTest(layout=number):
                home = self.toolkit(layout, "home%d" % number)
                status, said, found = self.find(CUDA_HOME=home, CUDA_ARCH="90")
                self.assertEqual((status, said), (0, ""))
                self.assertEqual(found["NVCC"], os.path.join(home, layout["nvcc"]))
                self.assertEqual(found["CUDA_ARCH_FLAG"], "-arch=sm_90")
                self.assertEqual((found["CUDA_VERSION"], found["NCCL_VERSION"]),
                                 ("13.0", "2.28.9"))
                for part in ("libcudart.so", "libcublas.so", "libnccl.so"):
                    path = os.path.join(home, layout[part])
                    self.assertIn(path, found["CUDA_LIB_FILES"].split())
                    self.assertIn(os.path.dirname(path), found["CUDA_LIB_FOLDERS"].split())
                for part in ("cuda_runtime_api.h", "cublas_v2.h", "nccl.h"):
                    self.assertIn("-isystem " + os.path.dirname(os.path.join(home, layout[part])),
                                  found["CUDA_INCLUDES"])

    def test_nvcc_in_path(self):
        home = self.toolkit(TOOLKIT)
        status, _, found = self.find(PATH="%s/bin:%s" % (home, os.environ["PATH"]))
        self.assertEqual((status, found["NVCC"]), (0, home + "/bin/nvcc"))

    def test_nccl_of_its_own(self):
        home = self.toolkit(TOOLKIT, but=("nccl.h", "libnccl.so"))
        nccl = self.toolkit({"nccl.h": "include/nccl.h", "libnccl.so": "lib/libnccl.so.2"}, "other")
        status, _, found = self.find(CUDA_HOME=home, NCCL_HOME=nccl)
        self.assertEqual(status, 0)
        self.assertIn(nccl + "/lib/libnccl.so.2", found["CUDA_LIB_FILES"])

    def test_each_missing_part_is_named_in_one_line(self):
        for part in TOOLKIT:
            with self.subTest(missing=part):
                home = self.toolkit(TOOLKIT, "without-" + part, but=(part,))
                status, said, _ = self.find(CUDA_HOME=home, NCCL_HOME=home)
                self.assertEqual((status, said.count("\n")), (1, 1))
                self.assertIn(part, said)
                self.assertIn("NCCL_HOME" if "nccl" in part else "CUDA_HOME", said)

    def test_a_home_that_was_given_is_not_passed_over(self):
        status, said, _ = self.find(CUDA_HOME=self.path("nowhere"))
        self.assertEqual(status, 1)
        self.assertIn("CUDA_HOME=%s has none" % self.path("nowhere"), said)

    def test_bad_architecture(self):
        home = self.toolkit(TOOLKIT)
        status, said, _ = self.find(CUDA_HOME=home, CUDA_ARCH="hopper")
        self.assertEqual((status, said),
                         (1, 'CUDA_ARCH is "hopper": must be a number such as 90, or native\n'))

    def test_the_file_is_left_alone_where_nothing_changed(self):
        home = self.toolkit(TOOLKIT)
        self.assertEqual(self.find(CUDA_HOME=home)[0], 0)
        os.utime(self.path("out/cuda.mk"), (1, 1))
        before = os.stat(self.path("out/cuda.mk"))
        run(["/bin/sh", os.path.join(GRADER, "find_cuda.sh"), self.path("out/cuda.mk")], status=0,
            environment={"PATH": os.environ["PATH"]}, CUDA_HOME=home)
        self.assertEqual(os.stat(self.path("out/cuda.mk")).st_mtime, before.st_mtime)


if __name__ == "__main__":
    unittest.main()
