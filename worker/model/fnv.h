// FNV-1a, 64 bits (Fowler, Noll, Vo): tells things apart that differ by mistake; no protection against those who try.
#pragma once

#include <cstddef>
#include <cstdint>

namespace windlass::worker {

class Fnv1a {
 public:
  void mix(const void* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      value_ = (value_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001B3ULL;
    }
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

}  // namespace windlass::worker
