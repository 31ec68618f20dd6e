// The load generator: sends a schedule of requests to an OpenAI-compatible endpoint and measures what a client sees.
//
// Open loop: a request starts at its time whether or not earlier ones were answered. Each has a connection of its own, so that
// anything after its answer shows. Runs on the calling thread with its own io_context; no other thread.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "controller/cli/load/generator/load_result.h"
#include "controller/cli/load/generator/schedule.h"
#include "planner/base/result.h"

namespace windlass::load {

struct LoadOptions {
  std::string url = "http://127.0.0.1:8080";  // http://HOST:PORT
  std::string model;
  std::vector<Phase> phases;
  Arrivals arrivals = Arrivals::kPoisson;
  int prompt_tokens = 32;  // words; see prompt_text
  int max_tokens = 32;
  std::uint64_t seed = 1;
  bool stream = true;
  bool include_usage = true;       // ask a stream for its usage; not every endpoint knows the option
  bool ignore_eos = false;         // ask for answers of max_tokens: vLLM's, SGLang's, llama.cpp's and our worker's option
  bool retry = false;              // obey Retry-After of 429 and 503 and send again
  double request_timeout_s = 300;  // from the scheduled start
  double ttft_slo_s = 0;           // for attainment; 0: none
  double tpot_slo_s = 0;
};

// A view of the running load, twice a second.
struct LoadProgress {
  double elapsed_s = 0;
  double total_s = 0;  // of the schedule
  std::size_t planned = 0, sent = 0, in_flight = 0, completed = 0, rejected = 0, lost = 0, duplicated = 0, retried = 0;
  // Over the last ten seconds:
  double arrivals_per_s = 0;
  std::optional<double> ttft_p95_s, tpot_p95_s;
  std::optional<double> attainment;
};

// Sends the whole schedule and waits for its end; a stop request ends the sending and gives what is in flight a second.
// Error kInvalidArgument: an option is wrong. Requests that fail are results, not errors.
[[nodiscard]] Result<LoadResult> run_load(const LoadOptions& options,
                                          const std::function<void(const LoadProgress&)>& on_progress = {},
                                          std::stop_token stop = {});

}  // namespace windlass::load
