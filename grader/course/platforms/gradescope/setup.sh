#!/bin/sh
# Gradescope runs this once, as root, when it makes the image of the autograder. It installs the
# packages that the kit is built with. Nothing is built here: parts of the kit are compiled for the
# processor at hand, and a submission may be graded on another one.
set -e
root=${AUTOGRADER_ROOT:-/autograder}
chmod +x "$root/source/run_autograder"
exec sh "$root/source/kit/grader/setup.sh"
