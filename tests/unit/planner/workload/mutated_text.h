// Byte mutations for tests of parsers of foreign text: turns a valid text into one that may be invalid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "planner/base/rng.h"

namespace windlass {

// Makes one to four changes: inserts or replaces a byte from the alphabet, removes a byte, or cuts off the rest.
inline std::string mutated_text(Rng& rng, std::string text, const std::string& alphabet) {
  for (auto changes = rng.integer(1, 4); changes > 0 && !text.empty(); --changes) {
    const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1));
    const char c = alphabet[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(alphabet.size()) - 1))];
    switch (rng.integer(0, 3)) {
      case 0: text[at] = c; break;
      case 1: text.insert(at, 1, c); break;
      case 2: text.erase(at, 1); break;
      default: text.resize(at + 1);
    }
  }
  return text;
}

}  // namespace windlass
