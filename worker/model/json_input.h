// JSON from strangers: model files and request bodies.
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
// Of a request: each costs some hundred bytes of memory, and two of text. Files have vocabularies.
inline constexpr std::size_t kMaxRequestParts = 100'000;

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

// Looks through a text once, builds nothing, and stops where it is too deep or has more than `most` objects, lists and fields.
// (Json::parse's own callback looks through all that stands beside an object at its end: seconds for 300 KB of "{},{}".)
template <class Json>
class NestingReader final : public nlohmann::json_sax<Json> {
 public:
  using Sax = nlohmann::json_sax<Json>;

  explicit NestingReader(std::size_t most) : left_(most) {}

  [[nodiscard]] bool too_deep() const { return depth_ > kMaxJsonNesting; }
  [[nodiscard]] bool too_many() const { return too_many_; }
  [[nodiscard]] const std::string& why() const { return why_; }  // it is no JSON

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

// Error: kInvalidArgument, "not JSON: ...", what has too many parts, or what is too deep: copying and printing JSON is
// recursive, so that a file of a million brackets would use up the stack.
template <class Json = nlohmann::json>
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::size_t most = std::numeric_limits<std::size_t>::max()) {
  NestingReader<Json> reader(most);
  if (!Json::sax_parse(text, &reader)) {
    return Error{ErrorCode::kInvalidArgument,
                 reader.too_deep()   ? fmt::format("found more than {} levels of nesting", kMaxJsonNesting)
                 : reader.too_many() ? fmt::format("found more than {} objects, lists and fields", most)
                                     : fmt::format("not JSON: {}", reader.why())};
  }
  return Json::parse(text);
}

}  // namespace windlass::worker
