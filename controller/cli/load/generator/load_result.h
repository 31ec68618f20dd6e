// What became of the load: one record a request, and their summary. Plain data and pure arithmetic.
//
// Every request that was sent ends in exactly one of: completed (the whole answer came: [DONE], or a whole body), rejected (a
// whole HTTP error answer; the client knows), lost (anything else: no connection, no answer in time, an answer that broke off).
// Duplicated counts beside these: answers that came twice ([DONE] twice, bytes after the answer's end, or an X-Request-Id that
// is not this request's).
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
  double scheduled_s = 0;  // all times: seconds from the load's beginning
  double finished_s = 0;
  std::optional<double> ttft_s;  // from the scheduled start, retries and our own delay included
  std::optional<double> tpot_s;  // (last - first) / (n - 1)
  Outcome outcome = Outcome::kLost;
  int status = 0;  // of the last answer; 0: none
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of these, as the usage says: the worker had them already
  int tokens = 0;         // from usage where it came, else events with text
  int retries = 0;
  bool duplicated = false;
  std::string chain;    // X-Windlass-Worker
  std::string problem;  // of a rejected or lost one
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
  std::map<std::string, std::size_t> problems;           // texts of rejected and lost ones
  std::optional<Percentiles> ttft_s, tpot_s, latency_s;  // of completed ones
  double prompt_tokens_mean = 0, tokens_mean = 0, tokens_per_s = 0;
  std::optional<double> attainment;  // share of sent ones inside both objectives; rejected and lost ones are misses
};

// objectives: not positive means none is given, and attainment stays empty.
[[nodiscard]] LoadResult summarise(std::vector<RequestResult> requests, double elapsed_s, double ttft_slo_s, double tpot_slo_s);

// nullopt for no values. Nearest rank.
[[nodiscard]] std::optional<Percentiles> percentiles(std::vector<double> values);

// with_requests: also one record for each request.
[[nodiscard]] std::string to_json(const LoadResult& result, bool with_requests = false);
// A few lines for a person.
[[nodiscard]] std::string to_text(const LoadResult& result);

}  // namespace windlass::load
