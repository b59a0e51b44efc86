/* machine/machine_file.h: the text of a machine: what machine.c and machine_file.c share. */
#ifndef SIMGPU_MACHINE_FILE_H
#define SIMGPU_MACHINE_FILE_H

#include "machine/figures.h"

#define SIM_MACHINE_KEYS 64

typedef struct SimMachineFile {
    SimMachine *machine;
    SimFigures *figures;
    const char *name;           // of the file, for messages
    int line[SIM_MACHINE_KEYS]; // of the key in this file; 0: it is not there
    bool set[SIM_MACHINE_KEYS]; // here or in a base
} SimMachineFile;

// Fills in machine and figures from a text; `base` finds the text of a base. False, with one line
// in error: the text is wrong.
bool sim_machine_read(SimMachineFile *file, const char *name, const char *text,
                      const char *(*base)(const char *name), char *error, size_t size);

// The texts of simgpu/machines, the last one without a name.
#define SIM_MACHINE_TEXTS 32
typedef struct SimMachineText {
    const char *name, *text;
} SimMachineText;
extern const SimMachineText sim_machine_texts[];

#endif
