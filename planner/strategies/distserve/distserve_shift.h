// WorkloadShift decides when DistServe should plan again (Zhong et al., OSDI 2024, Section 4.3, "Replaning"): it measures the
// arrival rate and mean lengths and reports when they no longer match the plan.
//
// The owner checks the recent window periodically, for example every minute. A figure has shifted if its mean over the window
// differs from the plan's by more than `least_change` of it and by more than `certainty` standard errors, so that neither a
// drift that changes no plan nor the noise of a few requests triggers one. The error of the rate includes bursts: it uses the
// spread between the window's parts if that exceeds Poisson's. After a plan there is a pause of `rest_s`, because reloading
// weights takes minutes, and the window starts over. The caller supplies the time, which never decreases. Memory does not grow.
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "planner/base/result.h"

namespace windlass::search {

struct WorkloadFigures {
  double requests_per_s = 0;
  double mean_input_tokens = 0;
  double mean_output_tokens = 0;
};

struct ShiftOptions {
  double window_s = 300;
  double least_change = 0.2;
  double certainty = 4;  // standard errors
  double rest_s = 600;   // pause after a plan; at least the window
};

enum class ShiftedFigure { kRate, kInputTokens, kOutputTokens };
const char* to_string(ShiftedFigure figure);  // "requests per second", "input tokens", "output tokens"

struct Shift {
  ShiftedFigure figure = ShiftedFigure::kRate;
  double planned = 0;
  double found = 0;

  [[nodiscard]] std::string text() const;  // "input tokens went from 512 to 1024"
};

class WorkloadShift {
 public:
  // Error: a window or rest that is not above 0, a change or certainty that is not above 0, planned figures below 0.
  [[nodiscard]] static Result<WorkloadShift> make(const WorkloadFigures& planned, double now_s,
                                                  const ShiftOptions& options = {});

  void arrived(double now_s, int input_tokens);
  void ended(double now_s, int output_tokens);

  // The figure with the largest shift in standard errors; none if the plan still fits.
  [[nodiscard]] std::optional<Shift> check(double now_s);
  // Figures of the window, to plan for. Unknown lengths are the plan's.
  [[nodiscard]] WorkloadFigures recent(double now_s);
  // Reports a new plan.
  void planned(const WorkloadFigures& figures, double now_s);

 private:
  static constexpr std::size_t kParts = 20;
  struct Mean {
    std::int64_t count = 0;
    double sum = 0, squares = 0;

    void add(double value);
    void add(const Mean& other);
  };
  struct Part {
    std::int64_t number = -1;  // counted from time 0; -1: empty
    Mean input, output;        // one input for each request
  };

  WorkloadShift(const WorkloadFigures& planned, double now_s, const ShiftOptions& options)
      : options_(options), planned_(planned), planned_at_s_(now_s) {}

  [[nodiscard]] std::int64_t part_at(double now_s) const;
  [[nodiscard]] Part& part(double now_s);
  struct Window {
    double seconds = 0;  // whole parts since the plan
    double dispersion = 1;
    Mean input, output;
  };
  [[nodiscard]] Window window(double now_s) const;

  ShiftOptions options_;
  WorkloadFigures planned_;
  double planned_at_s_;
  std::array<Part, kParts + 1> parts_;  // the complete parts, and the current one
};

}  // namespace windlass::search
