"""The words of the code and the pages: phrases that are not the field's, and names that have been
replaced. A phrase is found across the end of a line too. Where a better word exists for a phrase,
it is beside it in PHRASES."""

import os
import re
import unittest

from helpers import ROOT, TempFolder, run

KINDS = (".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".py", ".sh", ".md", ".svg", ".json", ".mk")
ITSELF = os.path.join("tests", "grader", "test_words.py")

# Where no phrase may be.
CLEAN = ("Makefile", "make", "README.md", "CONTRIBUTING.md", "include", "reference", "skeleton",
         "handouts", "lib", "gpulog", "simgpu", "grader", "tasks", "examples", "bench", "site",
         "tests")

PHRASES = {
    r"let(s|ting)? go": "free, reshard",
    r"goes again": "is freed",
    r"to the bit": "bitwise equal",
    r"by turns": "interleaved",
    r"without a word": "silently",
    r"at birth": "at initialisation",
    r"pay(s|ing)? no heed": "ignore",
    r"see(s|ing)? to that": "ensure this",
    r"ke(ep|eps|pt) the books": "keep the log, record",
    r"for ever": "forever",
    r"one behind the other": "contiguous, back to back",
}

# Replaced names, anywhere in the tree: the name, and what it is called now.
NAMES = {
    r"\bflat_real\b": "flat_valid_numel",
    r"\bflat_slice\b": "flat_param_range_in_shard",
    r"\bflat_attach\b": "flat_set_views, flat_set_grad_views",
    r"\bfsdp_wait\(": "fsdp_wait_for_unshard",
    r"\bfsdp_release_(gather|reduce)\b": "fsdp_free_all_gather, fsdp_free_reduce_scatter",
    r"\bnote_order\b": "fsdp_record_post_forward",
    r"\bold_(gather|reduce)\b": "all_gather_state, reduce_scatter_state",
    r"\bRetired\b": "AllGatherState, ReduceScatterState",
    r"\b(full|shard)_grad\b": "unsharded_grad, sharded_grad",
    r"\bfsdp_(flat_params|list_flat)\b|\blist_flat\b": "fsdp_units, root->units",
    r"\bStateSink\b": "StateVisitor",
    r"\bdrop_saved\b": "free_saved",
    r"\bout_lent\b": "out_is_borrowed",
    r"\bkernel_spread_bias\b": "kernel_broadcast_bias",
    r"\bkernel_sum2\b": "kernel_add_out",
    r"`make different\b|\btests/different\b|--different\b": "make alternatives, alternatives/",
    r"BACKEND=rehearsal|\bREHEARSAL\b|\b(support|build)/rehearsal\b|"
    r"\b(the rehearsal of|rehearsed)\b":
        "BACKEND=emulated-cuda, EMULATED_CUDA, support/emulated_cuda, on emulated CUDA",
    r"\bmake steady\b|\bsteady\.py\b": "make flakiness, flakiness.py",
    r"\b(inner_|sim_)?books_\w+|\bBOOKS_\w+|\bbooks\.h\b": "gpulog_*, log_writer.h",
    r"\bsim_(blame|meet)_\w+|\b(blame|meet)\.c\b": "sim_diagnose_*, sim_rendezvous_*",
}


def sources(root, places):
    """The text files at and below the places, as paths within the tree."""
    for place in places:
        if os.path.isfile(os.path.join(root, place)):
            yield place
        for at, folders, names in os.walk(os.path.join(root, place)):
            folders[:] = sorted(name for name in folders
                                if not name.startswith((".", "__")) and name != "build")
            for name in sorted(names):
                path = os.path.relpath(os.path.join(at, name), root)
                if (name.endswith(KINDS) or name == "Makefile") and path != ITSELF:
                    yield path


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def suspects(root, paths, patterns, *flags):
    """Those of the paths whose text has any of the patterns. Nearly all have none, which grep finds
    out many times as fast as a search here."""
    command = ["grep", "-lE", *flags, *("--regexp=" + pattern for pattern in patterns), "--"]
    done = run(command + list(paths), root, LC_ALL="C")
    if done.returncode not in (0, 1):
        raise OSError("grep ended with status %d" % done.returncode)
    return done.stdout.splitlines()


def joined(text):
    """The text as one line, without comment marks and the quotes between two parts of a string, and
    of each character the number of its line."""
    out, lines = [], []
    for number, line in enumerate(text.split("\n"), 1):
        line = re.sub(r"^\s*(//|\*|#+|>)?\s*", "", line).rstrip() + " "
        if out and line.startswith('"') and "".join(out[-2:]).rstrip().endswith('"'):
            while out[-1] in ' "':
                out.pop()
                lines.pop()
            out.append(" ")
            lines.append(number - 1)
            line = line[1:]
        out.extend(line)
        lines.extend([number] * len(line))
    return "".join(out), lines


def phrases(text):
    """[(line, what was found, what to write)]"""
    flat, lines = joined(text)
    return [(lines[found.start()], found.group(), better) for phrase, better in PHRASES.items()
            for found in re.finditer(r"\b%s\b" % phrase.replace(" ", r"\s+"), flat, re.IGNORECASE)]


def names(text):
    """The same of replaced names."""
    return [(number, found.group(), better)
            for number, line in enumerate(text.split("\n"), 1)
            for name, better in NAMES.items() for found in re.finditer(name, line)]


def report(path, found):
    return ["%s:%d: \"%s\": write %s" % ((path,) + one) for one in sorted(found)]


def phrases_in(root, paths):
    # A file is one line to grep, and the marks of comments and strings between the words are none.
    patterns = [phrase.replace(" ", "[^[:alnum:]_]+") for phrase in PHRASES]
    return [line for path in suspects(root, paths, patterns, "-iz")
            for line in report(path, phrases(read(root, path)))]


def names_in(root, paths):
    return [line for path in suspects(root, paths, NAMES)
            for line in report(path, names(read(root, path)))]


class Words(TempFolder):
    maxDiff = None

    def test_no_fixed_phrase(self):
        self.assertEqual(phrases_in(ROOT, sources(ROOT, CLEAN)), [])

    def test_no_replaced_name(self):
        self.assertEqual(names_in(ROOT, sources(ROOT, ["."])), [])

    def test_files_in_which_something_is_found(self):
        texts = {"a.md": "It is\nLet\n> Go.\n", "b.c": "// nothing\n", "-c.h": "old_reduce = 1;\n",
                 "d.c": 'f("for "\n  "ever");\n'}
        for name, text in texts.items():
            self.write(name, text)
        self.assertEqual([line.split(": ")[0] for line in phrases_in(self.folder, texts)],
                         ["a.md:2", "d.c:1"])
        self.assertEqual([line.split(": ")[0] for line in names_in(self.folder, texts)],
                         ["-c.h:1"])

    def test_what_the_check_finds(self):
        for text, line, what in (
                ("It is let go.\n", 1, "let go"),
                (" * said without\n * a word, and\n", 1, "without a word"),
                ("a\n// equal To the\n  // bit\n", 2, "To the bit"),
                ('f("waits for "\n  "ever");\n', 1, "for ever"),
                ("# pays no\n# heed\n", 1, "pays no heed")):
            self.assertEqual([found[:2] for found in phrases(text)], [(line, what)], text)
        for text in ("for every rank", "add it to the bitmap", "let it go", "by turnstile",
                     "a letter goes"):
            self.assertEqual(phrases(text), [], text)
        self.assertEqual([found[1] for found in names("x = fsdp_wait(unit) + shard_grad;")],
                         ["fsdp_wait(", "shard_grad"])
        self.assertEqual(names("fsdp_wait_for_unshard(unit); unsharded_grad; sharded_grad;"), [])

    def test_every_place_is_there(self):
        there = [place for place in CLEAN if os.path.exists(os.path.join(ROOT, place))]
        self.assertGreaterEqual(len(there), len(CLEAN) - 1, there) # an archive has no reference


if __name__ == "__main__":
    unittest.main()
