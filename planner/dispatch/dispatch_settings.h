// DispatchSettings says how the requests of one model are assigned to its workers. Plain data: a strategy chooses it; the
// simulator and scenarios use it. The gateways get its first part, PolicySettings.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/dispatch/huawei_policy.h"
#include "planner/dispatch/policy_settings.h"
#include "planner/dispatch/waiting_line.h"

namespace windlass::dispatch {

// How the decode worker of a request is chosen.
enum class DecodeChoice {
  kAtArrival,    // at arrival, together with its prefill worker, by the policy
  kLeastMemory,  // at arrival: the worker with the fewest KV tokens reserved for the full lengths of its requests (the
                 // simulator published by Splitwise's authors)
  kTwoChoice,    // after prefill: of two random workers with room for the predicted length, the one that spreads heavy decodes
                 // more evenly (TetriInfer, Section 3.3.4)
  kPartner,  // at arrival: the n-th prefill worker uses the n-th decode worker, on the same node (DistServe, Algorithm 2); like
             // kAtArrival if that one takes no request
  kPairs,    // at arrival, both together: a pair of pools in proportion to its weight
};

// The accuracy of TetriInfer's length predictor (Section 3.3.2): it returns the right bucket of output lengths, or a neighbour.
struct LengthPrediction {
  int bucket_tokens = 200;
  double accuracy = 0.749;  // probability that the bucket is right

  bool operator==(const LengthPrediction&) const = default;
};

// A worker that was busy for less than a share `below` of a whole window takes the other role, if a worker of that role was
// busier and its own role keeps at least one worker (TetriInfer, Section 3.5).
struct FlipPolicy {
  double window_s = 60;
  double below = 0.1;
  double flip_s = 0.006;

  bool operator==(const FlipPolicy&) const = default;
};

// A worker that worked in the mixed pool for more than `above` of a whole window takes the other role, if its own role keeps at
// least one worker. At most one worker per window, the one with the highest share (Splitwise, Section IV-A: re-purposing of
// machines that "stay in the mixed pool for a considerable amount of time"). It keeps serving while it changes.
struct RepurposePolicy {
  double window_s = 60;
  double above = 0.5;

  bool operator==(const RepurposePolicy&) const = default;
};

// If the policy keeps requests back (JFFC), requests for unified workers wait in a central queue, as in our gateway. So do all
// requests while no worker is ready.
struct DispatchSettings : PolicySettings {
  // true: output lengths are predicted from served requests (and by `prediction` if set); false: they are known.
  bool learns_lengths = true;
  std::optional<HuaweiRules::NormalOutputs> drawn_outputs = {};  // outputs as Huawei's scheduler guesses them
  // Order of the central queue if there are objectives; otherwise by arrival. At a gateway it is a flag.
  QueueOrder queue_order = QueueOrder::kObjective;
  DecodeChoice decode_choice = DecodeChoice::kAtArrival;
  int heavy_decode_tokens = 128;  // a request predicted to produce more is a heavy decode (TetriInfer, Section 5.1)
  std::optional<LengthPrediction> prediction = {};  // none: lengths are known
  std::optional<RepurposePolicy> repurpose = {};    // only with a mixed pool
  std::optional<FlipPolicy> flip = {};

  bool operator==(const DispatchSettings&) const = default;
};

}  // namespace windlass::dispatch
