"""What memory is for (gpulog_category): the given code says it of every unsharded parameter,
whatever the six files do.

tests/trace/steps.c knows unsharded parameters by other signs: parameters' data pointed into them,
or an all-gather wrote them. Here it runs with right-but-different solutions
that bring memory or collectives of their own, and says how many of those counted as temporary.
"""

import json
import os
import unittest

from helpers import ROOT, ReferenceCopy, build_folder, read, run
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
            self.write(os.path.join(self.copy, name),
                       mutant_files.put_in(read(ROOT, "reference", name), parts[name]))
        builder = Builder(self.copy, build_folder(), "simgpu")
        builder.find_key()
        own = [os.path.splitext(name)[0] for name in parts]
        self.assertEqual(trace.link(builder, builder.key, own), "")
        done = run([trace.program_of(builder, builder.key), "--only", trace.TEST], timeout=LIMIT,
                   status=0, merged=True)
        found = [json.loads(line[len("CATEGORIES "):]) for line in done.stdout.split("\n")
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
