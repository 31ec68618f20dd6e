// OutputHistory: how long the answers to prompts of a length were, as a prediction of the next one's: Nie, Fonseca, Liu 2024
// ("Aladdin"), Section 2.3 and 4.3.
//
// The estimate is the mean output of past requests with a similar input, which is unbiased, so that errors of a batch's
// requests cancel. Inputs are similar within a factor of sqrt(2). A request that has made more tokens than predicted is
// predicted again, by the mean of those past ones that were longer than it is by now.
//
// Kept as counts and sums by range of output (eighths of a doubling), so that memory is bounded and a question takes O(1).
// Plain value; of no clock: forget() halves what is known, for who knows that the workload has changed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace windlass::dispatch {

class OutputHistory {
 public:
  // REQUIRES: both >= 1.
  void observe(int input_tokens, int output_tokens);
  // Of a new request, or of one that has made `made` tokens and goes on: at least made + 1. Without history of similar inputs
  // that of all; without any, `kUnknown` more.
  [[nodiscard]] int predict(int input_tokens, int made = 0) const;
  void forget();

  [[nodiscard]] double observed() const { return all_.count; }
  [[nodiscard]] double mean_input_tokens() const { return all_.count > 0 ? inputs_ / all_.count : 0; }
  [[nodiscard]] double mean_output_tokens() const { return all_.count > 0 ? all_.tokens / all_.count : 0; }

  static constexpr int kUnknown = 256;
  static constexpr double kEnough = 20;  // observations of similar inputs that count for themselves

 private:
  static constexpr std::size_t kInputs = 48;    // halves of a doubling
  static constexpr std::size_t kOutputs = 160;  // eighths

  struct Range {
    double count = 0;
    double tokens = 0;
  };
  struct Lengths {
    double count = 0;
    double tokens = 0;
    std::array<Range, kOutputs> ranges{};
  };

  [[nodiscard]] static std::size_t range_of(int tokens, double parts, std::size_t ranges);
  // The mean of outputs above `made`; 0: none is known.
  [[nodiscard]] static double mean_above(const Lengths& lengths, int made);

  std::array<Lengths, kInputs> by_input_{};
  Lengths all_;
  double inputs_ = 0;
};

}  // namespace windlass::dispatch
