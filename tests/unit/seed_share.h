// How many seeds a test of many runs through: a sanitizer makes each some ten times as slow.
#pragma once

#include <cstdint>

namespace windlass {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::uint64_t kSeedShare = 8;
#else
inline constexpr std::uint64_t kSeedShare = 1;
#endif

}  // namespace windlass
