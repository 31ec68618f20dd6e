// WorkloadShift: when DistServe plans again (Zhong et al., OSDI 2024, Section 4.3, "Replaning"): a profiler of the arrival rate
// and the mean lengths that says when what is asked is no longer what was planned for.
//
// Periodic: the recent window is looked at whenever the owner likes, say every minute. A figure has shifted when its mean over
// the window differs from the plan's by more than `least_change` of it, and by more than `certainty` standard errors, so that
// neither a drift that changes no plan nor the noise of a few requests asks for one. The error of the rate counts bursts: the
// spread of the window's parts, where that is above Poisson's. After a plan nothing is asked for `rest_s`, since reloading
// weights takes minutes, and the window holds what came after. Time comes from the caller and never falls. Memory does not
// grow. Pure.
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
  double rest_s = 600;   // after a plan; at least the window counts
};

enum class ShiftedFigure { kRate, kInputTokens, kOutputTokens };
const char* to_string(ShiftedFigure figure);  // "requests a second", "input tokens", "output tokens"

struct Shift {
  ShiftedFigure figure = ShiftedFigure::kRate;
  double planned = 0;
  double found = 0;

  [[nodiscard]] std::string text() const;  // "input tokens went from 512 to 1024"
};

class WorkloadShift {
 public:
  // Error: a window or rest that is no time above 0, a change or certainty that is not above 0, planned figures below 0.
  [[nodiscard]] static Result<WorkloadShift> make(const WorkloadFigures& planned, double now_s,
                                                  const ShiftOptions& options = {});

  void arrived(double now_s, int input_tokens);
  void ended(double now_s, int output_tokens);

  // The figure that has shifted furthest, in standard errors; none: the plan stands.
  [[nodiscard]] std::optional<Shift> check(double now_s);
  // Of the window: what to plan for. Lengths of which nothing is known are the plan's.
  [[nodiscard]] WorkloadFigures recent(double now_s);
  // There is a new plan.
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
    std::int64_t number = -1;  // since time 0; -1: nothing yet
    Mean input, output;        // one input for each request
  };

  WorkloadShift(const WorkloadFigures& planned, double now_s, const ShiftOptions& options)
      : options_(options), planned_(planned), planned_at_s_(now_s) {}

  [[nodiscard]] std::int64_t part_at(double now_s) const;
  [[nodiscard]] Part& part(double now_s);
  struct Window {
    double seconds = 0;  // of whole parts since the plan
    double dispersion = 1;
    Mean input, output;
  };
  [[nodiscard]] Window window(double now_s) const;

  ShiftOptions options_;
  WorkloadFigures planned_;
  double planned_at_s_;
  std::array<Part, kParts + 1> parts_;  // the whole ones, and the one that is under way
};

}  // namespace windlass::search
