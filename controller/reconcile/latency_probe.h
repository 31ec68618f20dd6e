// What a few short requests say of how long a worker's iterations take, for engines that do not measure themselves before they
// are ready: prompts of two lengths, and decoding of two batches.
//
// Answers are not streamed: one of a single token takes a prompt's time, and the difference between longer ones of two lengths
// that of the tokens between them, whatever else a request costs.
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
  Configuration configuration;  // what is not known
  std::string worker, worker_uid;
  std::string address;            // host:port
  std::string token;              // sent as a bearer token; empty: none
  std::string model;              // as its engine calls it
  double max_context_tokens = 0;  // of one request
  int max_concurrency = 1;        // requests that it runs at once
  double arrivals_total = 0;      // of its service, when the question was asked

  bool operator==(const ProbeQuestion&) const = default;
};

// Takes the time of a dozen rounds of requests: kWarmUpTimeoutS at most for the first, which may compile and tune, and
// kProbeTimeoutS for each of the others. `nonce`: begins each prompt, or an engine's prefix cache would answer for it. `clock`:
// seconds. What was measured before something failed is returned. Errors, of a probe that measured nothing: what a request
// failed with; an engine that does not count tokens; kCancelled, once `stop` says so.
inline constexpr double kWarmUpTimeoutS = 60, kProbeTimeoutS = 10;
[[nodiscard]] Result<std::vector<planner::MeasuredIteration>> probe_worker(kube::HttpTransport& transport,
                                                                           const std::function<double()>& clock,
                                                                           const ProbeQuestion& question, std::uint64_t nonce,
                                                                           const std::function<bool()>& stop);

}  // namespace windlass::controller
