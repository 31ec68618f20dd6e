// AddedTokens: finds in a text the tokens that tokenizer.json lists in addition to the vocabulary, before the normalizer or, if
// marked "normalized", after it.
//
// The leftmost and longest match wins. lstrip and rstrip include the adjacent white space; single_word rejects a match next to
// a word character. Immutable after construction; any thread.
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
  bool lstrip = false, rstrip = false;  // include the white space on the left, on the right
  bool single_word = false;

  // Whether the token is structure, not text: special tokens, and others that look like tags ("<|User|>", which some models do
  // not mark as special).
  [[nodiscard]] bool is_marker() const { return special || (content.starts_with('<') && content.ends_with('>')); }
};

class AddedTokens {
 public:
  // `text`: what to search for; may differ from the token's content. An empty one is ignored.
  void add(const std::string& text, const AddedToken& token);

  struct Found {
    std::size_t begin = 0;  // including stripped white space
    std::size_t end = 0;
    std::int32_t id = 0;
  };
  // `is_text(token, begin, end)`: whether the token found there is ordinary text instead.
  [[nodiscard]] std::vector<Found> find(std::string_view text,
                                        const std::function<bool(const AddedToken&, std::size_t, std::size_t)>& is_text) const;
  [[nodiscard]] bool empty() const { return by_text_.empty(); }

 private:
  std::array<std::vector<std::size_t>, 256> lengths_;  // lengths of tokens that begin with this byte, longest first
  std::unordered_map<std::string, AddedToken> by_text_;
};

}  // namespace windlass::worker
