#!/bin/sh
# setup.sh: sees that the machine has what ShardLab is built with, and installs what is missing.
#
# `make deps` runs this before every build, so when all is there it only looks: shell built-ins and
# file names, no other program. What is missing comes from apt-get on Debian and Ubuntu, as root or
# by sudo. Where that cannot be, or with NO_INSTALL=1, it says what is missing, what each thing is
# for and which command installs it, and exits 1.
#
# CUDA, cuBLAS and NCCL, which BACKEND=cuda is built with, are never installed: which of their
# versions fits is the driver's matter. find_cuda.sh looks for them.
#
# Interface: setup.sh (no arguments). Reads NO_INSTALL, CC, CXX, PYTHON, BACKEND (cuda and rehearsal
# want a C++ compiler, and cuda no BLAS), BLAS (dnnl or openblas: only that one will do) and
# SETUP_INCLUDE_DIRS (where headers are looked for).

set -u

# A package and what it is for, in one line each.
purpose() {
    case $1 in
    gcc)            echo "the C compiler" ;;
    g++)            echo "the C++ compiler, for kernels in CUDA C" ;;
    libc6-dev)      echo "the headers of the C library" ;;
    make)           echo "builds everything" ;;
    pkg-config)     echo "finds compiler and linker flags of libraries" ;;
    python3)        echo "runs the grader (3.9 or later, standard library only)" ;;
    libcmocka-dev)  echo "the unit test library of the test suites" ;;
    libdnnl-dev)    echo "oneDNN: fast matrix products for the simulated GPUs" ;;
    libopenblas-dev) echo "OpenBLAS: the matrix products where there is no oneDNN" ;;
    libdw-dev)      echo "names the file and line of a call in simgpu's reports" ;;
    esac
}

# ---- Looking ----

dirs=${SETUP_INCLUDE_DIRS:-"/usr/include /usr/local/include /usr/include/*-linux-gnu*"}

# Whether one of the names (or patterns) is a file below one of the include directories.
has_header() {
    for name in "$@"; do
        for found in $(for d in $dirs; do echo "$d/$name"; done); do
            [ -f "$found" ] && return 0
        done
    done
    return 1
}

has_program() {
    command -v "$1" >/dev/null 2>&1
}

has_dnnl() {
    has_header dnnl.h oneapi/dnnl/dnnl.h
}

has_openblas() {
    has_header cblas.h 'openblas*/cblas.h'
}

# Sets `missing` to the packages that are not there; `blas` stands for either BLAS.
look() {
    missing=
    cc_command=${CC:-cc}
    has_program "${cc_command%% *}" || missing="$missing gcc"
    cxx_command=${CXX:-g++}
    case ${BACKEND:-simgpu} in
    cuda | rehearsal) has_program "${cxx_command%% *}" || missing="$missing g++" ;;
    esac
    has_header stdio.h || missing="$missing libc6-dev"
    has_program make || missing="$missing make"
    has_program pkg-config || missing="$missing pkg-config"
    has_program "${PYTHON:-python3}" || missing="$missing python3"
    has_header cmocka.h || missing="$missing libcmocka-dev"
    has_header elfutils/libdw.h || missing="$missing libdw-dev"
    [ "${BACKEND:-}" = cuda ] && return
    case ${BLAS:-} in
    dnnl)     has_dnnl || missing="$missing libdnnl-dev" ;;
    openblas) has_openblas || missing="$missing libopenblas-dev" ;;
    *)        has_dnnl || has_openblas || missing="$missing blas" ;;
    esac
}

# ---- Installing ----

# Whether apt knows a package that it could install.
apt_has() {
    apt-cache show "$1" >/dev/null 2>&1
}

# Puts a package's name where `missing` says blas: oneDNN, or OpenBLAS where apt has no oneDNN.
choose_blas() {
    choice=libdnnl-dev
    if has_program apt-cache && ! apt_has libdnnl-dev && apt_has libopenblas-dev; then
        choice=libopenblas-dev
    fi
    chosen=
    for package in $missing; do
        [ "$package" = blas ] && package=$choice
        chosen="$chosen $package"
    done
    missing=$chosen
}

list_missing() {
    for package in $missing; do
        printf '  %-16s %s\n' "$package" "$(purpose "$package")"
    done
}

# Says what to do by hand, and ends. $1: why it is not done here.
give_up() {
    choose_blas
    echo "setup: some things that ShardLab is built with are missing on this machine:" >&2
    list_missing >&2
    echo "setup: $1" >&2
    prefix=
    [ "$user" = 0 ] || prefix="sudo "
    command="${prefix}apt-get update && ${prefix}apt-get install -y --no-install-recommends$missing"
    if has_program apt-get; then
        echo "setup: to install them, run:" >&2
    else
        echo "setup: install them with this system's own tools. On Debian and Ubuntu that is:" >&2
    fi
    echo "  $command" >&2
    exit 1
}

# Runs apt-get quietly, as root; its output is shown where it fails.
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@" </dev/null >"$log" 2>&1
}

# The package lists, once: a fresh machine has none, and old ones name files that are gone.
updated=no
update_lists() {
    [ "$updated" = no ] || return 0
    updated=yes
    apt update || echo "setup: apt-get update had trouble; going on with the old lists" >&2
}

look
[ -z "$missing" ] && exit 0

user=$(id -u)
as_root=
[ "${NO_INSTALL:-}" = 1 ] && give_up "Nothing is installed, because NO_INSTALL=1."
has_program apt-get || give_up "This system has no apt-get."
if [ "$user" != 0 ]; then
    has_program sudo || give_up "Installing needs root, and there is no sudo."
    # Without a terminal sudo cannot ask for a password.
    if [ -t 0 ]; then as_root=sudo; else as_root="sudo -n"; fi
    $as_root true || give_up "Installing needs root, and sudo refused."
fi

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM

for package in $missing; do
    [ "$package" = blas ] && package=libdnnl-dev
    apt_has "$package" || { update_lists; break; }
done
choose_blas
echo "setup: installing what is missing, once:"
list_missing
# shellcheck disable=SC2086 # one word a package
apt install --no-install-recommends $missing || {
    update_lists
    apt install --no-install-recommends $missing || {
        tail -n 20 "$log" >&2
        give_up "apt-get could not install them (its last words stand above)."
    }
}

look
[ -z "$missing" ] || give_up "apt-get installed everything, but these are still not found."
echo "setup: done"
