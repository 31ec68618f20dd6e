// Predicts answer lengths from past answers; see output_history.h.
#include "planner/dispatch/output_history.h"

#include <algorithm>
#include <cmath>

namespace windlass::dispatch {

std::size_t OutputHistory::range_of(int tokens, double parts, std::size_t ranges) {
  const auto range = static_cast<std::size_t>(parts * std::log2(static_cast<double>(std::max(1, tokens))));
  return std::min(range, ranges - 1);
}

void OutputHistory::observe(int input_tokens, int output_tokens) {
  const std::size_t range = range_of(output_tokens, 8, kOutputs);
  for (Lengths* lengths : {&all_, &by_input_[range_of(input_tokens, 2, kInputs)]}) {
    lengths->count += 1;
    lengths->tokens += output_tokens;
    lengths->ranges[range].count += 1;
    lengths->ranges[range].tokens += output_tokens;
  }
  inputs_ += input_tokens;
}

double OutputHistory::mean_above(const Lengths& lengths, int made) {
  if (made <= 0) return lengths.count > 0 ? lengths.tokens / lengths.count : 0;
  double count = 0, tokens = 0;
  for (std::size_t range = range_of(made, 8, kOutputs) + 1; range < kOutputs; ++range) {
    count += lengths.ranges[range].count;
    tokens += lengths.ranges[range].tokens;
  }
  return count > 0 ? tokens / count : 0;
}

int OutputHistory::predict(int input_tokens, int made) const {
  const Lengths& similar = by_input_[range_of(input_tokens, 2, kInputs)];
  double mean = similar.count >= kEnough ? mean_above(similar, made) : 0;
  if (mean <= made) mean = mean_above(all_, made);
  // Longer than any answer so far: assume that it is as likely to be past its middle as before it.
  if (mean <= made) mean = made > 0 ? 1.5 * made : kUnknown;
  return std::max(made + 1, static_cast<int>(std::lround(std::min(mean, 1e9))));
}

void OutputHistory::forget() {
  const auto halve = [](Lengths& lengths) {
    lengths.count /= 2;
    lengths.tokens /= 2;
    for (Range& range : lengths.ranges) {
      range.count /= 2;
      range.tokens /= 2;
    }
  };
  for (Lengths& lengths : by_input_) halve(lengths);
  halve(all_);
  inputs_ /= 2;
}

}  // namespace windlass::dispatch
