"""grader/dropped.py: results that nobody looks at in small files, none in the kit's own, and what
the compilers here say of the macros that mark and drop them."""

import glob
import os
import shutil
import subprocess
import tempfile
import unittest

from helpers import ROOT

import dropped

HEADERS = dropped.headers_of(ROOT)
BEGIN = """#include "fsdp.h"
static Status own(int x) { return x ? OK : ERR_IO; }
static void nothing(int x) { }
Status task(FsdpUnit *unit, cudaStream_t stream, HookFn hook)
{
"""
END = "    return OK;\n}\n"


def found(text):
    return [(lost.call, lost.how.split(" ")[0])
            for lost in dropped.find(BEGIN + text + END, HEADERS)]


class Texts(unittest.TestCase):
    def test_statements_that_drop(self):
        for text, call in (
                ("fsdp_unshard(unit);", "fsdp_unshard"),
                ("(void)fsdp_unshard(unit);", "fsdp_unshard"), ("(own(1));", "own"),
                ("(void)(own(1));", "own"), ("((void)own(1));", "own"), ("(own(1), 0);", "own"),
                ("if (unit) (own(1));", "own"),
                ("own(1);", "own"), ("if (unit) own(1);", "own"), ("if (0) ; else own(1);", "own"),
                ("for (;;) own(1);", "own"), ("unit->all_gather(unit);", "all_gather"),
                ("hook(unit->module, unit);", "hook"), ("unit->hooks[0]->fn(0, unit);", "fn"),
                ("own(1), own(2);", "own"),
                ("cudaMemsetAsync(0, 0, 0, stream);", "cudaMemsetAsync"),
                ("kernel_scale(0, 1, 0, stream);", "kernel_scale"),
                ("ncclGroupStart();", "ncclGroupStart")):
            self.assertEqual(found(text), [(call, "")], text)

    def test_results_that_are_stored(self):
        self.assertEqual(found("Status s = own(1);"), [("own", "stored")])
        self.assertEqual(found("Status s = OK;\ns = own(1);"), [("own", "stored")])
        self.assertEqual(found("Status s = own(1);\n(void)s;"), [("own", "stored")])
        self.assertEqual(found("Status s = own(1);\ns = own(2);\nTRY(s);"), [("own", "stored")])
        self.assertEqual(found("cudaError_t e = cudaEventRecord(0, 0);"),
                         [("cudaEventRecord", "stored")])

    def test_what_is_looked_at(self):
        for text in ("TRY(own(1));", "TRY((own(1)));", "while ((own(1)) == OK);",
                     "if (own(1) != OK) return ERR_IO;", "return own(1);",
                     "Status s = own(1);\nif (s == OK) s = own(2);\nTRY(s);",
                     "Status s = own(1);\nTRY(s);\ns = own(2);\nreturn s;",
                     "Status s = OK;\ns = own(1);\nreturn s;",
                     "Status s = own(1);\nif (s != OK) IGNORE_STATUS(own(2));\nreturn s;",
                     "Status s = own(1);\nif (s != OK) {\nnothing(1);\nIGNORE_STATUS(own(2));\n}",
                     "if (unit) {} else { IGNORE_STATUS(own(2)); }",
                     "if (unit) {} else if (unit) IGNORE_STATUS(own(2));",
                     "Status s = own(1);\nif (s != OK)\nif (unit) IGNORE_STATUS(own(2));\nTRY(s);",
                     "if (unit) goto fail;\nreturn OK;\nfail:\nIGNORE_STATUS(own(2));",
                     "IGNORE_STATUS(folder_remove(0));",
                     "nothing(1);", "// own(1);", "/* own(1); */", 'puts("; own(1);");',
                     "cudaFreeAsync(0, stream);", "CUDA_TRY(cudaEventRecord(0, 0));",
                     "bool b = own(1) == OK && own(2) == OK;\nif (b) return OK;",
                     "Status s = unit ? own(1)\n : own(2);\nTRY(s);",
                     'NOT_YET("3.2"); own(1);'):
            self.assertEqual(found(text), [], text)

    def test_a_status_that_could_be_returned_is_not_ignored(self):
        for text in ("IGNORE_STATUS(own(1));", "if (unit) IGNORE_STATUS(own(1));",
                     "for (;;) { IGNORE_STATUS(own(1)); }", "IGNORE_STATUS((own(1)));",
                     "switch (0) { default: IGNORE_STATUS(own(1)); }"):
            self.assertEqual(found(text), [("own", "dropped")], text)
        drops = "static void %s(void)\n{\n    IGNORE_STATUS(fsdp_unshard(0));\n}\n"
        for caller, lost in (("Status task(void)\n{\n    drop();\n    return OK;\n}\n", 1),
                             ("Status task(Status s)\n{\n    if (s != OK) drop();\n    return s;\n"
                              "}\n", 0),
                             ("void fsdp_unwrap(Module *root)\n{\n    drop();\n}\n", 0)):
            self.assertEqual(len(dropped.find(drops % "drop" + caller, HEADERS)), lost, caller)

    def test_the_sentence_names_place_and_remedy(self):
        lost = dropped.find(BEGIN + "    own(1);\n" + END, HEADERS)[0]
        self.assertEqual(lost.sentence("mine/forward.c"), "mine/forward.c:6 (task): the Status of "
                         "own is dropped: write TRY(own(…)), or IGNORE_STATUS(…) if you mean "
                         "to ignore it.")

    def test_the_kit_drops_none(self):
        for pattern in ("reference/*.c", "skeleton/*.c", "labs/*/*.c", "tasks/*/alternatives/*.c",
                        "labs/*/alternatives/*.c"):
            for path in glob.glob(os.path.join(ROOT, pattern)):
                if os.path.basename(path).startswith("tests"):
                    continue
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(dropped.find(file.read(), HEADERS), [], path)


class Compilers(unittest.TestCase):
    def test_a_dropped_status_is_a_warning(self):
        for compiler in filter(shutil.which, ("gcc", "clang")):
            with tempfile.TemporaryDirectory() as folder:
                for text, wrong in (("fsdp_unshard(unit);", True),
                                    ("unit->all_gather(unit);", True),
                                    ("IGNORE_STATUS(fsdp_unshard(unit));", False),
                                    ("TRY(fsdp_unshard(unit));", False)):
                    path = os.path.join(folder, "small.c")
                    with open(path, "w", encoding="utf-8") as file:
                        file.write('#include "fsdp.h"\nStatus task(FsdpUnit *unit)\n{\n%s\n'
                                   'return OK;\n}\n' % text)
                    done = subprocess.run(
                        [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-c", path, "-o",
                         path + ".o"] + ["-I" + os.path.join(ROOT, name) for name in (
                             "include", "gpulog/include", "simgpu/include")],
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                    self.assertEqual(done.returncode != 0, wrong, compiler + done.stdout)
                    self.assertEqual("unused-result" in done.stdout, wrong, compiler + done.stdout)


if __name__ == "__main__":
    unittest.main()
