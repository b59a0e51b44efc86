#!/bin/sh
# find_cuda.sh: where the CUDA toolkit, cuBLAS and NCCL are on this machine, as Make variables.
#
# It looks in this order, and for each part alone, because NVIDIA's pip packages keep every part in
# a folder of its own: CUDA_HOME and NCCL_HOME, the folder of the nvcc in PATH, /usr/local/cuda,
# /opt/cuda, /usr, and the `nvidia` folder of Python's packages (cu13/…, or cuda_runtime/…,
# cublas/…, nccl/… of the packages for CUDA 12). A CUDA_HOME or NCCL_HOME that was given and does
# not have what it is named for is an error: nothing else is taken in its place.
#
# Usage: find_cuda.sh FILE. Writes NVCC, CUDA_ARCH_FLAG, CUDA_INCLUDES, CUDA_LIB_FILES,
# CUDA_LIB_FOLDERS, CUDA_VERSION and NCCL_VERSION to FILE, where they differ from what it holds.
# Where something is missing: one line on standard output that says what and how to set it, status
# 1, and no file. Reads CUDA_HOME (or CUDA_PATH), NCCL_HOME, CUDA_ARCH, NVCC, PYTHON.

set -u
out=$1
python=${PYTHON:-python3}
home=${CUDA_HOME:-${CUDA_PATH:-}}

give_up() {
    echo "$1"
    exit 1
}

# ---- Folders to look in ----

# The `nvidia` folders of Python's packages, asked for only where they are needed.
pip_folders() {
    "$python" - 2>/dev/null <<'PY'
import os, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()] + sys.path
for folder in dict.fromkeys(folders):
    if os.path.isdir(os.path.join(folder, "nvidia")):
        print(os.path.join(folder, "nvidia"))
PY
}

# A toolkit's folder, and the parts that pip packages put below an `nvidia` folder.
parts_of() {
    echo "$1"
    for part in "$1"/cu[0-9]* "$1"/cuda_nvcc "$1"/cuda_runtime "$1"/cuda_crt "$1"/nvvm \
        "$1"/cuda_cccl "$1"/cublas "$1"/nccl "$1"/nvidia "$1"/nvidia/cu[0-9]* \
        "$1"/nvidia/cuda_nvcc "$1"/nvidia/cuda_runtime "$1"/nvidia/cublas "$1"/nvidia/nccl; do
        [ -d "$part" ] && echo "$part"
    done
}

cuda_folders() {
    if [ -n "$home" ]; then
        parts_of "$home"
        return
    fi
    if command -v nvcc >/dev/null 2>&1; then
        real=$(readlink -f "$(command -v nvcc)")
        dirname "$(dirname "$real")"
    fi
    for folder in /usr/local/cuda /opt/cuda /usr /usr/lib/cuda /usr/lib/nvidia-cuda-toolkit; do
        [ -d "$folder" ] && echo "$folder"
    done
}

nccl_folders() {
    if [ -n "${NCCL_HOME:-}" ]; then
        parts_of "$NCCL_HOME"
        return
    fi
    echo "$folders"
    parts_of /usr/local
    parts_of /usr
}

# ---- Looking ----

# The first file that is there of the names ($2 …) in the folders ($1).
first_file() {
    among=$1
    shift
    for folder in $among; do
        for name in "$@"; do
            for file in $folder/$name; do
                if [ -f "$file" ]; then
                    echo "$file"
                    return
                fi
            done
        done
    done
}

# A library: the plain name, or the one followed by a version that pip packages have alone.
library() {
    among=$1
    name=$2
    triplet=$(uname -m)
    first_file "$among" "lib64/$name.so" "lib/$name.so" "lib/$triplet-linux-gnu/$name.so" \
        "targets/$triplet-linux/lib/$name.so" "targets/sbsa-linux/lib/$name.so" \
        "lib64/$name.so.[0-9]*" "lib/$name.so.[0-9]*" "lib/$triplet-linux-gnu/$name.so.[0-9]*"
}

header() {
    first_file "$1" "include/$2" "targets/$(uname -m)-linux/include/$2"
}

where="looked in CUDA_HOME, PATH, /usr/local/cuda and Python's packages"
where="$where; set CUDA_HOME to the toolkit's folder"
[ -n "$home" ] && where="CUDA_HOME=$home has none: set it to the toolkit's folder"
nccl_where="set NCCL_HOME to its folder (the one with include/nccl.h and lib/libnccl.so)"
[ -n "${NCCL_HOME:-}" ] && nccl_where="NCCL_HOME=$NCCL_HOME has none: $nccl_where"

folders=$(cuda_folders)
# Python takes its time to start: its packages are asked for only where something is not found yet.
if [ -z "$home" ] && { [ -z "$(first_file "$folders" bin/nvcc)" ] ||
    [ -z "$(header "$folders" cublas_v2.h)" ] || [ -z "$(library "$folders" libcudart)" ]; }; then
    folders="$folders $(for folder in $(pip_folders); do parts_of "$folder"; done)"
fi
nvcc=${NVCC:-$(first_file "$folders" bin/nvcc)}
[ -n "$nvcc" ] || give_up "BACKEND=cuda needs nvcc, which is not found ($where)"
[ -x "$nvcc" ] || command -v "$nvcc" >/dev/null 2>&1 ||
    give_up "BACKEND=cuda needs nvcc, but $nvcc cannot be run: set NVCC or CUDA_HOME"
cudart_h=$(header "$folders" cuda_runtime_api.h)
[ -n "$cudart_h" ] || give_up "BACKEND=cuda needs cuda_runtime_api.h, which is not found ($where)"
cudart=$(library "$folders" libcudart)
[ -n "$cudart" ] || give_up "BACKEND=cuda needs libcudart.so, which is not found ($where)"
cublas_h=$(header "$folders" cublas_v2.h)
[ -n "$cublas_h" ] || give_up "BACKEND=cuda needs cuBLAS's cublas_v2.h, which is not found ($where)"
cublas=$(library "$folders" libcublas)
[ -n "$cublas" ] || give_up "BACKEND=cuda needs libcublas.so, which is not found ($where)"
nccl_among=$(nccl_folders)
if [ -z "${NCCL_HOME:-}" ] && [ -z "$(library "$nccl_among" libnccl)" ]; then
    nccl_among="$nccl_among $(for folder in $(pip_folders); do parts_of "$folder"; done)"
fi
nccl_h=$(header "$nccl_among" nccl.h)
[ -n "$nccl_h" ] || give_up "BACKEND=cuda needs NCCL's nccl.h, which is not found: $nccl_where"
nccl=$(library "$nccl_among" libnccl)
[ -n "$nccl" ] || give_up "BACKEND=cuda needs libnccl.so, which is not found: $nccl_where"

# ---- The architecture ----

case ${CUDA_ARCH:-} in
'')
    # Without a GPU there is no native architecture: code for the oldest one that CUDA 13 knows,
    # which newer GPUs' drivers translate when the program starts.
    if ls /dev/nvidia[0-9]* >/dev/null 2>&1; then arch=native; else arch=sm_75; fi
    ;;
native | all | all-major | sm_*) arch=$CUDA_ARCH ;;
[0-9]*) arch=sm_$CUDA_ARCH ;;
*) give_up "CUDA_ARCH is \"$CUDA_ARCH\": must be a number such as 90, or native" ;;
esac

# ---- The answer ----

includes=
for file in "$cudart_h" "$cublas_h" "$nccl_h"; do
    folder=$(dirname "$file")
    case " $includes " in
    *" $folder "*) ;;
    *) includes="$includes $folder" ;;
    esac
done
flags=
for folder in $includes; do
    # gcc searches /usr/include by itself, and naming it would change the order of its folders.
    [ "$folder" = /usr/include ] || flags="$flags -isystem $folder"
done
version=$(sed -n 's/^#define CUDART_VERSION *//p' "$cudart_h" | tr -d '\r')
nccl_version=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) *//p' "$nccl_h" | head -n 3 |
    tr '\n' '.' | sed 's/\.$//')
rpath=
for file in "$cudart" "$cublas" "$nccl"; do
    folder=$(dirname "$file")
    case "$rpath" in
    *"$folder "*) ;;
    *) rpath="$rpath$folder " ;;
    esac
done
new=$(
    echo "NVCC := $nvcc"
    echo "CUDA_ARCH_FLAG := -arch=$arch"
    echo "CUDA_INCLUDES :=$flags"
    echo "CUDA_LIB_FILES := $cudart $cublas $nccl"
    echo "CUDA_LIB_FOLDERS := $rpath"
    echo "CUDA_VERSION := $((version / 1000)).$((version % 1000 / 10))"
    echo "NCCL_VERSION := $nccl_version"
)
if [ ! -f "$out" ] || [ "$new" != "$(cat "$out")" ]; then
    mkdir -p "$(dirname "$out")"
    printf '%s\n' "$new" >"$out.new" && mv "$out.new" "$out"
fi
