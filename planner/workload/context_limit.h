// ContextLimit: what becomes of requests that do not fit a model's context. A plain value that the parsers of traces and length
// files and the length distributions take.
#pragma once

#include <algorithm>

namespace windlass::workload {

// Of a prompt, or of an answer; beyond every model's context, and small enough for sums of both in an int.
inline constexpr int kMaxTokens = 1 << 24;

struct TokenPair {
  int input_tokens = 1;
  int output_tokens = 1;

  bool operator==(const TokenPair&) const = default;
};

struct ContextLimit {
  int tokens = kMaxTokens;  // >= 2
  // Off: a prompt longer than the context is an error, and outputs stay as they are. On: a prompt keeps at most tokens - 1,
  // and then the output ends where the context does, as an inference server ends it.
  bool truncate = false;
};

// The pair inside a context of so many tokens, by truncation. REQUIRES: context_tokens >= 2.
[[nodiscard]] constexpr TokenPair truncated(TokenPair pair, int context_tokens) {
  pair.input_tokens = std::min(pair.input_tokens, context_tokens - 1);
  pair.output_tokens = std::min(pair.output_tokens, context_tokens - pair.input_tokens);
  return pair;
}

}  // namespace windlass::workload
