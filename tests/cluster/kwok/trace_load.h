// TraceLoad: sends a planned list of streamed requests to several gateways, each at its own time whether or not earlier ones
// were answered, and judges the responses as a client does: TTFT, TPOT, complete or not. It has its own thread.
//
// A request is lost if no complete response came back: no connection, a cut or incomplete stream, or a status other than 200,
// 429 and 503. With 429 and 503 an overloaded gateway refuses a request in time; the request misses its objective.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace windlass::testing {

struct PlannedRequest {
  double at_s = 0;  // since the start
  std::string model;
  int input_tokens = 1;
  int output_tokens = 1;
};

struct TraceLoadOptions {
  std::vector<std::string> gateways;  // "127.0.0.1:8080"; used in turn
  std::vector<PlannedRequest> requests;
  double ttft_slo_s = 1;
  double tpot_slo_s = 0.05;
  double timeout_s = 120;  // of one request
};

// A response whose first token was late, with the details needed to investigate.
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
  std::map<std::string, int> failures;  // model and error of refused and lost requests -> how often
  std::vector<double> ttft_s, tpot_s;   // of answered requests, sorted
  std::vector<SlowAnswer> slowest;      // the kSlowest largest times to first token, slowest first
  int max_late_ms = 0;                  // the load generator's own lag: how late a request was sent

  static constexpr std::size_t kSlowest = 12;

  [[nodiscard]] int in_flight() const { return sent - answered - refused - lost; }
  [[nodiscard]] double attainment() const {
    return answered + refused + lost > 0 ? attained / double(answered + refused + lost) : 0;
  }
};

// The quantile q of the sorted values; 0 if there are none.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double q);

class TraceLoad {
 public:
  explicit TraceLoad(TraceLoadOptions options);  // starts immediately
  ~TraceLoad();                                  // aborts the requests in flight
  TraceLoad(const TraceLoad&) = delete;
  TraceLoad& operator=(const TraceLoad&) = delete;

  [[nodiscard]] double elapsed_s() const;
  // All requests were sent and have ended.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] TraceLoadReport report() const;  // so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::testing
