#!/bin/sh
# Copies simgpu to where programs elsewhere find it. `make install` calls it:
#
#   PREFIX=DIR DESTDIR=DIR LIBRARY=build/lib/libsimgpu.a LIBS='-ldnnl …' VERSION=1.0 \
#       sh simgpu/install.sh
#
# DIR/lib/libsimgpu.a, DIR/lib/pkgconfig/simgpu.pc, the headers in DIR/include/simgpu (they have the
# names of NVIDIA's, which may be on the machine too), the pages in DIR/share/doc/simgpu, the
# machines of the clock (which the library holds too) in DIR/share/simgpu/machines. DESTDIR comes
# before all of that and is in no file.
set -eu
cd "$(dirname "$0")/.."

wrong() {
    echo "make install: $1" >&2
    exit 2
}

line_break='
'
case $PREFIX in
*"$line_break"*) wrong "the name of the folder that PREFIX names has a line break in it" ;;
/*) ;;
*) wrong "PREFIX=$PREFIX is no absolute path: programs elsewhere could not find it" ;;
esac

# The debug information is of the kit's sources, which are not there; reports name the program's.
to=${DESTDIR:-}$PREFIX
mkdir -p "$to/lib/pkgconfig" "$to/include/simgpu/crt" "$to/include/simgpu/simgpu_cublas" \
    "$to/share/doc/simgpu/pages" "$to/share/simgpu/machines"
"${STRIP:-strip}" -g -o "$to/lib/libsimgpu.a.new" "$LIBRARY"
chmod 644 "$to/lib/libsimgpu.a.new"
mv -f "$to/lib/libsimgpu.a.new" "$to/lib/libsimgpu.a"

copy() {
    to_folder=$1
    shift
    for file; do
        rm -f "$to_folder/${file##*/}"
        cp "$file" "$to_folder/"
        chmod 644 "$to_folder/${file##*/}"
    done
}
copy "$to/include/simgpu" simgpu/include/*.h gpulog/include/gpulog.h \
    gpulog/include/gpulog_collectives.h
copy "$to/include/simgpu/crt" simgpu/include/crt/*.h
copy "$to/include/simgpu/simgpu_cublas" simgpu/include/simgpu_cublas/*.h
copy "$to/share/doc/simgpu" simgpu/README.md LICENSE
copy "$to/share/doc/simgpu/pages" simgpu/pages/*.md
copy "$to/share/simgpu/machines" simgpu/machines/*.machine

# pkg-config reads a path like a shell: what it would take for something else has a backslash.
escaped=$(printf '%s\n' "$PREFIX" | sed "s/[][ \\\\'\"()&;<>|*?\`#]/\\\\&/g; s/\\\$/\$\$/g")
cat >"$to/lib/pkgconfig/simgpu.pc.new" <<END
prefix=$escaped
Name: simgpu
Description: CUDA runtime, NCCL and cuBLAS, simulated on the CPU
Version: $VERSION
Cflags: -I\${prefix}/include/simgpu
Libs: -L\${prefix}/lib -lsimgpu $LIBS
END
chmod 644 "$to/lib/pkgconfig/simgpu.pc.new"
mv -f "$to/lib/pkgconfig/simgpu.pc.new" "$to/lib/pkgconfig/simgpu.pc"
