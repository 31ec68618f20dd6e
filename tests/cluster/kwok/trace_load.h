// TraceLoad: sends a planned list of streamed requests to several gateways, each at its time whether or not earlier ones were
// answered, and judges what comes back as a client does: TTFT, TPOT, whole or not. One thread of its own.
//
// A request is lost when no whole answer came back: no connection, a cut stream, a stream without its end, a status that is
// neither 200 nor a refusal (429, 503). A refusal is what an overloaded gateway says in time; it misses its objective.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace windlass::testing {

struct PlannedRequest {
  double at_s = 0;  // from the start
  std::string model;
  int input_tokens = 1;
  int output_tokens = 1;
};

struct TraceLoadOptions {
  std::vector<std::string> gateways;  // "127.0.0.1:8080"; taken in turn
  std::vector<PlannedRequest> requests;
  double ttft_slo_s = 1;
  double tpot_slo_s = 0.05;
  double timeout_s = 120;  // of one request
};

// An answer whose first token came late: whom to ask about it.
struct SlowAnswer {
  double ttft_s = 0;
  double sent_at_s = 0;
  std::string model;
};

struct TraceLoadReport {
  int planned = 0;
  int sent = 0;
  int answered = 0;
  int refused = 0;
  int lost = 0;
  int attained = 0;
  std::map<std::string, int> failures;  // model and what its refused and lost requests got -> how often
  std::vector<double> ttft_s, tpot_s;   // of answered requests, sorted
  std::vector<SlowAnswer> slowest;      // to the first token, slowest first; kSlowest of them
  int most_late_ms = 0;                 // by which a request left after its time: the load generator's own lag

  static constexpr std::size_t kSlowest = 12;

  [[nodiscard]] int in_flight() const { return sent - answered - refused - lost; }
  [[nodiscard]] double attainment() const {
    return answered + refused + lost > 0 ? attained / double(answered + refused + lost) : 0;
  }
};

// The value below which the share q of the sorted values lies; 0 for none.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double q);

class TraceLoad {
 public:
  explicit TraceLoad(TraceLoadOptions options);  // starts at once
  ~TraceLoad();                                  // breaks off what is in flight
  TraceLoad(const TraceLoad&) = delete;
  TraceLoad& operator=(const TraceLoad&) = delete;

  [[nodiscard]] double elapsed_s() const;
  // All were sent and have come to their end.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] TraceLoadReport report() const;  // so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::testing
