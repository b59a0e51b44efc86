#!/bin/sh
# Writes the texts of machines as C, for simgpu/src/machine/machine.c: sh texts.sh FILE.machine…
set -eu
echo '// Made by simgpu/machines/texts.sh.'
echo '#include "machine/machine_file.h"'
echo 'const SimMachineText sim_machine_texts[] = {'
for file; do
    name=${file##*/}
    printf '    {"%s",\n' "${name%.machine}"
    sed 's/[\\"]/\\&/g; s/.*/     "&\\n"/' "$file"
    printf '    },\n'
done
echo '    {0}};'
