/* headers_order.c: where the toolkit's headers come before simgpu's, simgpu's say so instead of
 * being passed over by the guard macro that they share.
 *
 * The toolkit's folder is a made-up one: each file has the guard macro of its namesake and nothing
 * else.
 */
#include "heard.h"

// Runs a script that finds a made-up toolkit in $toolkit, with every header of simgpu's that has a
// guard of NVIDIA's in $headers; what it prints first goes to text.
static void run_script(const char *script, char *text, size_t size)
{
    char all[4096];
    needs_kit(__FILE__);
    snprintf(all, sizeof all,
             "toolkit=$(mktemp -d) headers=; mkdir $toolkit/crt\n"
             "for h in $(cd simgpu/include && ls *.h crt/*.h); do\n"
             "  grep -q \"NVIDIA's $h comes before\" simgpu/include/$h || continue\n"
             "  guard=$(sed -n 's/^#ifndef //p' simgpu/include/$h | head -n 1)\n"
             "  printf '#ifndef %%s\\n#define %%s\\n#endif\\n' $guard $guard >$toolkit/$h\n"
             "  headers=\"$headers $h\"\n"
             "done\n"
             "check() { timeout 60 ${CC:-cc} -fsyntax-only -x c \"$@\" - 2>&1; }\n"
             "%s\nrm -rf $toolkit\n",
             script);
    FILE *pipe = popen(all, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

TEST(test_every_header_is_there)
{
    char text[1024];
    run_script("echo $headers", text, sizeof text);
    static const char *const some[] = {"cublas_v2.h", "cublas_api.h", "cuda_runtime.h", "nccl.h",
                                       "crt/host_defines.h"};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (!strstr(text, some[i])) fail_msg("%s does not look for NVIDIA's: %s", some[i], text);
}

TEST(test_the_toolkit_first)
{
    char text[1024];
    run_script(
        "for h in $headers; do\n"
        "  printf '#include <%s>\\n#include \"simgpu/include/%s\"\\n' $h $h |\n"
        "    check -I$toolkit -I. | grep -q \"NVIDIA's $h comes before simgpu's\" || echo $h\n"
        "done",
        text, sizeof text);
    if (text[0]) fail_msg("nothing is said about NVIDIA's\n%s", text);
}

// A program as it comes: the toolkit has no nccl.h, so the compiler comes to simgpu's.
TEST(test_a_program)
{
    char text[4096];
    run_script("printf '#include <cuda_runtime.h>\\n#include <nccl.h>\\n' |\n"
               "  { rm $toolkit/nccl.h; check -I$toolkit -Isimgpu/include; } ",
               text, sizeof text);
    if (!strstr(text, "NVIDIA's cuda_runtime.h comes before simgpu's: put simgpu/include first"))
        fail_msg("it says %s", text);
}

TEST(test_simgpu_first)
{
    char text[4096];
    run_script("for h in $headers; do\n"
               "  printf '#include <%s>\\n#include <%s>\\n' $h $h |\n"
               "    check -Isimgpu/include -I$toolkit\n"
               "done",
               text, sizeof text);
    if (text[0]) fail_msg("with simgpu/include first: %s", text);
}

SUITE_MAIN("simgpu's headers and the toolkit's")
