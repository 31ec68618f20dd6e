// Text: a string that records for each byte whether it comes from the template or from its input.
//
// A chat template puts control tokens around user text, and both end in one string. User text must stay text even if it reads
// "<|eot_id|>", through every filter and slice, so each byte carries its origin. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::jinja {

class Text {
 public:
  Text() = default;

  [[nodiscard]] static Text of_template(std::string_view bytes) { return Text(bytes, kTemplate); }
  [[nodiscard]] static Text of_input(std::string_view bytes) { return Text(bytes, kInput); }
  // Its origin is the input if any part of `like` comes from there.
  [[nodiscard]] static Text like(const Text& like, std::string_view bytes);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  [[nodiscard]] bool from_input(std::size_t at) const { return origins_[at] == kInput; }
  [[nodiscard]] bool from_input() const { return origins_.find(kInput) != std::string::npos; }

  Text& operator+=(const Text& more);  // throws TemplateError if it becomes too long
  // By bytes. REQUIRES: from <= size().
  [[nodiscard]] Text substr(std::size_t from, std::size_t count = std::string::npos) const;

  bool operator==(const Text& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr char kTemplate = 0;
  static constexpr char kInput = 1;
  Text(std::string_view bytes, char origin) : bytes_(bytes), origins_(bytes.size(), origin) {}

  std::string bytes_;
  std::string origins_;  // one per byte
};

// The code point of the first character; negative for invalid UTF-8. REQUIRES: not empty.
[[nodiscard]] std::int32_t code_point(std::string_view text);

// The offset of each character, and the text's size at the end. Invalid bytes count as one character each.
[[nodiscard]] std::vector<std::size_t> character_starts(std::string_view text);

}  // namespace windlass::jinja
