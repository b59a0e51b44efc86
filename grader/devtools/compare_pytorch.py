#!/usr/bin/env python3
"""Compares with Hugging Face's GPT-2 and Llama: makes a virtual environment with PyPI's torch,
transformers and safetensors in the build tree (pytorch_environment.py), and runs
tests/pytorch's comparisons in it, which print the versions of what is there.

Interface: compare_pytorch.py --build DIR (make compare-pytorch)
"""

import argparse
import os
import subprocess
import sys
import tempfile

from pytorch_environment import environment

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPARISONS = { # scripts of tests/pytorch, and what they run of the build tree
    "compare.py": ("bin/launch", "tests/pytorch/client", "impl/reference/bin/train_gpt2"),
    "compare_llama.py": ("bin/launch", "tests/pytorch/client_llama"),
    "compare_program.py": ("bin/launch", "impl/reference/bin/train_gpt2"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    options = parser.parse_args()
    try:
        python = environment(os.path.join(options.build, "pytorch"), "compare-pytorch")
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
