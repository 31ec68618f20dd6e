// Whether a request attained its objective. Pure arithmetic over what the gateway saw; the rule is design.md's, nothing else.
//
// A streamed request attains when its TTFT (request received to first token sent, queue included) and its TPOT
// ((last - first) / (n - 1); n = 1 passes) are both inside. The first token of a request that is not streamed cannot be seen
// from here, so that one attains when its whole latency is inside TTFT + (n - 1) * TPOT: what a streamed one that used up both
// objectives would have taken. 429, 5xx and timeouts are misses; other 4xx and clients that leave before the TTFT limit are not
// counted; a client that leaves later is judged by what it was sent, and nothing sent by then is a miss.
#pragma once

#include <optional>
#include <string>

namespace windlass::gateway {

// Times are seconds on one monotonic clock. Plain data.
struct RequestRecord {
  std::string model;
  std::string chain;  // that it was last sent to; empty: never dispatched
  int code = 0;       // what it came to: the answer's HTTP status; 502 or 504 also where a stream had begun and was broken off;
                      // kClientGone when the client left before the answer was complete
  bool streamed = false;
  double arrived_s = 0;
  std::optional<double> dispatched_s;   // last hand-over to a chain that begins it
  std::optional<double> first_token_s;  // first token sent to the client (streamed only)
  std::optional<double> last_token_s;
  double finished_s = 0;
  int prompt_tokens = -1;      // -1: not known
  int generation_tokens = -1;  // -1: not known
};

// The de-facto status of "client closed request".
inline constexpr int kClientGone = 499;

struct Objective {
  double ttft_s = 0;  // not positive: no objective
  double tpot_s = 0;
};

enum class Verdict { kAttained, kMissed, kNotCounted };

[[nodiscard]] Verdict judge(const RequestRecord& record, const Objective& objective);

// (last - first) / (n - 1); nullopt with fewer than two tokens or when none was seen.
[[nodiscard]] std::optional<double> time_per_output_token_s(const RequestRecord& record);

}  // namespace windlass::gateway
