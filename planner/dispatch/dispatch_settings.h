// DispatchSettings: how the requests of one model find their workers, beyond who those are. Plain data: a strategy chooses it,
// the simulator and scenarios take it.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/dispatch/huawei_policy.h"
#include "planner/dispatch/policies.h"
#include "planner/dispatch/waiting_line.h"

namespace windlass::dispatch {

// How the decode worker of a prefilled request is chosen.
enum class DecodeChoice {
  kAtArrival,    // together with its prefill worker, by the policy
  kLeastMemory,  // then too, but the worker with the fewest KV tokens promised, of its requests' whole lengths (the simulator
                 // that Splitwise's authors published)
  kTwoChoice,    // once prefilled: of two random workers with room for its predicted length the one that spreads heavy decodes
                 // more evenly (TetriInfer, Section 3.3.4)
  kPartner,      // at arrival: the n-th decode worker is that of the n-th prefill worker, in whose node it stands (DistServe,
                 // Algorithm 2); as kAtArrival where there is none that takes the request
  kPairs,        // at arrival, both together: a pair of pools in proportion to its weight
};

// TetriInfer's length predictor (Section 3.3.2), by what it gets right: a bucket of output lengths, or else one of its
// neighbours.
struct LengthPrediction {
  int bucket_tokens = 200;
  double accuracy = 0.749;  // how often the bucket is right
};

// A worker whose share of busy time was below `below` over a whole window takes the other role, when some worker of that role
// was busier and one of its own role is left (TetriInfer, Section 3.5).
struct FlipPolicy {
  double window_s = 60;
  double below = 0.1;
  double flip_s = 0.006;
};

// A worker that was in the mixed pool, at work, for more than `above` of a whole window takes the other role, if one of its own
// is left; the one that was so most, one a window (Splitwise, Section IV-A: re-purposing of machines that "stay in the mixed
// pool for a considerable amount of time"). It serves on while it does.
struct RepurposePolicy {
  double window_s = 60;
  double above = 0.5;
};

// How Aladdin's placement is set.
struct Placement {
  double gamma = 0.5;
  double theta = 0.9;
  // Outputs are predicted from those that were served (and by `prediction` where there is one); false: they are known.
  bool learns_lengths = true;
  double ttft_s = 0, tpot_s = 0;  // that requests are packed for; 0: the service's objectives
};

struct DispatchSettings {
  // How a worker of the role is chosen, by requests in flight; none: fewest pending tokens (JSQ as Splitwise counts). Where a
  // policy keeps requests back (JFFC), those of unified workers wait in a central queue, as at our gateway; so do all requests
  // while no worker is ready.
  std::optional<PolicyKind> policy;
  Placement placement = {};
  HuaweiRules huawei = {};  // how Huawei's scheduler is set; its phase is the role's, what is known of lengths as above
  // In which order those of the central queue go, where there are objectives; without, by arrival.
  QueueOrder queue_order = QueueOrder::kObjective;
  DecodeChoice decode_choice = DecodeChoice::kAtArrival;
  int heavy_decode_tokens = 128;                    // predicted to make more: a heavy decode (TetriInfer, Section 5.1)
  std::optional<LengthPrediction> prediction = {};  // none: lengths are known
  std::optional<std::int64_t> mixed_pool_threshold_tokens = {};
  std::optional<RepurposePolicy> repurpose = {};  // beside a mixed pool
  std::optional<FlipPolicy> flip = {};
};

}  // namespace windlass::dispatch
