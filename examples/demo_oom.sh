#!/bin/sh
# demo_oom.sh: what FSDP is for, in a few seconds. A device of 64 MB cannot hold GPT-2 of 5 million
# parameters with its gradients and Adam's moments (16 bytes for each: 77 MB). One GPU runs out of
# memory; four of the same size, with FSDP, train it.
#
# Usage: demo_oom.sh BUILD FILE…
set -u
build=$1
shift
export SIMGPU_MEMORY=64M # of a simulated GPU
export GPULOG_MEMORY=64M # a real one is held to it

echo "== One GPU of 64 MB, without FSDP =="
if "$build/bin/train_gpt2" --unsharded --batch 1 --steps 3 --sample 0 "$@"; then
    echo "demo_oom.sh: it was expected to run out of memory, and did not" >&2
    exit 1
fi
echo
echo "== Four GPUs of 64 MB, with FSDP =="
exec "$build/bin/launch" -n 4 "$build/bin/train_gpt2" --batch 1 --steps 8 --sample 0 "$@"
