/* simgpu_capture.h: a part of simgpu.h, which includes it: how a kernel records its arguments.
 *
 *   SIMGPU_NOTE(stream, function, arguments…)  notes the call while a stream is captured; ends in a
 *                                              comma
 *   SIMGPU_CALL_OF(function, arguments…)       notes the call: simgpu_note_call with SimgpuArgs
 */
#ifndef SIMGPU_CAPTURE_H_
#define SIMGPU_CAPTURE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// An argument: a word (a pointer, an integer or an enumeration), a floating-point number, or a
// structure of more than 16 bytes.
typedef struct SimgpuArg {
    uint64_t word; // of a structure: its address
    double number; // … and its size in bytes
    enum { SIMGPU_ARG_WORD, SIMGPU_ARG_FLOAT, SIMGPU_ARG_DOUBLE, SIMGPU_ARG_BYTES } kind;
} SimgpuArg;

// How many captures are in progress.
extern int simgpu_captures;
// The next operation that this thread begins is made by function(arg[0], …, arg[n - 1]); NULL: by
// none that is known.
void simgpu_note_call(const void *function, int n, const SimgpuArg *arg);

#ifdef __cplusplus
}
#define SIMGPU_NOTE(...)
#else
#define SIMGPU_ARG(x)                                                                              \
    _Generic((x), SimgpuArg                                                                        \
             : (x), default                                                                        \
             : (SimgpuArg){SIMGPU_WORD(x), SIMGPU_NUMBER(x), SIMGPU_KIND(x)})
#define SIMGPU_WORD(x)                                                                             \
    (uint64_t)(uintptr_t) _Generic((x), float : 0, double : 0, SimgpuArg : 0, default : (x))
#define SIMGPU_NUMBER(x) (double)_Generic((x), float : (x), double : (x), default : 0)
#define SIMGPU_KIND(x)                                                                             \
    _Generic((x), float : SIMGPU_ARG_FLOAT, double : SIMGPU_ARG_DOUBLE, default : SIMGPU_ARG_WORD)
// A structure, as an argument.
#define SIMGPU_STRUCT(x) ((SimgpuArg){(uint64_t)(uintptr_t) & (x), sizeof(x), SIMGPU_ARG_BYTES})
#define SIMGPU_PARENS ()
#define SIMGPU_EXPAND(...) SIMGPU_EXPAND1(SIMGPU_EXPAND1(SIMGPU_EXPAND1(__VA_ARGS__)))
#define SIMGPU_EXPAND1(...) SIMGPU_EXPAND2(SIMGPU_EXPAND2(SIMGPU_EXPAND2(__VA_ARGS__)))
#define SIMGPU_EXPAND2(...) SIMGPU_EXPAND3(SIMGPU_EXPAND3(SIMGPU_EXPAND3(__VA_ARGS__)))
#define SIMGPU_EXPAND3(...) __VA_ARGS__
#define SIMGPU_EACH_ARG(x, ...)                                                                    \
    SIMGPU_ARG(x), __VA_OPT__(SIMGPU_EACH_ARG_AGAIN SIMGPU_PARENS(__VA_ARGS__))
#define SIMGPU_EACH_ARG_AGAIN() SIMGPU_EACH_ARG
#define SIMGPU_ARGS(...) SIMGPU_EXPAND(SIMGPU_EACH_ARG(__VA_ARGS__))
#define SIMGPU_CALL_OF(function, ...)                                                              \
    simgpu_note_call((const void *)(function),                                                     \
                     (int)(sizeof((SimgpuArg[]){SIMGPU_ARGS(__VA_ARGS__)}) / sizeof(SimgpuArg)),   \
                     (SimgpuArg[]){SIMGPU_ARGS(__VA_ARGS__)})
#define SIMGPU_NOTE(stream, ...) __VA_OPT__(SIMGPU_NOTE_CALL(stream, __VA_ARGS__), )
#define SIMGPU_NOTE_CALL(stream, function, ...)                                                    \
    (simgpu_captures ? SIMGPU_CALL_OF(function, __VA_ARGS__ __VA_OPT__(, ) stream) : (void)0)
#endif

#endif
