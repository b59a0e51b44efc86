"""make install: what a program elsewhere needs of simgpu, in any folder, and nothing of this one.
And a program gets no more of the library than it uses."""

import os
import re
import shutil
import unittest

from helpers import ROOT, TempFolder, build_folder, outside_make, read, run

CUDA = r"""
#include <cuda_runtime.h>
#include <stdio.h>

int main(void)
{
    float host[4] = {1, 2, 3, 4}, back[4] = {0}, *x;
    cudaStream_t stream;
    if (cudaMalloc((void **)&x, sizeof host) || cudaStreamCreate(&stream)) return 1;
    cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(back, x, sizeof host, cudaMemcpyDeviceToHost, stream);
    if (cudaStreamSynchronize(stream)) return 2;
    if (cudaStreamDestroy(stream) || cudaFree(x)) return 3;
    printf("copied %g\n", back[3]);
    return 0;
}
"""
NCCL = r"""
#include <cuda_runtime.h>
#include <gpulog.h>
#include <nccl.h>
#include <simgpu.h>
#include <stdio.h>

int main(void)
{
    enum { RANKS = 3 };
    ncclComm_t comm[RANKS];
    float *x[RANKS], host;
    if (ncclCommInitAll(comm, RANKS, NULL)) return 1;
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        cudaMalloc((void **)&x[r], sizeof host);
        host = (float)(r + 1);
        cudaMemcpy(x[r], &host, sizeof host, cudaMemcpyHostToDevice);
    }
    ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        ncclAllReduce(x[r], x[r], 1, ncclFloat, ncclSum, comm[r], NULL);
    }
    if (ncclGroupEnd()) return 2;
    for (int r = 0; r < RANKS; r++) {
        cudaSetDevice(r);
        cudaMemcpy(&host, x[r], sizeof host, cudaMemcpyDeviceToHost);
        printf("rank %d: %g\n", r, host);
        if (r > 0) cudaFree(x[r]);
        ncclCommDestroy(comm[r]);
    }
    return 0;
}
"""
NAMES = ("BACKEND", "BUILD", "SANITIZE", "BLAS", "CC", "CFLAGS", "LDFLAGS", "IMPL", "TASK", "V",
         "DESTDIR", "PREFIX", "STRIP", "PKG_CONFIG_PATH")


def environment(**more):
    """One that no make has written to, and in which simgpu has no settings."""
    found = {name: value for name, value in outside_make(*NAMES).items()
             if not name.startswith(("SIMGPU_", "SHARDLAB_"))}
    return dict(found, NO_INSTALL="1", **more)


def symbols(path, *flags):
    """The names that nm prints of an object, an archive or a program, with their kinds."""
    done = run(["nm", "-P", *flags, path], status=0)
    return {(words[0], words[1]) for words in map(str.split, done.stdout.split("\n"))
            if len(words) > 1}


@unittest.skipUnless(build_folder() == os.path.join(ROOT, "build"), "simgpu is not built by itself")
class Installed(TempFolder):
    def install(self, prefix, *words):
        done = run(["make", "-s", "install", "PREFIX=" + prefix, *words], timeout=600,
                   environment=environment())
        return done.returncode, done.stdout + done.stderr

    def compiled(self, root, name, text):
        """A program, compiled in a folder of its own as simgpu/README.md says."""
        self.write("user/%s.c" % name, text)
        done = run(["sh", "-c", 'eval "cc -g -Wall %s.c $(pkg-config --cflags --libs simgpu) -o %s"'
                    % (name, name)], self.path("user"), 120,
                   environment=environment(PKG_CONFIG_PATH=os.path.join(root, "lib", "pkgconfig")))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return self.path("user", name)

    def ran(self, program):
        done = run([program], self.path("user"), 120, environment=environment())
        return done.returncode, done.stdout, done.stderr

    def files(self, root):
        return sorted(os.path.relpath(os.path.join(folder, name), root)
                      for folder, _, names in os.walk(root) for name in names)

    def assert_lacks(self, path, text):
        with open(path, "rb") as file:
            self.assertNotIn(text.encode(), file.read(), path)

    def check_tree(self, root):
        """What is installed is whole, and does not know of the kit's folder."""
        include = os.path.join(ROOT, "simgpu", "include")
        headers = sorted(self.files(include) + ["gpulog.h", "gpulog_collectives.h"])
        pages = sorted(os.listdir(os.path.join(ROOT, "simgpu", "pages")))
        machines = [name for name in os.listdir(os.path.join(ROOT, "simgpu", "machines"))
                    if name.endswith(".machine")]
        self.assertEqual(self.files(root), sorted(
            ["include/simgpu/" + name for name in headers] +
            ["lib/cmake/simgpu/simgpuConfig.cmake", "lib/cmake/simgpu/simgpuConfigVersion.cmake",
             "lib/libsimgpu.a", "lib/pkgconfig/simgpu.pc", "share/doc/simgpu/LICENSE",
             "share/doc/simgpu/README.md", "share/man/man7/simgpu.7"] +
            ["share/doc/simgpu/pages/" + name for name in pages] +
            ["share/simgpu/machines/" + name for name in machines]))
        self.assertIn("\nVersion: %s\n" % read(ROOT, "VERSION").strip(),
                      read(root, "lib", "pkgconfig", "simgpu.pc"))
        for name in self.files(root):
            self.assert_lacks(os.path.join(root, name), ROOT)

    def check_programs(self, root):
        self.assertEqual(self.ran(self.compiled(root, "cuda", CUDA)), (0, "copied 4\n", ""))
        program = self.compiled(root, "nccl", NCCL)
        status, out, report = self.ran(program)
        self.assertEqual((status, out), (0, "rank 0: 6\nrank 1: 6\nrank 2: 6\n"))
        # The report of a leak names the program's own line, and the page that is installed.
        self.assertIn("1 allocation of device memory (4 bytes)", report)
        self.assertRegex(report, r"made at nccl\.c:16 \(main\)")
        self.assertIn('Read: simgpu/pages/mistakes.md, "Leak"', report)
        self.assert_lacks(program, ROOT)
        # So, too, where no addresses of units are listed: clang does not.
        run(["objcopy", "--remove-section=.debug_aranges", program], status=0)
        self.assertRegex(self.ran(program)[2], r"made at nccl\.c:16 \(main\)")

    def test_a_program_elsewhere(self):
        for name in ("opt", "it's an odd folder & more #1"):
            root = self.path(name)
            self.assertEqual(self.install(root), (0, ""), name)
            self.check_tree(root)
            self.check_programs(root)

    @unittest.skipUnless(shutil.which("cmake"), "there is no cmake here")
    def test_cmake_finds_it(self):
        """Also where the folder has been moved to; and of other versions it is none."""
        root = self.path("moved (1) & more")
        self.assertEqual(self.install(self.path("opt")), (0, ""))
        os.rename(self.path("opt"), root)
        version = read(ROOT, "VERSION").split()[0]
        self.write("user/nccl.c", NCCL)
        for wanted, found in (("", True), (version, True), (version + " EXACT", True),
                              ("0.0.9", False), ("99", False), ("0.99", False)):
            self.write("user/CMakeLists.txt", "cmake_minimum_required(VERSION 3.13)\n"
                       "project(user C)\nfind_package(simgpu %s REQUIRED)\n"
                       "add_executable(nccl nccl.c)\n"
                       "target_link_libraries(nccl PRIVATE simgpu::simgpu)\n" % wanted)
            shutil.rmtree(self.path("made"), True)
            done = run(["cmake", "-S", self.path("user"), "-B", self.path("made"),
                        "-DCMAKE_PREFIX_PATH=" + root], timeout=120, merged=True,
                       environment=environment())
            self.assertEqual(done.returncode == 0, found, done.stdout)
            if wanted == version:
                run(["cmake", "--build", self.path("made")], timeout=120, status=0,
                    environment=environment())
                out = run([self.path("made", "nccl")], environment=environment()).stdout
                self.assertEqual(out, "rank 0: 6\nrank 1: 6\nrank 2: 6\n")

    def test_the_manual_page(self):
        """It has what the README has: its headings, variables and code; and groff takes it."""
        self.assertEqual(self.install(self.path("opt")), (0, ""))
        page = self.path("opt/share/man/man7/simgpu.7")
        text, readme = read(page), read(ROOT, "simgpu", "README.md")
        for heading in re.findall(r"(?m)^## (.*)$", readme):
            self.assertIn(".SH %s\n" % heading.upper(), text)
        for name in re.findall(r"(?m)^\| `(SIMGPU_\w+)`", readme):
            self.assertIn(".TP\n\\fB%s\\fR" % name, text)
        self.assertNotRegex(re.sub(r"(?s)\.nf\n.*?\.fi", "", text), r"`|\]\(")
        if not shutil.which("groff"):
            self.skipTest("there is no groff here")
        done = run(["groff", "-Kutf8", "-man", "-ww", "-Tutf8", page], merged=True, status=0)
        self.assertNotIn("warning", done.stdout)
        shown = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
        for line in re.findall(r"(?m)^    (\S.*)$", readme):
            self.assertIn(line, shown)

    def test_again_over_itself(self):
        root = self.path("opt")
        self.assertEqual(self.install(root), (0, ""))
        before = self.files(root)
        os.chmod(os.path.join(root, "include/simgpu/nccl.h"), 0o444)
        self.assertEqual(self.install(root), (0, ""))
        self.assertEqual(self.files(root), before)

    def test_a_package(self):
        """DESTDIR holds the files that PREFIX will have."""
        self.assertEqual(self.install(self.path("later on"), "DESTDIR=" + self.path("package")),
                         (0, ""))
        self.assertEqual(os.listdir(self.folder), ["package"])
        packed = self.path("package") + self.path("later on")
        self.check_tree(packed)
        for name in self.files(packed):
            self.assert_lacks(os.path.join(packed, name), self.path("package"))
        shutil.move(packed, self.path("later on"))
        self.check_programs(self.path("later on"))

    def test_what_is_refused(self):
        status, out = self.install("relative/folder")
        self.assertEqual(status, 2)
        self.assertIn("PREFIX=relative/folder is no absolute path", out)
        self.assertFalse(os.path.exists(os.path.join(ROOT, "relative")))
        status, out = self.install(self.path("opt"), "BACKEND=cuda", "CUDA_HOME=/nowhere")
        self.assertEqual((status, os.listdir(self.folder)), (2, []))

    def test_only_what_a_program_uses(self):
        """One that only uses CUDA has nothing of simgpu's NCCL and cuBLAS, and needs no BLAS."""
        root = self.path("opt")
        self.assertEqual(self.install(root), (0, ""))
        parts = {}
        for part in ("nccl", "blas"):
            folder = os.path.join(build_folder(), "obj", "simgpu", "src", part)
            parts[part] = {name for file in os.listdir(folder) if file.endswith(".o")
                           for name, _ in symbols(os.path.join(folder, file), "-g",
                                                  "--defined-only")}
        self.assertIn("ncclAllReduce", parts["nccl"])
        self.assertIn("cublasSgemm_v2", parts["blas"])
        cuda = {name for name, _ in symbols(self.compiled(root, "cuda", CUDA))}
        self.assertIn("cudaMalloc", cuda)
        nccl = {name for name, _ in symbols(self.compiled(root, "nccl", NCCL))}
        self.assertIn("ncclAllReduce", nccl)
        self.assertEqual((cuda & parts["nccl"], cuda & parts["blas"]), (set(), set()))
        self.assertEqual(nccl & parts["blas"], set())

    def test_no_part_is_asked_for_weakly(self):
        """A part that a program does not use is not named at all: it adds its hooks by itself."""
        weak = {name for name, kind in symbols(os.path.join(build_folder(), "lib", "libsimgpu.a"))
                if kind in "wv" and name.startswith("sim")}
        self.assertEqual(weak, set())


if __name__ == "__main__":
    unittest.main()
