"""Attacks where a course meets them: as the archives for Gradescope, Autolab and PrairieLearn are
delivered, with the platform's script and as the account that runs the tests. A draw by SEED for
each platform, which CI makes again for each commit; test_platforms.py has all attacks, and the
platforms' own features.

The build tree is filled with what the kit's own has: the archives hold the same sources.
"""

import os
import random
import unittest

from archives import PLATFORMS, Released, warm
from attack_files import ATTACKS, FILES, SOON

# Of those that run, what needs none of the limits of minutes that platforms have.
QUICK = [attack for attack in ATTACKS if not attack.refused and attack.name not in SOON]


class Delivered(Released):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        warm(cls.build)

    def test_a_draw_of_attacks_on_each_platform(self):
        draw = random.Random(int(os.environ.get("SEED", "1")))
        refused = [attack for attack in ATTACKS if attack.refused]
        self.assertGreater(len(refused), 40)
        self.assertGreater(len(QUICK), 7)
        refused = draw.sample(refused, len(PLATFORMS) * len(FILES)) # a folder of six for each
        running = draw.sample(QUICK, len(PLATFORMS))
        for number, make in enumerate(PLATFORMS.values()):
            attacks = refused[number::len(PLATFORMS)] + running[number:number + 1]
            print("SEED=%s %s: %s" % (os.environ.get("SEED", "1"), make.__name__,
                                      ", ".join(attack.name for attack in attacks)), flush=True)
            self.attacked(make(self), attacks)


if __name__ == "__main__":
    unittest.main()
