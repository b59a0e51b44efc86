#!/bin/sh
# impl_folder.sh: what make calls the folder of the six task files, in two words: KEY FOLDER.
#
# KEY names the folder in the build tree (build/impl/KEY): reference, skeleton, or the last part of
# the path and a sum of all of it. FOLDER is the path for make: relative within the kit, absolute
# elsewhere, one spelling however the folder was named. make and the shell give a meaning to spaces,
# ':', '=', '$', '#', '%', quotes and more, so a folder with such a path is reached by a link,
# build/impl/KEY/src, and build/impl/KEY/names tells the compiler what the folder is really called
# (an option in a file, which gcc and clang read as @FILE), for messages and debug information,
# where only a '=' in its name is told as '_'.
#
# Usage: impl_folder.sh IMPL BUILD, in the kit's folder. Where that cannot be, one line on standard
# error and status 1.

set -u
impl=$1
build=$2

give_up() {
    echo "IMPL: $1" >&2
    exit 1
}

# Every character apart from letters, digits and these few, as a backslash and itself.
escaped() {
    printf '%s' "$1" | LC_ALL=C sed 's/[^A-Za-z0-9_./+@,-]/\\&/g'
}

[ -n "$impl" ] || give_up "it names no folder: give IMPL=DIR, the folder with the task files"

kit=$(pwd -L)
# A missing folder keeps its name: the program that needs it says that it is missing.
path=$(CDPATH='' cd -L -- "$impl" 2>/dev/null && pwd -L) || path=
[ -n "$path" ] || case $impl in
/*) path=$impl ;;
*) path=$kit/$impl ;;
esac

folder=$path
case $path in
"$kit"/*) folder=${path#"$kit"/} ;;
esac
case $folder in
reference | skeleton)
    echo "$folder $folder"
    exit 0
    ;;
esac

sum=$(printf '%s' "$path" | cksum)
name=$(printf '%s' "${path##*/}" | LC_ALL=C tr -c 'A-Za-z0-9_.+@-' _)
key=$name-${sum%% *}

case $folder in
-* | *[!A-Za-z0-9_./+@,-]*)
    here=$build/impl/$key
    mkdir -p "$here" || give_up "cannot make the folder $here, for a link to yours"
    [ "$(readlink "$here/src")" = "$path" ] || ln -sfn -- "$path" "$here/src" ||
        give_up "cannot make the link $here/src to your folder"
    # gcc takes the last '=' for the one between the two names, clang the first.
    shown=$(printf '%s' "${path##*/}" | tr '=' _)
    map="-ffile-prefix-map=$(escaped "$here/src=$shown")"
    if [ ! -f "$here/names" ] || [ "$(cat "$here/names")" != "$map" ]; then
        { printf '%s\n' "$map" >"$here/names.$$" && mv "$here/names.$$" "$here/names"; } ||
            give_up "cannot write $here/names"
    fi
    folder=$here/src
    ;;
esac
echo "$key $folder"
