"""What simgpu's headers declare, as lines for headers.c: CHECK_cuda(function, type) of each
function, VALUE_cuda(constant, value) of each enumerator and each macro that is a number; the same
with _nccl and _cublas."""
import os
import re
import subprocess
import tempfile

HEADERS = "cuda_runtime.h", "cuda_profiler_api.h", "nccl.h", "cublas_v2.h"
INCLUDES = "".join(f"#include <{name}>\n" for name in HEADERS)
FUNCTION = re.compile(r"(?:^|[;}])\s*(?:extern )?(?!return|typedef)([\w\s]+[\s*]+)"
                      r"((cuda|nccl|cublas)[A-Z]\w*)\s*\(([^;{}]*)\)\s*"
                      r"(?:__attribute__[^;]*)?(?=;)")
VERSION = re.compile(r"NCCL_(MAJOR|MINOR|PATCH|VERSION_CODE)|CUDART_VERSION|ncclNumResults")


def compiler(*arguments, text):
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-Isimgpu/include", "-xc", "-", *arguments]
    return subprocess.run(command, input=text, check=True, text=True, stdout=subprocess.PIPE).stdout


def constants(declared):
    names = set(re.findall(r"^#define (\w+) \(?-?[0-9(].*$|^#define (\w+) INT_MIN$",
                           compiler("-E", "-dM", text=INCLUDES), re.M))
    names = {a or b for a, b in names}
    for body in re.findall(r"enum\s*\w*\s*{([^}]*)}", declared):
        names |= {entry.split("=")[0].strip() for entry in body.split(",")}
    return sorted(name for name in names
                  if re.match(r"(cuda|nccl|cublas)[A-Z_]", name, re.I) and not VERSION.match(name))


def main():
    declared = compiler("-E", "-P", text=INCLUDES)
    for result, name, library, parameters in FUNCTION.findall(declared):
        print(" ".join(f"CHECK_{library}({name}, {result} (*)({parameters}))".split()))
    calls = "".join(f'printf("%s, %lld)\\n", "{name}", (long long)({name}));\n'
                    for name in constants(declared))
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "values")
        compiler("-o", program, text=f"{INCLUDES}#include <limits.h>\n#include <stdio.h>\n"
                                     f"int main(void)\n{{\n{calls}}}\n")
        for line in subprocess.run([program], check=True, text=True,
                                   stdout=subprocess.PIPE).stdout.splitlines():
            library = re.match("cuda|nccl|cublas", line.lower()).group()
            print(f"VALUE_{library}({line}")


main()
