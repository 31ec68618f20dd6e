// FNV-1a, 64 bits (Fowler, Noll, Vo): small and the same everywhere, unlike std::hash. It tells apart what differs by mistake
// and protects from nobody.
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
