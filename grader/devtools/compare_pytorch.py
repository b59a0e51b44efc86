#!/usr/bin/env python3
"""Compares with Hugging Face's GPT-2 and Llama: makes a virtual environment with PyPI's torch, transformers
and safetensors in the build tree, and runs tests/pytorch/compare.py and compare_llama.py in it.

The environment is large and is made once; what it holds is the newest that pip finds, and the
comparison prints the versions.

Interface: compare_pytorch.py --build DIR (make compare-pytorch)
"""

import argparse
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPARISONS = { # scripts of tests/pytorch, and what they run of the build tree
    "compare.py": ("bin/launch", "tests/pytorch/client", "impl/reference/bin/train_gpt2"),
    "compare_llama.py": ("bin/launch", "tests/pytorch/client_llama"),
}
PACKAGES = ("torch", "transformers", "safetensors", "numpy")


def environment(folder):
    """The Python of the virtual environment, which is made where it is not complete."""
    python = os.path.join(folder, "bin", "python3")
    done = os.path.join(folder, "complete")
    if os.path.exists(done):
        return python
    print("compare-pytorch: installs %s from PyPI into %s, once.\n"
          "torch for x86 comes with the CUDA libraries, which it does not need here: about 3 GB to\n"
          "fetch and 6 GB on the disk."
          % (", ".join(PACKAGES), folder), flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES],
                   check=True)
    with open(done, "w", encoding="utf-8"):
        pass
    return python


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    options = parser.parse_args()
    try:
        python = environment(os.path.join(options.build, "pytorch"))
    except subprocess.CalledProcessError as error:
        print("compare-pytorch: the environment cannot be made (%s): is PyPI to be reached?"
              % " ".join(error.cmd), file=sys.stderr)
        return 1
    failed = 0
    for script, programs in COMPARISONS.items():
        built = [os.path.join(options.build, path) for path in programs]
        with tempfile.TemporaryDirectory(prefix="shardlab-pytorch-") as folder:
            failed |= subprocess.run([python, "-B", os.path.join(ROOT, "tests", "pytorch", script),
                                      folder, *built], check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
