// JSON from strangers: model files and request bodies.
#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/result.h"

namespace windlass::worker {

inline constexpr int kMostJsonNesting = 64;

// Error: kInvalidArgument, "not JSON: ..." or what is too deep: copying and printing JSON is recursive, so that a file of a
// million brackets would use up the stack.
template <class Json = nlohmann::json>
[[nodiscard]] Result<Json> parse_json(std::string_view text) {
  struct TooDeep {};
  try {
    return Json::parse(text, [](int depth, typename Json::parse_event_t, Json&) {
      if (depth > kMostJsonNesting) throw TooDeep{};
      return true;
    });
  } catch (const TooDeep&) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("found more than {} levels of nesting", kMostJsonNesting)};
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("not JSON: {}", e.what())};
  }
}

}  // namespace windlass::worker
