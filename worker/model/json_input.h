// Parses untrusted JSON: model files and request bodies.
#pragma once

#include <cstddef>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"
#include "planner/base/result.h"

namespace windlass::worker {

inline constexpr int kMaxJsonNesting = 64;
// Maximum number of objects, lists and fields in a request: two bytes of text can create one that takes some hundred bytes
// of memory. Model files may have more, because vocabularies need them.
inline constexpr std::size_t kMaxRequestParts = 100'000;

// nlohmann's ordered_map searches all keys for each new one, which takes minutes for a body with many keys. This map keeps an
// index while parsing.
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
// JSON whose objects keep the order of the text. Only for parsing; convert it to the type needed.
using OrderedInput = nlohmann::basic_json<IndexedMap>;

// Scans a text once without building anything. Stops if it is too deep or has more than `most` objects, lists and fields. (The
// callback of Json::parse scans all siblings at the end of each object: seconds for 300 KB of "{},{}".)
template <class Json>
class NestingReader final : public nlohmann::json_sax<Json> {
 public:
  using Sax = nlohmann::json_sax<Json>;

  explicit NestingReader(std::size_t most) : left_(most) {}

  [[nodiscard]] bool too_deep() const { return depth_ > kMaxJsonNesting; }
  [[nodiscard]] bool too_many() const { return too_many_; }
  [[nodiscard]] const std::string& why() const { return why_; }  // not valid JSON

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Sax::number_integer_t) override { return true; }
  bool number_unsigned(typename Sax::number_unsigned_t) override { return true; }
  bool number_float(typename Sax::number_float_t, const typename Sax::string_t&) override { return true; }
  bool string(typename Sax::string_t&) override { return true; }
  bool binary(typename Sax::binary_t&) override { return true; }
  bool key(typename Sax::string_t&) override { return one_more(); }
  bool start_object(std::size_t) override { return deeper(); }
  bool start_array(std::size_t) override { return deeper(); }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    return why_ = shown_text(error.what(), kLongestReason), false;
  }

 private:
  bool one_more() { return too_many_ = left_ == 0, !too_many_ && left_-- > 0; }
  bool deeper() { return ++depth_ <= kMaxJsonNesting && one_more(); }

  std::size_t left_;
  int depth_ = 0;
  bool too_many_ = false;
  std::string why_;
};

// Error: kInvalidArgument, "not JSON: ...", also for too many parts or too much depth. Depth is limited because copying and
// printing JSON is recursive: a million brackets would overflow the stack.
template <class Json = nlohmann::json>
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::size_t most = std::numeric_limits<std::size_t>::max()) {
  NestingReader<Json> reader(most);
  if (!Json::sax_parse(text, &reader)) {
    return Error{ErrorCode::kInvalidArgument,
                 reader.too_deep()   ? fmt::format("must have at most {} levels of nesting", kMaxJsonNesting)
                 : reader.too_many() ? fmt::format("must have at most {} objects, lists and fields", most)
                                     : fmt::format("not JSON: {}", reader.why())};
  }
  return Json::parse(text);
}

}  // namespace windlass::worker
