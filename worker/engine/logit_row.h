// Passes over a row of logits, in vectors of what the processor has: a vocabulary has 100,000 tokens and more, and a step has a
// row for each sequence. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace windlass::worker {

// What cannot matter is left out by blocks of so many logits.
constexpr std::size_t kLogitBlock = 256;

// Of each block the largest finite logit; minus infinity where there is none.
void find_maxima(std::span<const float> logits, std::vector<float>& maxima);

// weights[i] = e^((logits[i] - highest) * steepness), to about two units in the last place; 0 where the logit is not finite or
// the weight is below `least` or e^-87. Returns their sum. REQUIRES: no finite logit is above `highest`; `weights` has room for
// as many.
double weigh(std::span<const float> logits, float highest, float steepness, float least, float* weights);

}  // namespace windlass::worker
