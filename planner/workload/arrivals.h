// Arrival processes: when requests arrive. ArrivalSpec describes a process as plain data; make_arrivals() builds it, or refuses
// an invalid spec and names the field.
//
// A process begins at time 0. Unless stated otherwise it is stationary, so the expected number of arrivals up to t is
// mean_rate_per_s * t. Random processes draw from streams named after their source ("chat/times", ...), so that two models with
// one seed are independent, and drawing lengths elsewhere does not shift times.
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

  // The next arrival in seconds from the start; never decreases. None at the end of a trace; other processes do not end.
  [[nodiscard]] virtual std::optional<double> next_s() = 0;
};

// One arrival every 1 / rate seconds, the first one after 1 / rate seconds.
struct ConstantArrivals {
  double rate_per_s = 1;
};

struct PoissonArrivals {
  double rate_per_s = 1;
};

// Independent gamma-distributed gaps. cv is their standard deviation / mean: 0 is constant, 1 is Poisson, above 1 is bursty.
// This is an ordinary renewal process, so the first gap is a full one: over a time t much longer than the gaps, (cv^2 - 1) / 2
// more requests arrive than rate * t.
struct GammaArrivals {
  double rate_per_s = 1;
  double cv = 1;
};

// Poisson arrivals with the rate of the current state. A state lasts an exponential time, then the process moves to any other
// state with equal probability. The first state is drawn in proportion to the time spent in each.
struct MarkovModulatedArrivals {
  struct State {
    double rate_per_s = 0;  // 0: silent
    double mean_dwell_s = 1;
  };
  std::vector<State> states;  // at least one has a rate above 0
};

// Poisson arrivals along a daily curve (a cosine about the mean), plus bursts. Bursts start as a Poisson process of rate
// `burst_rate_per_s`; each adds Poisson(burst_requests) requests, spread evenly over burst_duration_s, and overlapping bursts
// add up. Bursts that started before time 0 are included. The mean rate is exact over whole periods.
struct DiurnalArrivals {
  double mean_rate_per_s = 1;  // of the curve, without bursts
  double peak_to_trough = 1;   // highest / lowest rate of the curve; >= 1
  double period_s = 86'400;
  double peak_at_s = 0;         // time of a peak
  double burst_rate_per_s = 0;  // bursts that start per second; 0: none
  double burst_requests = 0;    // mean requests per burst; >= 1 if there are bursts
  double burst_duration_s = 0;  // > 0 if there are bursts

  // Rate of the curve at a time, without bursts.
  [[nodiscard]] double curve_per_s(double time_s) const;
};

// The times of a trace: sped up, thinned, or overlaid with copies of itself. Ends with the trace.
struct TraceArrivals {
  std::vector<double> times_s;  // sorted, from the start of the trace; at least two different ones
  TraceScaling scaling;
};

using ArrivalSpec =
    std::variant<ConstantArrivals, PoissonArrivals, GammaArrivals, MarkovModulatedArrivals, DiurnalArrivals, TraceArrivals>;

// Long-run arrivals per second, exact. Error kInvalidArgument names the field, what was found and what is allowed.
[[nodiscard]] Result<double> mean_rate_per_s(const ArrivalSpec& spec);

// Makes the process; `source` names its random streams. Errors as for mean_rate_per_s().
[[nodiscard]] Result<std::unique_ptr<ArrivalProcess>> make_arrivals(const ArrivalSpec& spec, std::uint64_t seed,
                                                                    std::string_view source);

}  // namespace windlass::workload
