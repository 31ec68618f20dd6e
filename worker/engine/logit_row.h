// Passes over a row of logits, in vectors of what the processor has: a vocabulary has 100,000 tokens and more, and a step has a
// row for each sequence. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace windlass::worker {

// What cannot matter is left out by blocks of so many logits.
constexpr std::size_t kLogitBlock = 256;

// Of each block the largest finite logit; minus infinity where there is none.
void find_maxima(std::span<const float> logits, std::vector<float>& maxima);

struct TokenWeight {
  double weight;
  std::int32_t id;
};
// By weight, the lower id first among equals.
inline bool likelier(const TokenWeight& a, const TokenWeight& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// The `most` likeliest tokens, of equals the first ones, in any order, with their logits as weights; fewer where fewer are
// finite. `maxima`: the logits'; `scratch`: for passes, kept to save the allocation.
void find_likeliest(std::span<const float> logits, std::span<const float> maxima, std::size_t most, std::vector<float>& scratch,
                    std::vector<TokenWeight>& likeliest);

// weights[i] = e^((logits[i] - highest) * steepness), to about two units in the last place; 0 where the logit is not finite or
// the weight is below `least` or e^-87. Returns their sum. REQUIRES: no finite logit is above `highest`; `weights` has room for
// as many.
double weigh(std::span<const float> logits, float highest, float steepness, float least, float* weights);

}  // namespace windlass::worker
