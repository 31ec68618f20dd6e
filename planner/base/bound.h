// Bound: whether a measured number is the value itself, or only a limit of it: "< 10 ms" where all that is known is that the
// value lies in a histogram's first bucket. Plain data.
#pragma once

#include <string_view>

namespace windlass {

enum class Bound { kNone, kBelow, kAbove };

// What stands before the number: "", "<" or ">".
[[nodiscard]] constexpr std::string_view sign_of(Bound bound) {
  return bound == Bound::kBelow ? "<" : bound == Bound::kAbove ? ">" : "";
}

// "none", "below" or "above".
[[nodiscard]] constexpr std::string_view to_string(Bound bound) {
  return bound == Bound::kBelow ? "below" : bound == Bound::kAbove ? "above" : "none";
}

}  // namespace windlass
