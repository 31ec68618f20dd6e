// One target as libFuzzer calls it; WINDLASS_FUZZ_TARGET is its name.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  windlass::fuzz::WINDLASS_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
