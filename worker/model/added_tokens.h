// AddedTokens: finds the tokens that tokenizer.json lists next to the vocabulary, in a text before (or, for those marked
// "normalized", after) the normalizer.
//
// The leftmost and longest match wins; lstrip and rstrip take the white space beside it; single_word refuses one that touches a
// word. Immutable after construction; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace windlass::worker {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;
  bool lstrip = false, rstrip = false;  // takes the white space on its left, its right
  bool single_word = false;

  // Stands for structure, not for text: special ones, and others that look like tags ("<|User|>", which some models do not call
  // special).
  [[nodiscard]] bool is_marker() const { return special || (content.starts_with('<') && content.ends_with('>')); }
};

class AddedTokens {
 public:
  // The text to look for may differ from the token's content. An empty one is not looked for.
  void add(const std::string& text, const AddedToken& token);

  struct Found {
    std::size_t begin = 0;  // with white space that was taken
    std::size_t end = 0;
    std::int32_t id = 0;
  };
  // is_text(token, begin, end): whether the token that stands there is ordinary text after all.
  [[nodiscard]] std::vector<Found> find(std::string_view text,
                                        const std::function<bool(const AddedToken&, std::size_t, std::size_t)>& is_text) const;
  [[nodiscard]] bool empty() const { return by_text_.empty(); }

 private:
  std::array<std::vector<std::size_t>, 256> lengths_;  // of those that begin with this byte, the longest first
  std::unordered_map<std::string, AddedToken> by_text_;
};

}  // namespace windlass::worker
