/* Errors, told as they travel. Every macro of check.h that meets a failure comes here to print one
 * line, so that an error prints its own stack, innermost line first:
 *
 *   [rank 1] reference/forward.c:88: cudaEventCreate(&e): out of memory (cudaErrorMemoryAllocation)
 *   [rank 1] reference/forward.c:140: fsdp_unshard(unit)
 *
 * Bad input (ERR_ARGUMENT, ERR_IO) is told in its one line alone: where the program noticed it
 * helps nobody who gave it.
 */
#include "check.h"

#include <ctype.h>
#include <cublas_v2.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024

// A thread of its own may have something to say (lib/launch): hence atomic.
static atomic_int line_rank = -1;
static atomic_bool silent;
static _Thread_local char last_line[LINE_BYTES];
static _Thread_local unsigned errors;

void check_set_rank(int rank)
{
    atomic_store(&line_rank, rank);
}

void check_set_silent(bool on)
{
    atomic_store(&silent, on);
}

const char *check_last(void)
{
    return last_line;
}

unsigned check_errors(void)
{
    return errors;
}

// One write for one line: ranks share a terminal, and their lines must not mix.
static void print_line(const char *line)
{
    char whole[LINE_BYTES + 32];
    int length;

    int rank = atomic_load(&line_rank);
    if (atomic_load(&silent)) return;
    if (rank >= 0)
        length = snprintf(whole, sizeof whole, "[rank %d] %s\n", rank, line);
    else
        length = snprintf(whole, sizeof whole, "%s\n", line);
    if (length >= (int)sizeof whole) length = sizeof whole - 1;
    // A standard error that is closed or full is no reason to fail in another way.
    ssize_t ignored = write(STDERR_FILENO, whole, (size_t)length);
    (void)ignored;
}

// Where an error begins: its line is what check_last gives.
static void begin_error(const char *file, int line, const char *what)
{
    errors++;
    snprintf(last_line, sizeof last_line, "%s:%d: %s", file, line, what);
    print_line(last_line);
}

Status check_fail(Status status, const char *file, int line, const char *format, ...)
{
    char what[LINE_BYTES - 128];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    begin_error(file, line, what);
    return status;
}

Status check_trace(Status status, const char *call, const char *file, int line)
{
    char text[LINE_BYTES];

    if (status == ERR_ARGUMENT || status == ERR_IO) return status;
    snprintf(text, sizeof text, "%s:%d: %s", file, line, call);
    print_line(text);
    return status;
}

Status check_cuda(cudaError_t error, const char *call, const char *file, int line)
{
    char what[LINE_BYTES - 128];

    snprintf(what, sizeof what, "%s: %s (%s)", call, cudaGetErrorString(error),
             cudaGetErrorName(error));
    begin_error(file, line, what);
    return error == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_CUDA;
}

// A library's text on one line: line breaks become blanks, and none is left at the end.
static void flatten(char *text)
{
    size_t n = strlen(text);

    while (n > 0 && isspace((unsigned char)text[n - 1])) text[--n] = '\0';
    for (; *text; text++)
        if (*text == '\n' || *text == '\r') *text = ' ';
}

// NCCL's error codes are few; what really happened is in its last message, where there is one.
Status check_nccl(ncclResult_t error, const char *call, const char *file, int line)
{
    char what[LINE_BYTES - 128];
    const char *name = ncclGetErrorString(error), *detail = ncclGetLastError(NULL);

    if (detail && detail[0])
        snprintf(what, sizeof what, "%s: %s: %s", call, name, detail);
    else
        snprintf(what, sizeof what, "%s: %s", call, name);
    flatten(what);
    begin_error(file, line, what);
    return ERR_NCCL;
}

Status check_cublas(int error, const char *call, const char *file, int line)
{
    char what[LINE_BYTES - 128];

    snprintf(what, sizeof what, "%s: %s (%s)", call, cublasGetStatusString(error),
             cublasGetStatusName(error));
    begin_error(file, line, what);
    return ERR_CUBLAS;
}
