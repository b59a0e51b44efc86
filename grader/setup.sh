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
# built-ins, no other program. What is missing comes from the system's packages: by apt-get, dnf,
# zypper or pacman, as root or by sudo. Where that cannot be, or with NO_INSTALL=1, it says what is
# missing, what each thing is for and which command installs it, and exits 1.
#
# Without root, libraries may be in a folder of one's own, with include/ and lib/: the conda
# environment that is active (CONDA_PREFIX), or one that pkg-config finds by PKG_CONFIG_PATH. It is
# used for what the system has not.
#
# CUDA, cuBLAS and NCCL, which BACKEND=cuda is built with, are never installed: which of their
# versions fits is the driver's matter. find_cuda.sh looks for them.
#
# Interface: setup.sh (no arguments). Reads NO_INSTALL, CC, CFLAGS, LDFLAGS, CXX, PYTHON, BACKEND
# (cuda and emulated-cuda want a C++ compiler, and cuda no BLAS), BLAS (dnnl or openblas: only that
# one will do) and CONFIG, the file to write; without CONFIG it looks again and writes nothing.
#
# The file holds, as Make variables: BLAS (dnnl or openblas), BLAS_DEFS and BLAS_LIBS (its compiler
# and linker flags), LIBRARY_INCLUDES and LIBRARY_FOLDERS (the same for folders of one's own),
# COMPILER (the C compiler's version), VECTOR_FLAGS (what it understands of gcc's) and PROCESSOR (a
# sum of what this machine's processor can do, for code compiled with -march=native).

set -u

# The packages, by what each system calls them. Here they go by Debian's names; the last column is
# what a library is linked as.
packages='
gcc             gcc                gcc              gcc        gcc        -
g++             gcc-c++            gcc-c++          gcc        gxx        -
libc6-dev       glibc-devel        glibc-devel      glibc      -          -
make            make               make             make       make       -
pkg-config      pkgconf-pkg-config pkg-config       pkgconf    pkg-config -
python3         python3            python3          python     python     -
libcmocka-dev   libcmocka-devel    libcmocka-devel  cmocka     cmocka     cmocka
libdw-dev       elfutils-devel     libdw-devel      libelf     elfutils   dw
libjansson-dev  jansson-devel      libjansson-devel jansson    jansson    jansson
libseccomp-dev  libseccomp-devel   libseccomp-devel libseccomp libseccomp seccomp
libdnnl-dev     onednn-devel       onednn-devel     onednn     onednn     dnnl
libopenblas-dev openblas-devel libopenblas_pthreads-devel openblas openblas openblas'

# names MANAGER PACKAGE…: what they are called there.
names() {
    manager_of=$1
    shift
    for wanted; do
        while read -r debian fedora suse arch conda _; do
            [ "$debian" = "$wanted" ] || continue
            case $manager_of in
            dnf) name=$fedora ;; zypper) name=$suse ;; pacman) name=$arch ;;
            conda) name=$conda ;; *) name=$debian ;;
            esac
            [ "$name" = - ] || printf ' %s' "$name"
        done <<END
$packages
END
    done
}

# What a package is for.
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
    libseccomp-dev) echo "keeps graded programs from calls that they do not need" ;;
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
# replaces OpenBLAS when it is installed later, and the packages because a file from before one of
# them was needed does not hold.
describe() {
    list_features
    list_tools
    set -f
    # shellcheck disable=SC2086 # in one line
    set -- $packages
    asked="$*|$cc_command|$cxx_command|$python_command"
    set +f
    asked="$asked|${CFLAGS:-}|${LDFLAGS:-}|${BACKEND:-}|${BLAS:-}|${CONDA_PREFIX:-}"
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
#ifdef WITH_cmocka
#include <cmocka.h>
#endif
#ifdef WITH_dw
#include <elfutils/libdwfl.h>
#endif
#ifdef WITH_jansson
#include <jansson.h>
#endif
#ifdef WITH_seccomp
#include <seccomp.h>
#endif
#ifdef WITH_dnnl
#include <dnnl.h>
#endif
#ifdef WITH_openblas
#include <cblas.h>
#endif

int main(void)
{
    float a = 1, b = 1, c = 0;
#ifdef WITH_cmocka
    mock_assert(1, "", "", 1);
#endif
#ifdef WITH_dw
    dwfl_end(NULL);
#endif
#ifdef WITH_jansson
    json_decref(json_loadb("{}", 2, JSON_REJECT_DUPLICATES, NULL));
#endif
#ifdef WITH_seccomp
    seccomp_release(seccomp_init(SCMP_ACT_ALLOW));
#endif
#ifdef WITH_dnnl
    if (dnnl_sgemm('N', 'N', 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1) != dnnl_success) return 1;
#endif
#ifdef WITH_openblas
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
    LC_ALL=C compiler "${CFLAGS:-} -Werror=implicit-function-declaration $1 $includes" \
        -o "$work/program" "$work/program.c" "${LDFLAGS:-} $2 $folders" >"$work/said" 2>&1 &&
        return 0
    why=$(grep -m 1 -E 'error|cannot|undefined' "$work/said" || head -n 1 "$work/said")
    why=${why##*"$work/"}
    return 1
}

# Sets `includes` and `folders`: the flags of folders of one's own that hold libraries, whose own
# libraries are looked for there, too: a RUNPATH (the new tag) would not say so.
find_folders() {
    conda=${CONDA_PREFIX:+$CONDA_PREFIX/lib}
    path=${PKG_CONFIG_PATH:-}${conda:+:$conda/pkgconfig}
    for library in cmocka libdw jansson libseccomp openblas dnnl conda; do
        if [ "$library" = conda ]; then
            folder=$conda header=${CONDA_PREFIX:-}/include
        else
            folder=$(PKG_CONFIG_PATH=$path pkg-config --variable=libdir "$library" 2>/dev/null)
            header=$(PKG_CONFIG_PATH=$path pkg-config --variable=includedir "$library" 2>/dev/null)
        fi
        case $folder in '' | /lib* | /usr/lib* | *[!A-Za-z0-9_./+-]*) continue ;; esac
        case " $folders " in *" -L$folder "*) continue ;; esac
        includes="$includes -isystem $header"
        folders="$folders -L$folder -Wl,--disable-new-dtags,-rpath,$folder"
    done
    [ -n "$folders" ]
}

# Whether this BLAS can be linked; sets blas, blas_defs, blas_libs.
try_blas() {
    case $1 in
    dnnl) flags=-DSIMGPU_DNNL libs=-ldnnl with=-DWITH_dnnl ;;
    openblas)
        flags=$(pkg-config --cflags openblas 2>/dev/null)
        libs=$(pkg-config --libs openblas 2>/dev/null)
        [ -n "$libs" ] || libs=-lopenblas
        with=-DWITH_openblas
        ;;
    esac
    links "$with $flags" "$libs" || return 1
    for word in $libs; do
        case $word in
        -L/usr/*) ;;
        -L*) libs="$libs -Wl,--disable-new-dtags,-rpath,${word#-L}" ;;
        esac
    done
    blas=$1 blas_defs=$flags blas_libs=$libs
}

find_blas() {
    case ${BLAS:-} in
    dnnl | openblas) try_blas "$BLAS" ;;
    *) try_blas dnnl || try_blas openblas ;;
    esac
}

# Sets `missing` to the packages that are not there; `blas` stands for either BLAS. A folder of
# one's own is looked at where the system lacks something, and counts where that helps.
look() {
    includes='' folders=''
    look_here
    [ -n "$missing" ] && find_folders || return 0
    before=$missing
    look_here
    if [ "$missing" = "$before" ]; then includes='' folders=''; fi
}

look_here() {
    missing='' why='' blas='' blas_defs='' blas_libs=''
    has_program "${cc_command%% *}" || missing="$missing gcc"
    case ${BACKEND:-simgpu} in
    cuda | emulated-cuda) has_program "${cxx_command%% *}" || missing="$missing g++" ;;
    esac
    has_program make || missing="$missing make"
    has_program pkg-config || missing="$missing pkg-config"
    has_program "$python_command" || missing="$missing python3"
    # Nothing can be linked before there is a compiler with a C library: what lacks then is known
    # only where that has been installed.
    compiles=yes
    if ! has_program "${cc_command%% *}" || ! links "" ""; then
        has_program "${cc_command%% *}" && is_no_library
        compiles=no missing="$missing libc6-dev"
    fi
    while read -r package _ _ _ _ library; do
        case $library in '' | - | dnnl | openblas) continue ;; esac
        [ $compiles = yes ] && links "-DWITH_$library" "-l$library" || missing="$missing $package"
    done <<END
$packages
END
    [ "${BACKEND:-}" = cuda ] && return
    [ $compiles = yes ] && find_blas && return
    case ${BLAS:-} in
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

# Python is asked for its version once, and only when all is looked for again.
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

# The files that were linked: where one is gone, all is looked for again.
linked_files() {
    library=${blas_libs##*-l}
    list=$(command -v "${cc_command%% *}")
    for folder in $folders; do
        case $folder in -L*) list=$list:${folder#-L} ;; esac
    done
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
    # What makes gcc vectorise more, and warn where it cannot. clang only warns, where it is no
    # mistake.
    vector='-fvect-cost-model=dynamic -Wvector-operation-performance'
    links "-Werror $vector" "" || vector=-Wno-pass-failed
    {
        echo "# setup.sh wrote this: what this machine has. Without it, make looks again."
        echo "# $asked"
        echo "# $(linked_files)"
        [ -z "$blas" ] || echo "BLAS := $blas"
        echo "BLAS_DEFS := $blas_defs"
        echo "BLAS_LIBS := $blas_libs"
        echo "LIBRARY_INCLUDES :=$includes"
        echo "LIBRARY_FOLDERS :=$folders"
        echo "COMPILER := $version"
        echo "VECTOR_FLAGS := $vector"
        echo "PROCESSOR := ${processor%% *}"
    } >"$CONFIG.$$" || stop "$CONFIG cannot be written"
    mv "$CONFIG.$$" "$CONFIG" || stop "$CONFIG cannot be written"
}

# ---- Installing ----

# Sets `manager`: what installs packages here.
find_manager() {
    for manager in apt-get dnf zypper pacman; do has_program $manager && return; done
    manager=
}

# Whether it knows a package that it could install, by the lists that are here.
knows() {
    # shellcheck disable=SC2046 # one word
    set -- $(names "$manager" "$1")
    case $manager in
    apt-get) apt-cache show "$1" ;;
    dnf) dnf -q -C info "$1" ;;
    zypper) zypper -q --no-refresh search --match-exact "$1" ;;
    pacman) pacman -Si "$1" ;;
    esac >/dev/null 2>&1
}

# Puts a package's name where `missing` says blas: oneDNN, or OpenBLAS where only that is known.
choose_blas() {
    case $missing in *blas) ;; *) return ;; esac
    missing=${missing%blas}libdnnl-dev
    [ -z "$manager" ] || knows libdnnl-dev || ! knows libopenblas-dev ||
        missing=${missing%libdnnl-dev}libopenblas-dev
}

list_missing() {
    for package in $missing; do
        printf '  %-16s %s\n' "$package" "$(purpose "$package")"
    done
}

# Says what to do by hand, and ends. $1: why it is not done here.
give_up() {
    choose_blas
    echo "setup: this machine lacks some things that ShardLab needs:" >&2
    list_missing >&2
    [ -z "$why" ] || echo "setup: the compiler says: $why" >&2
    echo "setup: $1" >&2
    prefix=
    [ "$user" = 0 ] || prefix="sudo "
    # shellcheck disable=SC2086 # one word a package
    {
        here=$(names "$manager" $missing)
        own=$(names conda $missing)
    }
    case $manager in
    dnf) command="${prefix}dnf install -y$here" ;;
    zypper) command="${prefix}zypper install -y$here" ;;
    pacman) command="${prefix}pacman -Syu --needed$here" ;;
    *) command="${prefix}apt-get update &&"
        command="$command ${prefix}apt-get install -y --no-install-recommends$here" ;;
    esac
    if [ "$user" != 0 ] || [ -z "$manager" ]; then
        echo "setup: without root, in a conda environment that is active:" >&2
        echo "  conda install -c conda-forge$own" >&2
        echo "setup: or with these libraries in a folder of yours that pkg-config finds:" >&2
        echo "  export PKG_CONFIG_PATH=FOLDER/lib/pkgconfig" >&2
    fi
    if [ -n "$manager" ]; then
        echo "setup: to install them, run:" >&2
    else
        echo "setup: install them with this system's own tools. On Debian and Ubuntu that is:" >&2
    fi
    echo "  $command" >&2
    exit 1
}

# So long a server may be silent, in the words of apt and of dnf. Without it a network that drops
# packets is waited for by the quarter of an hour.
apt_in_time="-o Acquire::Retries=1 -o Acquire::http::Timeout=15 -o Acquire::https::Timeout=15"
in_time="--setopt=timeout=15 --setopt=retries=2"

# manage COMMAND WORD…: runs it quietly, as root; its output is shown where it fails.
manage() {
    : >"$work/waits"
    say_that_it_lasts "$1" &
    $as_root env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1
    status=$?
    rm "$work/waits"
    kill $! 2>/dev/null # a signal may come too early for it: then the file ends it
    return $status
}

# In the background: after 5 s, and then every half a minute, what is waited for.
say_that_it_lasts() {
    trap - EXIT HUP INT TERM
    halves=0
    while sleep 0.5 >/dev/null 2>&1 && [ -e "$work/waits" ] && kill -0 $$ 2>/dev/null; do
        halves=$((halves + 1))
        [ $((halves % 60)) = 10 ] || continue
        last=$(tail -n 1 "$log" 2>/dev/null)
        echo "setup: $1 has taken $((halves / 2)) s; it says: ${last:-nothing yet}"
    done
}

# The package lists, once: a fresh machine has none, and old ones name files that are gone.
updated=no
update_lists() {
    [ "$updated" = no ] && [ "$manager" = apt-get ] || return 1
    updated=yes
    # shellcheck disable=SC2086 # words
    manage apt-get -q -y $apt_in_time update ||
        echo "setup: apt-get update failed; continuing with the old lists" >&2
}

install_missing() {
    # shellcheck disable=SC2046,SC2086 # one word a package
    set -- $(names $manager $missing)
    # shellcheck disable=SC2086 # words
    case $manager in
    apt-get) manage apt-get -q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 $apt_in_time \
        install --no-install-recommends "$@" ;;
    dnf) manage dnf -y $in_time install "$@" ;;
    zypper) manage zypper --non-interactive install --no-recommends "$@" ;;
    pacman) manage pacman -S --needed --noconfirm "$@" ;;
    esac
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
find_manager
[ "${NO_INSTALL:-}" = 1 ] && give_up "Nothing is installed, because NO_INSTALL=1."
[ -n "$manager" ] || give_up "This system has no apt-get, dnf, zypper or pacman."
if [ "$user" != 0 ]; then
    has_program sudo || give_up "Installing needs root, and there is no sudo."
    # Without a terminal sudo cannot ask for a password.
    if [ -t 0 ]; then as_root=sudo; else as_root="sudo -n"; fi
    $as_root true || give_up "Installing needs root, and sudo refused."
fi

if [ "$manager" = apt-get ]; then
    for package in $missing; do
        [ "$package" = blas ] && package=libdnnl-dev
        knows "$package" || { update_lists; break; }
    done
fi
choose_blas
echo "setup: installing what is missing, once:"
list_missing
install_missing || { update_lists && install_missing; } || {
    tail -n 20 "$log" >&2
    give_up "$manager could not install them (its last output is above)."
}

look
[ -z "$missing" ] || give_up "$manager installed everything, but these still cannot be used."
finish "setup: done"
