"""Gradings in one build tree: what looks at the reference's objects does so while none can be
making them again, which a grading of the reference does."""

import contextlib
import io
import os
import types
import unittest
from unittest import mock

from helpers import ROOT, ReferenceCopy, build_folder
import builder
import compare
import demo
import grade
import manifest
import plan
from builder import Builder, Failing


@unittest.skipUnless(os.path.isdir(os.path.join(ROOT, "reference")), "the reference is not here")
class Locks(ReferenceCopy):
    def setUp(self):
        super().setUp()
        self.held = []  # of each lock of the build that is held, whether alone
        self.looks = [] # for each look at objects, what was held
        test = self
        lock, look = Builder.locked_build, builder.names_in

        @contextlib.contextmanager
        def locked_build(this, exclusive):
            with lock(this, exclusive):
                test.held.append(exclusive)
                yield
                test.held.remove(exclusive)

        def compile_nothing(this, task):
            test.looks.append(list(test.held))
            return Failing("error", "%s is not looked at" % task.file), ""

        def names_in(files, kept):
            test.looks.append(list(test.held))
            return look(files, kept)
        for target, name, value in ((Builder, "locked_build", locked_build),
                                    (Builder, "compile", compile_nothing),
                                    (builder, "names_in", names_in)):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.options = types.SimpleNamespace(impl=self.copy, build=build_folder(), backend="simgpu")

    def expect(self, looks, held):
        self.assertGreaterEqual(len(self.looks), looks)
        self.assertEqual(self.looks, [[held]] * len(self.looks))

    def test_the_demo(self):
        with contextlib.redirect_stdout(io.StringIO()):
            demo.prepare(self.options, ["demo"])
        self.expect(1 + 6, False)

    def test_why_a_file_cannot_be_linked(self):
        def own_names(this, task):
            self.looks.append(list(self.held))
            return {"fsdp_wrap"}
        given = Builder(self.copy, build_folder(), "simgpu")
        given.find_key()
        given.objects["api"] = types.SimpleNamespace(defined=set)
        with mock.patch.object(Builder, "own_names", own_names):
            said = demo.why_not_linked(given, types.SimpleNamespace(name="api"), "")
        self.assertIn("fsdp_wrap", said)
        self.expect(1, False)

    def test_the_plan(self):
        plan.build_program(self.options)
        self.expect(1 + 6 + 1, False)

    def test_the_comparison(self):
        compare.build(self.options)
        self.expect(1 + 1, False)

    def test_a_grading(self):
        tasks = manifest.load(ROOT)
        this = types.SimpleNamespace(progress=None)
        for impl, alone in ((self.copy, False), (os.path.join(ROOT, "reference"), True)):
            with self.subTest(impl=impl):
                self.looks.clear()
                given = Builder(impl, build_folder(), "simgpu")
                given.find_key()
                with mock.patch.object(Builder, "complete"):
                    failing = grade.Grading.compile(this, given, tasks)
                self.assertEqual(set(failing), {task.name for task in tasks})
                self.expect(6, alone)


if __name__ == "__main__":
    unittest.main()
