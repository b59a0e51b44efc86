/* machine_file.h: a machine of a test's own choice, as a file that its ranks have too.
 */
#ifndef TESTS_MACHINE_FILE_H
#define TESTS_MACHINE_FILE_H

// The path of a file with this text, wherever the test runs; nobody can write to it. The same one
// for the same text (a literal).
const char *machine_file(const char *text);

// The beginning of such a text: GPUs as slow as the tests' models are small, which nothing slows
// further, so that times can be worked out by hand. To follow: hbm, nvlink, pcie, nic, and what
// starting things costs.
#define SLOW_MACHINE                                                                               \
    "gpus_per_node 8\n"                                                                            \
    "memory 80 GiB\n"                                                                              \
    "peak_f64 4 GFLOP/s\n"                                                                         \
    "peak_f32 4 GFLOP/s\n"                                                                         \
    "peak_tf32 4 GFLOP/s\n"                                                                        \
    "peak_bf16 4 GFLOP/s\n"                                                                        \
    "peak_fp8 4 GFLOP/s\n"                                                                         \
    "slow_compute 1/1\n"                                                                           \
    "slow_transfer 1/1\n"                                                                          \
    "gemm plain\n"                                                                                 \
    "model plain\n"

#endif
