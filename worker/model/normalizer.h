// Normalizer: tokenizer.json's "normalizer", applied to a text before it is split into pieces.
//
// NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend and Replace, in the file's order. Invalid UTF-8 passes through
// unchanged. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/model/text_pattern.h"

namespace windlass::worker {

struct NormalizerStep {
  enum class Kind { kNfc, kNfd, kNfkc, kNfkd, kLowercase, kStripAccents, kStrip, kPrepend, kReplace };
  Kind kind = Kind::kNfc;
  std::string where;  // the field, for messages
  std::string text;   // what Prepend and Replace insert
  PatternSpec pattern = {};
  bool left = true, right = true;  // sides that Strip strips
};

// A text and, if requested, the source position of each of its bytes.
struct AlignedText {
  std::string text;
  std::vector<std::uint32_t> origins = {};
  bool aligned = false;

  void put(std::string_view bytes, std::size_t origin);
  void copy(const AlignedText& from, std::size_t begin, std::size_t end);
};

class Normalizer {
 public:
  [[nodiscard]] static Result<Normalizer> make(std::vector<NormalizerStep> steps);

  [[nodiscard]] AlignedText normalize(std::string_view text, bool align) const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Whether something is put before every text.
  [[nodiscard]] bool prepends() const;
  // Whether a text may become shorter.
  [[nodiscard]] bool shortens() const;

 private:
  struct Step {
    NormalizerStep spec;
    std::optional<TextPattern> pattern;
  };
  std::vector<Step> steps_;
};

// Unicode normal form C.
[[nodiscard]] std::string normalize_nfc(std::string_view text);

}  // namespace windlass::worker
