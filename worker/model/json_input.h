// JSON from strangers: model files and request bodies.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/result.h"

namespace windlass::worker {

inline constexpr int kMostJsonNesting = 64;

// nlohmann's ordered_map looks through all keys for each new one, for minutes in a body of keys alone; this one knows where
// they are while it is read.
template <class Key, class T, class IgnoredLess, class Allocator>
struct IndexedMap : nlohmann::ordered_map<Key, T, IgnoredLess, Allocator> {
  using nlohmann::ordered_map<Key, T, IgnoredLess, Allocator>::ordered_map;

  T& operator[](const Key& key) {
    const auto [at, fresh] = index_.try_emplace(key, this->size());
    if (fresh) this->emplace_back(key, T());
    return std::next(this->begin(), static_cast<std::ptrdiff_t>(at->second))->second;
  }

 private:
  std::unordered_map<Key, std::size_t> index_;
};
// To be read, and converted to what else is needed: JSON whose objects keep the order of the text.
using OrderedInput = nlohmann::basic_json<IndexedMap>;

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
