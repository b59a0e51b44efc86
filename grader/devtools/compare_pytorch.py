#!/usr/bin/env python3
"""Compares with PyTorch and Hugging Face's transformers: makes a virtual environment with PyPI's
torch, transformers and safetensors in the build tree (pytorch_environment.py), and runs
tests/pytorch/compare.py in it.

Interface: compare_pytorch.py --build DIR --program TRAIN_GPT2 [--model NAME] (make compare-pytorch)
"""

import argparse
import os
import subprocess
import sys
import tempfile

from pytorch_environment import environment

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", action="append", default=[])
    options = parser.parse_args()
    try:
        python = environment(os.path.join(options.build, "pytorch"), "compare-pytorch")
    except subprocess.CalledProcessError as error:
        print("compare-pytorch: the environment cannot be made (%s): is PyPI to be reached?"
              % " ".join(error.cmd), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="shardlab-pytorch-") as folder:
        return subprocess.run(
            [python, "-B", os.path.join(ROOT, "tests", "pytorch", "compare.py"), folder,
             os.path.join(options.build, "bin", "launch"), options.program, *options.model],
            check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
