// The load generator: sends a schedule of requests to an OpenAI-compatible endpoint and measures what a client sees.
//
// Open loop: each request starts at its scheduled time, whether or not earlier ones have been answered. Each has its own
// connection, so that bytes after its answer are noticed. Runs on the calling thread with its own io_context.
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
  double length_cv = 0;    // coefficient of variation of both lengths around these means, log-normal; 0: all alike
  int context_tokens = 0;  // no request is longer, prompt and answer together; 0: no limit
  std::uint64_t seed = 1;
  bool stream = true;
  bool include_usage = true;       // ask streams for their usage; some endpoints reject the option
  bool ignore_eos = false;         // ask for exactly max_tokens; an option of vLLM, SGLang, llama.cpp and our worker
  bool retry = false;              // retry after 429 and 503, as Retry-After says
  double request_timeout_s = 300;  // from the scheduled start
  double ttft_slo_s = 0;           // for attainment; 0: none
  double tpot_slo_s = 0;
};

// The state of the running load, reported twice per second.
struct LoadProgress {
  double elapsed_s = 0;
  double total_s = 0;  // of the schedule
  std::size_t planned = 0, sent = 0, in_flight = 0, completed = 0, rejected = 0, lost = 0, duplicated = 0, retried = 0;
  // Over the last ten seconds:
  double arrivals_per_s = 0;
  std::optional<double> ttft_p95_s, tpot_p95_s;
  std::optional<double> attainment;
};

// Sends the whole schedule and waits until all requests have ended. A stop request ends the sending and gives requests in
// flight one more second. Error: kInvalidArgument for a wrong option. Failed requests are results, not errors.
[[nodiscard]] Result<LoadResult> run_load(const LoadOptions& options,
                                          const std::function<void(const LoadProgress&)>& on_progress = {},
                                          std::stop_token stop = {});

}  // namespace windlass::load
