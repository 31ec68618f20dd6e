// OutputHistory predicts the length of an answer from past answers to prompts of similar length: Nie, Fonseca, Liu 2024
// ("Aladdin"), Sections 2.3 and 4.3.
//
// The estimate is the mean output of past requests with a similar input. It is unbiased, so the errors within a batch cancel.
// Inputs are similar if they differ by at most a factor of sqrt(2). A request that exceeds its prediction is predicted again,
// as the mean of past outputs longer than its present length.
//
// It stores counts and sums per range of outputs (eighths of a doubling), so memory is bounded and a query takes O(1). Plain
// value without a clock: call forget(), which halves the weight of the history, if the workload has changed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace windlass::dispatch {

class OutputHistory {
 public:
  // REQUIRES: both >= 1.
  void observe(int input_tokens, int output_tokens);
  // For a new request, or one that has produced `made` tokens and continues: at least made + 1. Without history for similar
  // inputs it uses that of all inputs; without any, `kUnknown` more tokens.
  [[nodiscard]] int predict(int input_tokens, int made = 0) const;
  void forget();

  [[nodiscard]] double observed() const { return all_.count; }
  [[nodiscard]] double mean_input_tokens() const { return all_.count > 0 ? inputs_ / all_.count : 0; }
  [[nodiscard]] double mean_output_tokens() const { return all_.count > 0 ? all_.tokens / all_.count : 0; }

  static constexpr int kUnknown = 256;
  static constexpr double kEnough = 20;  // observations of similar inputs needed to ignore other inputs

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
  // The mean of outputs above `made`; 0: unknown.
  [[nodiscard]] static double mean_above(const Lengths& lengths, int made);

  std::array<Lengths, kInputs> by_input_{};
  Lengths all_;
  double inputs_ = 0;
};

}  // namespace windlass::dispatch
