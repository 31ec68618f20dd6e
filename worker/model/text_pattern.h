// TextPattern: a text or a regular expression that normalizers and pretokenizers look for, and what a text is cut into by it,
// as Hugging Face's tokenizers library cuts.
//
// Expressions run on ICU, set up to read them as Oniguruma, which made the reference ids: `\s` is Unicode's White_Space, `\w`
// has no joiners, `\h` is a hexadecimal digit, `^` and `$` stand at lines. Offsets are those of the bytes, so that bytes that
// are no UTF-8 survive in their piece. Immutable after construction; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

// What is looked for, as a file says it.
struct PatternSpec {
  std::string text;
  bool regex = false;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class TextPattern {
 public:
  // Error: kInvalidArgument where ICU does not take the expression; the message shows it.
  [[nodiscard]] static Result<TextPattern> make(const PatternSpec& spec);

  TextPattern(TextPattern&&) noexcept;
  TextPattern& operator=(TextPattern&&) noexcept;
  ~TextPattern();

  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // In order, without overlaps; some may be empty. An expression made to hold the worker up finds nothing more once it has used
  // up its time.
  [[nodiscard]] std::vector<Range> matches(std::string_view text) const;

  // Appends the pieces, none of them empty. `invert`: what matches and what does not change places.
  void split(std::string_view text, SplitBehavior behavior, bool invert, std::vector<std::string_view>& pieces) const;

 private:
  struct Impl;
  explicit TextPattern(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::worker
