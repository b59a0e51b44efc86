"""What memory is for (gpulog_category): the given code says it of every unsharded parameter,
whatever the six files do.

tests/trace/steps.c knows unsharded parameters by other signs: parameters' data pointed into them,
or an all-gather wrote them. Here it runs with right-but-different solutions
that bring memory or collectives of their own, and says how many of those counted as temporary.
"""

import json
import os
import subprocess
import unittest

from helpers import ROOT, ReferenceCopy, build_folder
import manifest
import mutant_files
import trace
from builder import Builder

LIMIT = 120 * float(os.environ.get("SHARDLAB_TIME_FACTOR") or 1)
OWN_MEMORY = ("gather_by_broadcasts", "gather_by_sends", "memory_from_a_pool", "prefetch_forward",
              "stream_for_each_unit")


class Categories(ReferenceCopy):
    def counts(self, parts):
        """[(unsharded parameters, those that are temporary)] of each rank, with these functions."""
        for name in parts:
            path = os.path.join(self.copy, name)
            with open(os.path.join(ROOT, "reference", name), encoding="utf-8") as file:
                text = mutant_files.put_in(file.read(), parts[name])
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        builder = Builder(self.copy, os.path.relpath(build_folder(), ROOT), "simgpu")
        builder.find_key()
        own = [os.path.splitext(name)[0] for name in parts]
        self.assertEqual(trace.link(builder, builder.key, own), "")
        done = subprocess.run([os.path.join(ROOT, trace.program_of(builder, builder.key)),
                               "--only", trace.TEST],
                              cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
        output = done.stdout.decode(errors="replace")
        self.assertEqual(done.returncode, 0, output[-2000:])
        found = [json.loads(line[len("CATEGORIES "):]) for line in output.split("\n")
                 if line.startswith("CATEGORIES ")]
        return [(entry["unsharded"], entry["temporary"]) for entry in found]

    def test_no_unsharded_parameter_is_temporary(self):
        tasks = manifest.load(ROOT)
        known = {solution.name: solution.parts for solution in
                 mutant_files.load_alternatives(tasks)}
        for name in OWN_MEMORY:
            with self.subTest(name):
                counts = self.counts(known[name])
                self.assertEqual(len(counts), 4)
                for unsharded, temporary in counts:
                    self.assertGreater(unsharded, 20)
                    self.assertEqual(temporary, 0)
            self.forget_builds()


if __name__ == "__main__":
    unittest.main()
