// Decides whether a request attained its objective. Pure arithmetic over what the gateway observed; the rule comes from
// design.md.
//
// A streamed request attains when both its TTFT (from arrival to the first token sent, queueing included) and its TPOT ((last -
// first) / (n - 1); n = 1 passes) are within their limits. The gateway cannot see the first token of a request that is not
// streamed, so such a request attains when its whole latency is within TTFT + (n - 1) * TPOT, the time a streamed request would
// take if it used up both limits. 429, 5xx and timeouts are misses. Other 4xx, and clients that leave before the TTFT limit,
// are not counted. A client that leaves later is judged by what it was sent; if it was sent nothing, that is a miss.
#pragma once

#include <optional>
#include <string>

namespace windlass::gateway {

// Times are seconds on one monotonic clock. Plain data.
struct RequestRecord {
  std::string model;
  std::string chain;  // the last chain it was sent to; empty: never dispatched
  // HTTP status of the answer; 502 or 504 also when a stream broke off after it began; kClientGone when the client left before
  // the answer was complete.
  int code = 0;
  bool streamed = false;
  bool mixed_pool = false;  // a worker of the other role did one of its phases: Splitwise's mixed pool
  double arrived_s = 0;
  std::optional<double> dispatched_s;   // last time it was sent to a chain that begins it
  std::optional<double> first_token_s;  // first token sent to the client (streamed only)
  std::optional<double> last_token_s;
  double finished_s = 0;
  int prompt_tokens = -1;      // -1: unknown
  int generation_tokens = -1;  // -1: unknown
};

// The status that proxies commonly use for "client closed request".
inline constexpr int kClientGone = 499;

struct Objective {
  double ttft_s = 0;  // zero or less: no objective
  double tpot_s = 0;
};

enum class Verdict { kAttained, kMissed, kNotCounted };

[[nodiscard]] Verdict judge(const RequestRecord& record, const Objective& objective);

// (last - first) / (n - 1); nullopt with fewer than two tokens or when no token was seen.
[[nodiscard]] std::optional<double> time_per_output_token_s(const RequestRecord& record);

}  // namespace windlass::gateway
