#!/bin/sh
# Which NAME=VALUE of a make command line nothing reads: a line that names the first one, and the
# nearest that `make help` or a list of settings has; nothing where all are read. A misspelt setting
# would change nothing, silently.
#
#   sh grader/check_settings.sh PYTHON NAME…   (in the kit's root; called by make/options.mk)
python=$1
shift

words() { # of standard input, in a line
    grep -oE '[A-Z][A-Z0-9_]*' | sort -u | tr '\n' ' '
}

# What people are told of: the help, and what make/demo.mk hands on to programs.
told=" $({
    grep -ohE '^##.*' Makefile make/*.mk | grep -oE '[A-Z][A-Z0-9_]*='
    sed -n '/^[A-Z]*_SETTINGS *:=/,/[^\\]$/p' make/demo.mk
} | words)"

# What make/*.mk reads or sets, and what programs take from the environment.
read_by_make() {
    grep -ohE '[$][({](value )?[A-Z][A-Z0-9_]*|^[A-Z][A-Z0-9_]* *[?:+]?=' Makefile make/*.mk | words
}
read_by_programs() {
    grep -rhoE --include='*.py' --include='*.c' --include='*.h' \
        '(environ(\.get\(|\[)|getenv\()"[A-Z][A-Z0-9_]*"' . --exclude-dir=build | words
    grep -ohE '[$][{]?[A-Z][A-Z0-9_]*' grader/*.sh | words
}

for name; do
    case $name in # what libraries and sanitizers read
    SIMGPU_* | SHARDLAB_* | GPULOG_* | NCCL_* | CUDA_* | CUBLAS_* | OMP_* | OPENBLAS_* | DNNL_* | \
        *SAN_OPTIONS | GLIBC_TUNABLES | SHELL | MAKE | MAKEFLAGS | TMPDIR)
        continue ;;
    esac
    case $told in *" $name "*) continue ;; esac
    case " $(read_by_make)" in *" $name "*) continue ;; esac
    case " $(read_by_programs) " in *" $name "*) continue ;; esac
    # shellcheck disable=SC2086 # a word each
    near=$("$python" -c 'import difflib, sys
near = difflib.get_close_matches(sys.argv[1].upper(), sys.argv[2:], 1, 0.5)
print("".join(": is it %s?" % name for name in near))' "$name" $told)
    printf 'there is no setting %s%s (make help lists the settings)\n' "$name" "$near"
    exit
done
