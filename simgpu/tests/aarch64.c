/* aarch64.c: whether a faulting access was a read or a write, from what 64-bit ARM leaves behind.
 * The codes are those that GNU as gives to the instructions beside them, so this runs on any
 * machine; on an ARM one simgpu/tests/misuse.c has the faults themselves.
 */
#include <string.h>

#include "harness.h"
#include "memory/aarch64.h"

static const struct {
    uint32_t code;
    const char *verb, *text;
} INSTRUCTIONS[] = {
    // clang-format off
    {0xf9400020, "reads", "ldr x0, [x1]"},
    {0xf9000020, "writes", "str x0, [x1]"},
    {0x39401020, "reads", "ldrb w0, [x1, #4]"},
    {0x38001420, "writes", "strb w0, [x1], #1"},
    {0xb9800020, "reads", "ldrsw x0, [x1]"},
    {0x78e26820, "reads", "ldrsh w0, [x1, x2]"},
    {0x78226820, "writes", "strh w0, [x1, x2]"},
    {0xf85f8020, "reads", "ldur x0, [x1, #-8]"},
    {0xb81fc020, "writes", "stur w0, [x1, #-4]"},
    {0xbd400020, "reads", "ldr s0, [x1]"},
    {0xbd000020, "writes", "str s0, [x1]"},
    {0x3dc00420, "reads", "ldr q0, [x1, #16]"},
    {0x3d800420, "writes", "str q0, [x1, #16]"},
    {0xfc627820, "reads", "ldr d0, [x1, x2, lsl #3]"},
    {0x3d000020, "writes", "str b0, [x1]"},
    {0xa9400440, "reads", "ldp x0, x1, [x2]"},
    {0xa9bf0440, "writes", "stp x0, x1, [x2, #-16]!"},
    {0xacc10440, "reads", "ldp q0, q1, [x2], #32"},
    {0xad000440, "writes", "stp q0, q1, [x2]"},
    {0xa8400440, "reads", "ldnp x0, x1, [x2]"},
    {0xa8000440, "writes", "stnp x0, x1, [x2]"},
    {0x69400440, "reads", "ldpsw x0, x1, [x2]"},
    {0xc85f7c20, "reads", "ldxr x0, [x1]"},
    {0xc8027c20, "writes", "stxr w2, x0, [x1]"},
    {0x885ffc20, "reads", "ldaxr w0, [x1]"},
    {0x889ffc20, "writes", "stlr w0, [x1]"},
    {0xc8dffc20, "reads", "ldar x0, [x1]"},
    {0xc87f0440, "reads", "ldxp x0, x1, [x2]"},
    {0xc8230440, "writes", "stxp w3, x0, x1, [x2]"},
    {0x4c407820, "reads", "ld1 {v0.4s}, [x1]"},
    {0x4c002820, "writes", "st1 {v0.4s-v3.4s}, [x1]"},
    {0x4d40c820, "reads", "ld1r {v0.4s}, [x1]"},
    {0x0d202420, "writes", "st4 {v0.b-v3.b}[1], [x1]"},
    {0xf8200041, "writes", "ldadd x0, x1, [x2]"},
    {0xb8e08041, "writes", "swpal w0, w1, [x2]"},
    {0xc8a07c41, "writes", "cas x0, x1, [x2]"},
    {0x48207c82, "writes", "casp x0, x1, x2, x3, [x4]"},
    {0xb820003f, "writes", "stadd w0, [x1]"},
    {0xf8bfc020, "reads", "ldapr x0, [x1]"},
    {0xd9408020, "reads", "ldapur x0, [x1, #8]"},
    {0x99004020, "writes", "stlur w0, [x1, #4]"},
    {0xd50b7420, "writes", "dc zva, x0"},
    {0x8b020020, "touches", "add x0, x1, x2"},
    {0x1e222820, "touches", "fadd s0, s1, s2"},
    {0x94000000, "touches", "bl ."},
    {0xd65f03c0, "touches", "ret"},
    {0xd4000001, "touches", "svc #0"},
    {0x58000020, "reads", "ldr x0, literal"},
    // clang-format on
};

TEST(test_the_instruction_tells)
{
    for (size_t i = 0; i < sizeof INSTRUCTIONS / sizeof *INSTRUCTIONS; i++) {
        const char *verb = sim_aarch64_verb_of_instruction(INSTRUCTIONS[i].code);
        if (strcmp(verb, INSTRUCTIONS[i].verb) != 0)
            fail_msg("%s: \"%s\", want \"%s\"", INSTRUCTIONS[i].text, verb, INSTRUCTIONS[i].verb);
    }
}

// The syndrome of an abort: its class in bits 26 to 31, WnR in bit 6.
TEST(test_the_syndrome_tells)
{
    uint64_t from_program = UINT64_C(0x24) << 26, from_kernel = UINT64_C(0x25) << 26;
    assert_string_equal(sim_aarch64_verb_of_esr(from_program | 7), "reads");
    assert_string_equal(sim_aarch64_verb_of_esr(from_program | 1 << 6 | 7), "writes");
    assert_string_equal(sim_aarch64_verb_of_esr(from_kernel | 1 << 6), "writes");
    assert_null(sim_aarch64_verb_of_esr(UINT64_C(0x20) << 26 | 1 << 6)); // an instruction abort
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "simgpu/aarch64");
}
