// The vocabulary of a generated model: byte tokens, then merges learned from a short built-in text, then, if more are
// requested, seeded joins of existing tokens. Deterministic on every platform. Pure function; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace windlass::worker {

struct InitVocabulary {
  std::vector<std::string> tokens;                            // raw bytes of each token; the first 256 are the single bytes
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // token 256 + i joins the two tokens of merges[i]
};

// Returns 256 + merges distinct tokens.
[[nodiscard]] InitVocabulary make_vocabulary(std::int64_t merges, std::uint64_t seed);

}  // namespace windlass::worker
