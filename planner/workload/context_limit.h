// ContextLimit says what happens to requests that do not fit into a model's context. Plain value, passed to the parsers of
// traces and length files and to the length distributions.
#pragma once

#include <algorithm>

namespace windlass::workload {

// Limit for a prompt or an answer: beyond every model's context, and small enough to add two of them in an int.
inline constexpr int kMaxTokens = 1 << 24;

struct TokenPair {
  int input_tokens = 1;
  int output_tokens = 1;

  bool operator==(const TokenPair&) const = default;
};

struct ContextLimit {
  int tokens = kMaxTokens;  // >= 2
  // Off: a prompt longer than the context is an error, and outputs stay as they are. On: a prompt is cut to tokens - 1, and the
  // output ends at the end of the context, as in an inference server.
  bool truncate = false;
};

// Truncates the pair to a context of `context_tokens`. REQUIRES: context_tokens >= 2.
[[nodiscard]] constexpr TokenPair truncated(TokenPair pair, int context_tokens) {
  pair.input_tokens = std::min(pair.input_tokens, context_tokens - 1);
  pair.output_tokens = std::min(pair.output_tokens, context_tokens - pair.input_tokens);
  return pair;
}

}  // namespace windlass::workload
