// Bound says whether a measured number is exact or only a limit, as in "< 10 ms" for a value in the first bucket of a
// histogram. Plain data.
#pragma once

#include <string_view>

namespace windlass {

enum class Bound { kNone, kBelow, kAbove };

// The sign in front of the number: "", "<" or ">".
[[nodiscard]] constexpr std::string_view sign_of(Bound bound) {
  return bound == Bound::kBelow ? "<" : bound == Bound::kAbove ? ">" : "";
}

// "none", "below" or "above".
[[nodiscard]] constexpr std::string_view to_string(Bound bound) {
  return bound == Bound::kBelow ? "below" : bound == Bound::kAbove ? "above" : "none";
}

}  // namespace windlass
