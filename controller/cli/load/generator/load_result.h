// The results of a load: one record per request, and their summary. Plain data and pure arithmetic.
//
// Every request ends in exactly one of these: completed (a complete answer: [DONE], or the whole body), rejected (a complete
// HTTP error, so the client knows), or lost (anything else: no connection, no answer in time, a broken answer). Duplicates are
// counted separately: answers that came twice ([DONE] twice, bytes after the end of the answer, or another request's
// X-Request-Id).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace windlass::load {

enum class Outcome { kCompleted, kRejected, kLost };

struct RequestResult {
  std::size_t index = 0;
  double scheduled_s = 0;  // all times are in seconds from the start of the load
  double finished_s = 0;
  std::optional<double> ttft_s;  // from the scheduled start, including retries and delays of the generator itself
  std::optional<double> tpot_s;  // (last - first) / (n - 1)
  Outcome outcome = Outcome::kLost;
  int status = 0;  // of the last answer; 0: none
  int prompt_tokens = 0;
  int cached_tokens = 0;  // prompt tokens that the worker had cached, from usage
  int tokens = 0;         // from usage if present, otherwise the number of events with text
  int retries = 0;
  bool duplicated = false;
  std::string chain;    // X-Windlass-Worker
  std::string problem;  // why it was rejected or lost
};

struct Percentiles {
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, max = 0;
};

struct LoadResult {
  std::vector<RequestResult> requests;  // by index
  double elapsed_s = 0;

  std::size_t sent = 0, completed = 0, rejected = 0, lost = 0, duplicated = 0, retried = 0;
  std::map<int, std::size_t> rejected_by_status;
  std::map<std::string, std::size_t> completed_by_chain;
  std::map<std::string, std::size_t> problems;           // text -> number of rejected and lost requests
  std::optional<Percentiles> ttft_s, tpot_s, latency_s;  // of completed requests
  double prompt_tokens_mean = 0, tokens_mean = 0, tokens_per_s = 0;
  std::optional<double> attainment;  // share of sent requests within both objectives; rejected and lost ones are misses
};

// An objective of 0 or less is not set; without objectives, attainment is nullopt.
[[nodiscard]] LoadResult summarise(std::vector<RequestResult> requests, double elapsed_s, double ttft_slo_s, double tpot_slo_s);

// By nearest rank; nullopt if there are no values.
[[nodiscard]] std::optional<Percentiles> percentiles(std::vector<double> values);

// with_requests: includes one record per request.
[[nodiscard]] std::string to_json(const LoadResult& result, bool with_requests = false);
// A short summary for a person.
[[nodiscard]] std::string to_text(const LoadResult& result);

}  // namespace windlass::load
