#!/bin/sh
# setup.sh: ensures that the machine has what ShardLab is built with, and installs what is missing.
#
# Whether a library is there is found out as the build will: a small program that calls it is
# compiled and linked. (A header proves little: the cblas.h of a reference BLAS looks like
# OpenBLAS's.) What comes of it is written to a file, build/config.mk, which make includes; so there
# is one answer to "which BLAS?", and this is the only place that looks.
#
# `make deps` runs this before every build. As long as the file's first lines still hold (same
# tools, same processor, the files that were linked still there) it does nothing else: shell
# built-ins, no other program. What is missing comes from apt-get on Debian and Ubuntu, as root or
# by sudo. Where that cannot be, or with NO_INSTALL=1, it says what is missing, what each thing is
# for and which command installs it, and exits 1.
#
# CUDA, cuBLAS and NCCL, which BACKEND=cuda is built with, are never installed: which of their
# versions fits is the driver's matter. find_cuda.sh looks for them.
#
# Interface: setup.sh (no arguments). Reads NO_INSTALL, CC, CFLAGS, LDFLAGS, CXX, PYTHON, BACKEND
# (cuda and emulated-cuda want a C++ compiler, and cuda no BLAS), BLAS (dnnl or openblas: only that
# one will do) and CONFIG, the file to write; without CONFIG it looks anew and writes nothing.
#
# The file holds, as Make variables: BLAS (dnnl or openblas), BLAS_DEFS and BLAS_LIBS (its compiler
# and linker flags), COMPILER (the C compiler's version) and PROCESSOR (a sum of what this machine's
# processor can do, for code compiled with -march=native).

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
    libjansson-dev) echo "reads JSON: the headers of safetensors files" ;;
    libdw-dev)      echo "names the file and line of a call in simgpu's reports" ;;
    libseccomp-dev) echo "keeps what is graded from calls that it has no need of" ;;
    esac
}

# ---- What was found before ----

cc_command=${CC:-cc}
cxx_command=${CXX:-g++}
python_command=${PYTHON:-python3}
newline='
'

# Sets `features`: what the processor can do, as the kernel lists it.
list_features() {
    features=
    while read -r name rest; do
        case $name in flags | Features) features=$rest; return ;; esac
    done </proc/cpuinfo
}

# Sets `found`: where the shell finds the tools. PATH itself says less: pyenv puts folders in front
# of it for what Python starts, such as the make that the grader calls, and all tools stay the same.
list_tools() {
    found=
    for tool in "${cc_command%% *}" "${cxx_command%% *}" as ld pkg-config; do
        found="$found:$(command -v "$tool")"
    done
}

# Sets `asked`: all that the answer depends on, in one line. oneDNN's headers are in it because it
# replaces OpenBLAS when it is installed later, and the names of the libraries because a file from
# before one of them was needed does not hold.
describe() {
    list_features
    list_tools
    asked="cmocka dw jansson seccomp|$cc_command|$cxx_command|$python_command"
    asked="$asked|${CFLAGS:-}|${LDFLAGS:-}|${BACKEND:-}|${BLAS:-}"
    asked="$asked|$found|${CPATH:-}|${C_INCLUDE_PATH:-}|${LIBRARY_PATH:-}|${PKG_CONFIG_PATH:-}"
    for header in /usr/include/dnnl.h /usr/include/oneapi/dnnl/dnnl.h /usr/local/include/dnnl.h; do
        [ -f "$header" ] && asked="$asked|$header"
    done
    asked="$asked|$features"
    case $asked in *"$newline"*) asked= ;; esac
}

# Whether the file still holds. Its first line has what it is, the second what was asked, the third
# the files that a program was linked with, separated by ':'.
still_holds() {
    [ -n "$asked" ] && [ -f "$CONFIG" ] || return 1
    { IFS= read -r _ && IFS= read -r before && IFS= read -r files; } <"$CONFIG" || return 1
    [ "$before" = "# $asked" ] || return 1
    rest=${files#"# "}:
    while [ -n "$rest" ]; do
        [ -e "${rest%%:*}" ] || return 1
        rest=${rest#*:}
    done
}

# ---- Looking ----

has_program() {
    command -v "$1" >/dev/null 2>&1
}

# A program that calls each library it is told to.
write_program() {
    cat >"$work/program.c" <<'END'
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef WITH_CMOCKA
#include <cmocka.h>
#endif
#ifdef WITH_LIBDW
#include <elfutils/libdwfl.h>
#endif
#ifdef WITH_JANSSON
#include <jansson.h>
#endif
#ifdef WITH_SECCOMP
#include <seccomp.h>
#endif
#ifdef WITH_DNNL
#include <dnnl.h>
#endif
#ifdef WITH_OPENBLAS
#include <cblas.h>
#endif

int main(void)
{
    float a = 1, b = 1, c = 0;
#ifdef WITH_CMOCKA
    mock_assert(1, "", "", 1);
#endif
#ifdef WITH_LIBDW
    dwfl_end(NULL);
#endif
#ifdef WITH_JANSSON
    json_decref(json_loadb("{}", 2, JSON_REJECT_DUPLICATES, NULL));
#endif
#ifdef WITH_SECCOMP
    seccomp_release(seccomp_init(SCMP_ACT_ALLOW));
#endif
#ifdef WITH_DNNL
    if (dnnl_sgemm('N', 'N', 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1) != dnnl_success) return 1;
#endif
#ifdef WITH_OPENBLAS
    openblas_set_num_threads(1);
    cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1);
#endif
    return printf("%g\n", (double)(a + b + c)) < 0;
}
END
}

# compiler FLAGS [-o PROGRAM SOURCE FLAGS]: runs it. CC and flags are text for the shell, which may
# quote in it, as they are in make's recipes.
compiler() {
    # shellcheck disable=SC2294 # on purpose
    if [ $# -eq 1 ]; then eval "$cc_command $1"; return; fi
    # shellcheck disable=SC2294 # on purpose
    eval "$cc_command $1 \"\$2\" \"\$3\" \"\$4\" $5"
}

# links DEFINES LIBRARIES: whether the program can be built so. `why` has the compiler's error.
links() {
    LC_ALL=C compiler "${CFLAGS:-} -Werror=implicit-function-declaration $1" \
        -o "$work/program" "$work/program.c" "${LDFLAGS:-} $2" >"$work/said" 2>&1 && return 0
    why=$(grep -m 1 -E 'error|cannot|undefined' "$work/said" || head -n 1 "$work/said")
    why=${why##*"$work/"}
    return 1
}

# Whether this BLAS can be linked; sets blas, blas_defs, blas_libs.
try_blas() {
    case $1 in
    dnnl) flags=-DSIMGPU_DNNL libs=-ldnnl with=-DWITH_DNNL ;;
    openblas)
        flags=$(pkg-config --cflags openblas 2>/dev/null)
        libs=$(pkg-config --libs openblas 2>/dev/null)
        [ -n "$libs" ] || libs=-lopenblas
        with=-DWITH_OPENBLAS
        ;;
    esac
    links "$with $flags" "$libs" || return 1
    blas=$1 blas_defs=$flags blas_libs=$libs
}

find_blas() {
    case ${BLAS:-} in
    dnnl | openblas) try_blas "$BLAS" ;;
    *) try_blas dnnl || try_blas openblas ;;
    esac
}

# Sets `missing` to the packages that are not there; `blas` stands for either BLAS.
look() {
    missing=
    why=
    blas=
    blas_defs=
    blas_libs=
    has_program "${cc_command%% *}" || missing="$missing gcc"
    case ${BACKEND:-simgpu} in
    cuda | emulated-cuda) has_program "${cxx_command%% *}" || missing="$missing g++" ;;
    esac
    has_program make || missing="$missing make"
    has_program pkg-config || missing="$missing pkg-config"
    has_program "$python_command" || missing="$missing python3"
    # Nothing can be linked before there is a compiler with a C library: what lacks then is known
    # only where that has been installed.
    if ! has_program "${cc_command%% *}" || ! links "" ""; then
        has_program "${cc_command%% *}" && is_no_library
        missing="$missing libc6-dev libcmocka-dev libdw-dev libjansson-dev libseccomp-dev"
        case ${BACKEND:-}:${BLAS:-} in
        cuda:*) ;;
        *:dnnl) missing="$missing libdnnl-dev" ;;
        *:openblas) missing="$missing libopenblas-dev" ;;
        *) missing="$missing blas" ;;
        esac
        return
    fi
    links -DWITH_CMOCKA -lcmocka || missing="$missing libcmocka-dev"
    links -DWITH_LIBDW -ldw || missing="$missing libdw-dev"
    links -DWITH_JANSSON -ljansson || missing="$missing libjansson-dev"
    links -DWITH_SECCOMP -lseccomp || missing="$missing libseccomp-dev"
    [ "${BACKEND:-}" = cuda ] && return
    find_blas || case ${BLAS:-} in
    dnnl) missing="$missing libdnnl-dev" ;;
    openblas) missing="$missing libopenblas-dev" ;;
    *) missing="$missing blas" ;;
    esac
}

# Ends where the compiler cannot build the simplest program for another reason than that the C
# library's files are not there.
is_no_library() {
    grep -qE 'stdio\.h|setjmp\.h|crt1\.o|Scrt1\.o|cannot find -lc\b' "$work/said" && return
    stop "${CC:-cc} cannot build the simplest program: $why"
}

# Python is asked for its version once, and only when all is looked for anew.
checked=no
check_python() {
    [ "$checked" = no ] && has_program "$python_command" || return 0
    checked=yes
    version=$("$python_command" -c \
        'import sys
print("%d.%d.%d" % sys.version_info[:3])
sys.exit(sys.version_info < (3, 9))' 2>&1) && return
    case $version in
    [0-9]*.[0-9]*) stop "$python_command is Python $version, and the grader needs 3.9 or later:" \
        "install a newer one and name it, as in: make grade PYTHON=python3.11" ;;
    esac
    stop "$python_command cannot be started: ${version%%"$newline"*}"
}

# ---- Telling make ----

# The files that were linked: where one is gone, all is looked for anew.
linked_files() {
    library=${blas_libs##*-l}
    list=$(command -v "${cc_command%% *}")
    for name in libgcc.a libcmocka.so libdw.so libjansson.so libseccomp.so \
        ${blas:+"lib${library%% *}.so"}; do
        file=$(compiler "${LDFLAGS:-} -print-file-name=$name")
        case $file in /*) list=$list:$file ;; esac
    done
    case $list in *"$newline"*) list=/nowhere ;; esac
    echo "$list"
}

write_config() {
    version=$(compiler --version | head -n 1 | tr -d "'#\$")
    processor=$(printf '%s' "$features" | cksum)
    {
        echo "# setup.sh wrote this: what this machine has. Without it, make looks anew."
        echo "# $asked"
        echo "# $(linked_files)"
        [ -z "$blas" ] || echo "BLAS := $blas"
        echo "BLAS_DEFS := $blas_defs"
        echo "BLAS_LIBS := $blas_libs"
        echo "COMPILER := $version"
        echo "PROCESSOR := ${processor%% *}"
    } >"$CONFIG.$$" || stop "$CONFIG cannot be written"
    mv "$CONFIG.$$" "$CONFIG" || stop "$CONFIG cannot be written"
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
    [ -z "$why" ] || echo "setup: the compiler says: $why" >&2
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
    apt update || echo "setup: apt-get update failed; continuing with the old lists" >&2
}

# ---- The work ----

# One line, and the end: what is wrong is nothing that could be installed.
stop() {
    echo "setup: $*" >&2
    exit 1
}

describe
if [ -n "${CONFIG:-}" ]; then
    # The nearest folder that is there: is this tree to be built in at all?
    folder=$CONFIG
    while [ ! -d "$folder" ]; do
        case $folder in */*) folder=${folder%/*} ;; *) folder=. ;; esac
    done
    case $folder in /*) ;; .) folder=$PWD ;; *) folder=$PWD/$folder ;; esac
    [ -w "$folder" ] || stop "the folder $folder cannot be written, and ShardLab" \
        "builds there: copy the project to a folder of your own"
    still_holds && exit 0
fi

work=$(mktemp -d) || exit 1
log=$work/log
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
write_program

# Ends well, with the file written.
finish() {
    check_python
    if [ -n "${CONFIG:-}" ]; then
        mkdir -p "${CONFIG%/*}" && write_config
    fi
    [ $# -eq 0 ] || echo "$@"
    exit 0
}

check_python
look
[ -z "$missing" ] && finish

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
        give_up "apt-get could not install them (its last output is above)."
    }
}

look
[ -z "$missing" ] || give_up "apt-get installed everything, but these still cannot be used."
finish "setup: done"
