/* aarch64.h: whether an access that faulted was a read or a write, on 64-bit ARM.
 *
 * The kernel's signal frame has a record of the exception's syndrome (ESR_EL1), whose bit WnR is
 * set for a write. If that record is missing (older kernels, qemu-user), the instruction shows it:
 * loads and stores have their own group of codes (Arm Architecture Reference Manual, "Loads and
 * Stores").
 *
 * Interface: sim_aarch64_verb_of_esr, sim_aarch64_verb_of_instruction, which any machine can
 * compile and test; sim_aarch64_fault_verb(context), on 64-bit ARM alone.
 */
#ifndef SIMGPU_CHECK_AARCH64_H
#define SIMGPU_CHECK_AARCH64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// NULL: it was no access to data.
static inline const char *sim_aarch64_verb_of_esr(uint64_t esr)
{
    unsigned class = esr >> 26 & 0x3f;
    bool data_abort = class == 0x24 || class == 0x25;
    if (!data_abort) return NULL;
    return esr & 1 << 6 ? "writes" : "reads"; // WnR
}

static inline const char *sim_aarch64_verb_of_instruction(uint32_t code)
{
    if ((code & 0xffffffe0) == 0xd50b7420) return "writes";  // DC ZVA: zeros a block
    if ((code & 0x0a000000) != 0x08000000) return "touches"; // no load or store
    bool vector = code >> 26 & 1, load = code >> 22 & 1;
    switch (code >> 28 & 3) {
    case 0: // exclusive, or several vectors; CAS and CASP read and write
        if (!vector && (code & 0x00a00000) == 0x00a00000) return "writes";
        if (!vector && (code & 0x80a00000) == 0x00200000) return "writes";
        break;
    case 1: // a literal; or LDAPUR and STLUR
        load = !(code >> 24 & 1) || (code >> 22 & 3) != 0;
        break;
    case 3: // one register; LDAPR, and other atomic ones, which read and write
        if ((code & 0x3ffffc00) == 0x38bfc000) return "reads";
        if (!vector && (code & 0x01200c00) == 0x00200000) return "writes";
        if (!vector) load = (code >> 22 & 3) != 0;
        break;
    default: break; // a pair of registers
    }
    return load ? "reads" : "writes";
}

#if defined(__aarch64__)
#include <asm/sigcontext.h>
#include <string.h>
#include <ucontext.h>

static inline const char *sim_aarch64_fault_verb(const ucontext_t *context)
{
    const unsigned char *at = context->uc_mcontext.__reserved;
    const unsigned char *end = at + sizeof context->uc_mcontext.__reserved;
    const char *verb = NULL;
    struct _aarch64_ctx head;
    uint32_t code;

    for (; verb == NULL && (size_t)(end - at) >= sizeof(struct esr_context); at += head.size) {
        memcpy(&head, at, sizeof head);
        if (head.magic == 0 || head.size < sizeof head || head.size > (size_t)(end - at)) break;
        if (head.magic == ESR_MAGIC)
            verb = sim_aarch64_verb_of_esr(((const struct esr_context *)(const void *)at)->esr);
    }
    if (verb != NULL) return verb;
    memcpy(&code, (const void *)(uintptr_t)context->uc_mcontext.pc, sizeof code);
    return sim_aarch64_verb_of_instruction(code);
}
#endif

#endif
