// The vocabulary of a made model: byte tokens, then merges learned from a small text inside this program, then, where more are
// asked for, seeded joins of tokens that exist. Deterministic on every platform. Pure function; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace windlass::worker {

struct InitVocabulary {
  std::vector<std::string> tokens;                            // raw bytes of each token; the first 256 are the single bytes
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // token 256 + i is the join of merges[i]
};

// 256 + merges tokens, all different.
[[nodiscard]] InitVocabulary make_vocabulary(std::int64_t merges, std::uint64_t seed);

}  // namespace windlass::worker
