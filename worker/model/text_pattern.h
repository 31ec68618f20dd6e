// TextPattern: a literal or regular expression that normalizers and pretokenizers search for, and the pieces it splits a text
// into, as in Hugging Face's tokenizers library.
//
// Expressions run on ICU, adapted to behave like Oniguruma, the reference's engine: `\s` is Unicode's White_Space, `\w`
// excludes joiners, `\h` is a hexadecimal digit, `^` and `$` match at line boundaries. Offsets are byte offsets, so bytes that
// are not valid UTF-8 stay in their piece. Immutable after construction; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

// The pattern as the file gives it.
struct PatternSpec {
  std::string text;
  bool regex = false;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class TextPattern {
 public:
  // Error: kInvalidArgument if ICU rejects the expression; the message shows it.
  [[nodiscard]] static Result<TextPattern> make(const PatternSpec& spec);

  TextPattern(TextPattern&&) noexcept;
  TextPattern& operator=(TextPattern&&) noexcept;
  ~TextPattern();

  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // Matches in order, without overlaps; some may be empty. Stops early once an expression has used up its time, which only
  // happens with one made to stall the worker.
  [[nodiscard]] std::vector<Range> matches(std::string_view text) const;

  // Appends the non-empty pieces. `invert`: swaps the roles of matches and the text between them.
  void split(std::string_view text, SplitBehavior behavior, bool invert, std::vector<std::string_view>& pieces) const;

 private:
  struct Impl;
  explicit TextPattern(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::worker
