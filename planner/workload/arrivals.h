// Arrival processes: when requests come. Described by plain data (ArrivalSpec), made by make_arrivals(), which refuses what
// makes no sense and names the field.
//
// A process begins at time 0; unless said otherwise it is stationary from there, so that the expected number of arrivals up to
// t is mean_rate_per_s * t. Random processes draw from streams named after the source ("chat/times", ...), so that two models
// of one seed do not move together, and lengths drawn elsewhere do not shift times.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "planner/base/result.h"
#include "planner/workload/trace_replay.h"

namespace windlass::workload {

class ArrivalProcess {
 public:
  virtual ~ArrivalProcess() = default;

  // The next arrival in seconds from the start, or none: the process is at its end, which only a trace has. Never falls.
  [[nodiscard]] virtual std::optional<double> next_s() = 0;
};

// One arrival every 1 / rate seconds, the first after one such gap.
struct ConstantArrivals {
  double rate_per_s = 1;
};

struct PoissonArrivals {
  double rate_per_s = 1;
};

// Independent Gamma distributed gaps; cv is their standard deviation / mean: 0 constant, 1 Poisson, above 1 bursty. An ordinary
// renewal process: the first gap is a whole one, so that over a time t, long against the gaps, (cv^2 - 1) / 2 more arrive than
// rate * t.
struct GammaArrivals {
  double rate_per_s = 1;
  double cv = 1;
};

// Poisson arrivals whose rate is that of a state; it stays there for an exponential time, then goes to any of the other states
// with equal chance. Begins in a state drawn by the shares of time that the states have.
struct MarkovModulatedArrivals {
  struct State {
    double rate_per_s = 0;  // 0: silent
    double mean_dwell_s = 1;
  };
  std::vector<State> states;  // at least one with a rate above 0
};

// Poisson arrivals along a daily curve, a cosine about its mean, with bursts on top: at the moments of a Poisson process of its
// own, `burst_rate_per_s`, a burst begins that brings Poisson(burst_requests) further requests evenly over burst_duration_s;
// bursts add up where they overlap. Bursts that began before time 0 are there. Over whole periods the mean rate is exact.
struct DiurnalArrivals {
  double mean_rate_per_s = 1;  // of the curve, without bursts
  double peak_to_trough = 1;   // highest rate of the curve / lowest; >= 1
  double period_s = 86'400;
  double peak_at_s = 0;         // time of a peak
  double burst_rate_per_s = 0;  // bursts that begin per second; 0: none
  double burst_requests = 0;    // mean requests of a burst; >= 1 where there are bursts
  double burst_duration_s = 0;  // > 0 where there are bursts

  // The curve's rate at a time, without bursts.
  [[nodiscard]] double curve_per_s(double time_s) const;
};

// The times of a trace, faster or thinned or laid over itself. Not random in itself, and ends where the trace does.
struct TraceArrivals {
  std::vector<double> times_s;  // in order, from the trace's begin; at least two different ones
  TraceScaling scaling;
};

using ArrivalSpec =
    std::variant<ConstantArrivals, PoissonArrivals, GammaArrivals, MarkovModulatedArrivals, DiurnalArrivals, TraceArrivals>;

// Long-run arrivals per second, exact. Error kInvalidArgument names the field, what was found and what is allowed.
[[nodiscard]] Result<double> mean_rate_per_s(const ArrivalSpec& spec);

// The process; `source` names its random streams. Errors as mean_rate_per_s().
[[nodiscard]] Result<std::unique_ptr<ArrivalProcess>> make_arrivals(const ArrivalSpec& spec, std::uint64_t seed,
                                                                    std::string_view source);

}  // namespace windlass::workload
