"""The attacks of tests/attacks, as student files.

An attack stands in front of a file of the reference. In front of optimizer.c, its
fsdp_zero_grad_default calls it and zeroes nothing: without the attack that costs what the honest
file loses. One that is refused before anything runs may stand in front of any file; six of them
make a folder that costs one grading.

Interface: ATTACKS: [Attack(name, text, ends, says, refused)]; DECOY, lay_decoy(), decoy_now();
TARGET, TARGET_FILE; in_front(text, file); honest() (optimizer.c without an attack);
refused_groups(attacks) -> [[(attack, file)]]; names_it(attack, file, said).
"""

import glob
import os
import re
import shutil
from dataclasses import dataclass

from helpers import ROOT, read

import manifest

TARGET, TARGET_FILE = "zero_grad_zeroes", "optimizer.c"
FILES = [task.file for task in manifest.load(ROOT)]
HONEST = "static void attack(void)\n{\n}\n"
# What makes a limit come soon; the others have the usual ones.
SOON = {"memory_bomb": ["--memory", "0.4"], "device_memory_bomb": ["--memory", "0.4"],
        "compile_time_bomb": ["--compile-limit", "1"], "include_bomb": ["--compile-limit", "1"],
        "object_bomb": ["--compile-limit", "4"], "sleep": ["--limit", "1"],
        "hide_the_mark": ["--limit", "1"]}


@dataclass(frozen=True)
class Attack:
    name: str
    text: str
    ends: str    # the status of the target
    says: str    # an expression that is in its message

    @property
    def refused(self):
        """Whether it is refused before anything runs, and uses up no limit until then."""
        return self.ends == "error" and self.name not in SOON


def load(path):
    text = read(path)
    ends, says = [re.search(r"^ \* %s: (.*)$" % name, text, re.MULTILINE).group(1)
                  for name in ("Ends", "Says")]
    if "\n * Calls: anything\n" in text:
        text = read(os.path.dirname(path), "past_the_list.h") + text
    return Attack(os.path.basename(path)[:-2], text, ends, says)


ATTACKS = [load(path) for path in sorted(glob.glob(os.path.join(ROOT, "tests", "attacks", "*.c")))]


# What no submission may change: attacks know it by its path.
DECOY = "/tmp/shardlab-decoy"


def lay_decoy():
    """Makes it again, so that everybody may write in it; what can be seen of it (decoy_now)."""
    shutil.rmtree(DECOY, ignore_errors=True)
    os.mkdir(DECOY)
    os.chmod(DECOY, 0o777)
    with open(os.path.join(DECOY, "file"), "w", encoding="ascii") as file:
        file.write("as it was\n")
    os.chmod(os.path.join(DECOY, "file"), 0o666)
    return decoy_now()


def decoy_now():
    return sorted((name, info.st_mode, info.st_nlink, info.st_size, info.st_mtime_ns,
                   info.st_ctime_ns) for name in os.listdir(DECOY)
                  for info in [os.lstat(os.path.join(DECOY, name))])


def reference(file):
    return read(ROOT, "reference", file)


def in_front(text, file=TARGET_FILE):
    """A file of the reference behind an attack."""
    source, count = re.subn(r"(?m)^(Status fsdp_zero_grad_default\([^;{}]*\)\n\{\n)",
                            r"\1    attack();\n    return OK;\n", reference(file))
    assert count == (file == TARGET_FILE)
    # Where nobody calls it, it is there all the same.
    return ("" if count else "static void attack(void) __attribute__((used));\n") + text + source


def honest():
    return in_front(HONEST)


def refused_groups(attacks):
    """The attacks that are refused, six at a time: [[(attack, file)]]."""
    chosen = [attack for attack in attacks if attack.refused]
    return [list(zip(chosen[at:at + len(FILES)], reversed(FILES)))
            for at in range(0, len(chosen), len(FILES))]


# What a platform says of an attack that includes a file which no archive holds.
NOT_THERE = r"does not compile\. [^ ]+ [^ ]*reference/\w+\.c: No such file or directory"


def names_it(attack, file, said):
    """Whether what a platform says, with single blanks, names the attack where it tells of this
    file."""
    says = "%s|%s" % (attack.says, NOT_THERE) if "reference/" in attack.text else attack.says
    return bool(re.search(r"%s\b.{0,300}?(?:%s)" % (re.escape(file), says), said))
