// Text: a string that knows of each byte whether the template wrote it or its input did.
//
// A chat template puts control tokens around what a user wrote, and both end as one text. What the user wrote must stay text
// even where it reads "<|eot_id|>", through every filter and slice, so each byte carries its origin. Plain data; any thread.
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
  // Of the input if anything in `like` is.
  [[nodiscard]] static Text like(const Text& like, std::string_view bytes);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  [[nodiscard]] bool from_input(std::size_t at) const { return origins_[at] == kInput; }
  [[nodiscard]] bool from_input() const { return origins_.find(kInput) != std::string::npos; }

  Text& operator+=(const Text& more);  // throws TemplateError where it would become too long
  // By bytes. REQUIRES: from <= size().
  [[nodiscard]] Text substr(std::size_t from, std::size_t count = std::string::npos) const;

  bool operator==(const Text& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr char kTemplate = 0;
  static constexpr char kInput = 1;
  Text(std::string_view bytes, char origin) : bytes_(bytes), origins_(bytes.size(), origin) {}

  std::string bytes_;
  std::string origins_;  // one for each byte
};

// The code point of the character that the text begins with; negative where its bytes are no UTF-8. REQUIRES: not empty.
[[nodiscard]] std::int32_t code_point(std::string_view text);

// The characters of a text: where each begins, and the text's size at the end. Bytes that are no UTF-8 count one each.
[[nodiscard]] std::vector<std::size_t> character_starts(std::string_view text);

}  // namespace windlass::jinja
