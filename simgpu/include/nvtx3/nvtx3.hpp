/* nvtx3/nvtx3.hpp: named ranges of a scope, and marks: the part of NVTX's own header that C++
 * programs use most.
 */
#ifndef SIMGPU_NVTX3_HPP
#define SIMGPU_NVTX3_HPP

#include <string>

#include "nvToolsExt.h"

namespace nvtx3
{
class scoped_range
{
public:
    scoped_range() : scoped_range("")
    {
    }
    explicit scoped_range(const char *message)
    {
        nvtxRangePushA(message);
    }
    explicit scoped_range(const std::string &message) : scoped_range(message.c_str())
    {
    }
    ~scoped_range()
    {
        nvtxRangePop();
    }
    scoped_range(const scoped_range &) = delete;
    scoped_range &operator=(const scoped_range &) = delete;
};
inline void mark(const char *message)
{
    nvtxMarkA(message);
}
} // namespace nvtx3

#define NVTX3_FUNC_RANGE() ::nvtx3::scoped_range nvtx3_func_range__(__func__)
#endif
