// BaselineWva: the token-based saturation rule of llm-d's Workload Variant Autoscaler (its default since v0.9), for one
// variant, for comparisons.
//
// As published: llm-d/llm-d-workload-variant-autoscaler internal/engines/analyzers/saturation_v2/analyzer.go,
// internal/engines/pipeline/cost_aware_optimizer.go, deploy/configmap-saturation-scaling.yaml. Every 30 s, from the peaks of
// the last minute:
//
//   demand of a replica    tokens in its KV cache + its waiting requests * mean input
//   capacity of a replica  min(k1, k2), the median over all replicas
//     k1 = 0.80 * KV cache                       memory
//     k2 = compute: the tokens in use when 5 or more wait (mean of the last 10 such), otherwise from the engine's arguments:
//          N * (I + O / 2) with N = min(B * O / (I + O), S), at most S sequences and B tokens per iteration
//   demand at the gateway  queue * (mean input + mean output)
//   required = demand / 0.85 - (ready + pending) * capacity  > 0: ceil(required / capacity) more replicas
//   spare    = ready * capacity - demand / 0.70              > 0: floor(spare / capacity) fewer, at least one stays
//
// The number goes to a HorizontalPodAutoscaler as an external metric with the AverageValue 1 (docs/integrations/
// hpa-integration.md), whose tolerance and windows also apply (baseline_hpa.h). Requests count in one bucket of output lengths;
// prefix caching is not simulated.
#pragma once

#include <deque>
#include <map>

#include "tests/reference/autoscalers/baseline_hpa.h"

namespace windlass::sim {

struct WvaOptions {
  double scale_up_threshold = 0.85;
  double scale_down_boundary = 0.70;
  double kv_cache_threshold = 0.80;
  int queue_length_threshold = 5;
  int compute_samples = 10;
  double interval_s = 30;
  double metrics_window_s = 60;
  double lengths_window_s = 300;  // window of the mean lengths
  HpaOptions hpa;                 // target is 1
};

// The rule's input for one replica: peaks within the metrics window.
struct WvaReplica {
  double tokens_in_use = 0;
  int waiting = 0;
};

struct WvaLengths {
  double input_tokens = 0;
  double output_tokens = 0;
};

struct WvaEngine {
  double kv_capacity_tokens = 0;
  int max_sequences = 0;     // S
  int max_batch_tokens = 0;  // B
};

// The rule alone.
class WvaRule {
 public:
  WvaRule(const WvaOptions& options, const WvaEngine& engine) : options_(options), engine_(engine) {}

  // The desired replicas, given `replicas.size()` ready and `pending` starting ones.
  [[nodiscard]] int decide(const std::vector<WvaReplica>& replicas, int pending, int queued, const WvaLengths& lengths);

 private:
  [[nodiscard]] double compute_capacity(const WvaReplica& replica, const WvaLengths& lengths);

  WvaOptions options_;
  WvaEngine engine_;
  std::deque<double> observed_;  // tokens in use while requests waited
};

class BaselineWva final : public ClusterController {
 public:
  BaselineWva(BaselineDeployment deployment, const WvaOptions& options);

  [[nodiscard]] double interval_s() const override { return options_.hpa.sync_s; }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override;

 private:
  struct Look {
    double at_s;
    double tokens_in_use;
    int waiting;
  };
  struct Totals {
    double at_s;
    std::int64_t completed, input_tokens, output_tokens;
  };
  void look(double now_s, const ObservedService& seen);
  [[nodiscard]] WvaLengths lengths() const;

  BaselineDeployment deployment_;
  WvaOptions options_;
  WvaEngine engine_;
  WvaRule rule_;
  HpaRule hpa_;
  std::map<int, std::deque<Look>> looks_;  // by ready worker
  std::deque<Totals> totals_;
  double next_s_ = 0;
  int wanted_ = 0;  // 0: no decision yet
};

}  // namespace windlass::sim
