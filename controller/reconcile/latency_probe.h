// Measures a worker's iteration times with a few short requests: prompts of two lengths, and decoding with two batch sizes.
// Used for engines that do not measure themselves before they are ready.
//
// Answers are not streamed. The time of a one-token answer is the time of its prompt. The difference between the times of two
// longer answers is the time of the additional tokens, without the other costs of a request.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "controller/kube/http_transport.h"
#include "controller/reconcile/calibrator.h"
#include "planner/base/result.h"
#include "planner/perf/iteration_windows.h"

namespace windlass::controller {

struct ProbeQuestion {
  Configuration configuration;  // the configuration to measure
  std::string worker, worker_uid;
  std::string address;            // host:port
  std::string token;              // sent as a bearer token; empty: none
  std::string model;              // the engine's name of it
  double max_context_tokens = 0;  // per request
  int max_concurrency = 1;        // requests that it can run at the same time
  double arrivals_total = 0;      // of its service, when the question was asked

  bool operator==(const ProbeQuestion&) const = default;
};

// Takes about a dozen rounds of requests: at most kWarmUpTimeoutS for the first, which may compile and tune, and kProbeTimeoutS
// for each other. `nonce` starts each prompt, because otherwise an engine's prefix cache would answer. `clock`: seconds. After
// a failure it returns what was measured before. Errors, if nothing was measured: the failure of a request; an engine that does
// not count tokens; kCancelled once `stop` returns true.
inline constexpr double kWarmUpTimeoutS = 60, kProbeTimeoutS = 10;
[[nodiscard]] Result<std::vector<planner::MeasuredIteration>> probe_worker(kube::HttpTransport& transport,
                                                                           const std::function<double()>& clock,
                                                                           const ProbeQuestion& question, std::uint64_t nonce,
                                                                           const std::function<bool()>& stop);

}  // namespace windlass::controller
