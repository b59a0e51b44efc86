#!/bin/sh
# Copies simgpu to where programs elsewhere find it. `make install` calls it:
#
#   PREFIX=DIR DESTDIR=DIR LIBRARY=build/lib/libsimgpu.a LIBS='-ldnnl …' VERSION=1.0 \
#       sh simgpu/install.sh
#
# DIR/lib/libsimgpu.a, DIR/lib/pkgconfig/simgpu.pc, what CMake's find_package(simgpu) reads in
# DIR/lib/cmake/simgpu, simgpu(7) in DIR/share/man/man7, the headers in DIR/include/simgpu (they
# have the names of NVIDIA's, which may be on the machine too), the pages in DIR/share/doc/simgpu,
# the machines of the clock (which the library holds too) in DIR/share/simgpu/machines. DESTDIR
# comes before all of that and is in no file.
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
mkdir -p "$to/lib/pkgconfig" "$to/lib/cmake/simgpu" "$to/include/simgpu/crt" \
    "$to/include/simgpu/simgpu_cublas" "$to/include/simgpu/nvtx3" "$to/share/man/man7" \
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
copy "$to/include/simgpu/nvtx3" simgpu/include/nvtx3/*
copy "$to/share/doc/simgpu" simgpu/README.md LICENSE
copy "$to/share/doc/simgpu/pages" simgpu/pages/*.md
copy "$to/share/simgpu/machines" simgpu/machines/*.machine

# A file of the text on standard input, in one step.
make_file() {
    cat >"$to/$1.new"
    chmod 644 "$to/$1.new"
    mv -f "$to/$1.new" "$to/$1"
}
awk -v version="$VERSION" -f simgpu/man.awk simgpu/README.md | make_file share/man/man7/simgpu.7

# pkg-config reads a path like a shell: what it would take for something else has a backslash; a #
# quotes as well, as its version 0.29 would begin a comment behind a space.
escaped=$(printf '%s\n' "$PREFIX" |
    sed "s/[][ \\\\'\"()&;<>|*?\`#]/\\\\&/g; s/\\\$/\$\$/g; s/\\\\#/\"&\"/g")
make_file lib/pkgconfig/simgpu.pc <<END
prefix=$escaped
Name: simgpu
Description: CUDA runtime, NCCL and cuBLAS, simulated on the CPU
Version: $VERSION
Cflags: -I\${prefix}/include/simgpu
Libs: -L\${prefix}/lib -lsimgpu $LIBS
END

# Where these lie says where the rest is, so that the folder may be moved.
make_file lib/cmake/simgpu/simgpuConfig.cmake <<END
get_filename_component(_simgpu "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET simgpu::simgpu)
  add_library(simgpu::simgpu STATIC IMPORTED)
  set_target_properties(simgpu::simgpu PROPERTIES
    IMPORTED_LOCATION "\${_simgpu}/lib/libsimgpu.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "\${_simgpu}/include/simgpu"
    INTERFACE_LINK_LIBRARIES "$(printf '%s' "$LIBS" | tr -s ' ' ';')")
endif()
unset(_simgpu)
END
# Within one major version the interface only grows.
make_file lib/cmake/simgpu/simgpuConfigVersion.cmake <<END
set(PACKAGE_VERSION $VERSION)
string(REGEX MATCH "^[0-9]+" _simgpu_has "\${PACKAGE_VERSION}")
string(REGEX MATCH "^[0-9]+" _simgpu_wanted "\${PACKAGE_FIND_VERSION}")
if(_simgpu_has STREQUAL _simgpu_wanted AND PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
END
