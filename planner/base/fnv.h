// FNV-1a, 64 bits (Fowler, Noll, Vo): a small hash that is the same on every platform, unlike std::hash. It detects accidental
// differences; it is not secure against attackers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace windlass {

class Fnv1a {
 public:
  void mix(const void* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      value_ = (value_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001B3ULL;
    }
  }
  void mix(std::string_view text) { mix(text.data(), text.size()); }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

}  // namespace windlass
