// Vectorised passes over a row of logits. A vocabulary has 100,000 tokens and more, and each step has one row per sequence.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace windlass::worker {

// Logits per block. Passes skip whole blocks that cannot matter.
constexpr std::size_t kLogitBlock = 256;

// Sets maxima[i] to the largest finite logit of block i, or to minus infinity if the block has none.
void find_maxima(std::span<const float> logits, std::vector<float>& maxima);

struct TokenWeight {
  double weight;
  std::int32_t id;
};
// Orders by weight, then by lower id.
inline bool likelier(const TokenWeight& a, const TokenWeight& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// Returns the `most` tokens with the highest logits, in any order, with logits as weights; ties go to the lower id. Returns
// fewer if fewer are finite. `maxima`: from find_maxima(); `scratch`: work space, passed in to save the allocation.
void find_likeliest(std::span<const float> logits, std::span<const float> maxima, std::size_t most, std::vector<float>& scratch,
                    std::vector<TokenWeight>& likeliest);

// Sets weights[i] = e^((logits[i] - highest) * steepness), accurate to about two units in the last place. A weight is 0 if the
// logit is not finite or the weight is below `least` or e^-87. Returns the sum. REQUIRES: no finite logit exceeds `highest`;
// `weights` is as long as `logits`.
double weigh(std::span<const float> logits, float highest, float steepness, float least, float* weights);

}  // namespace windlass::worker
