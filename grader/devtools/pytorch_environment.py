"""The virtual environment with PyPI's torch in the build tree, for
`make compare-pytorch`.

It is large and is made once; what it holds is the newest that pip finds.

Interface: environment(folder, who), which raises subprocess.CalledProcessError.
"""

import os
import subprocess
import sys

PACKAGES = ("torch", "transformers", "safetensors", "numpy")


def environment(folder, who):
    """The Python of the virtual environment, which is made where it is not complete; `who` says so
    first."""
    python = os.path.join(folder, "bin", "python3")
    done = os.path.join(folder, "complete")
    if os.path.exists(done):
        return python
    print("%s: installs %s from PyPI into %s, once.\n"
          "torch for x86 comes with the CUDA libraries, which it does not need here: about 3 GB\n"
          "to fetch and 6 GB on the disk."
          % (who, ", ".join(PACKAGES), folder), flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES],
                   check=True)
    with open(done, "w", encoding="utf-8"):
        pass
    return python
