// BaselineDynamo: the SLA planner of NVIDIA Dynamo with both of its loops, in its aggregated mode (every engine does both
// phases, as here), for comparisons.
//
// As published: ai-dynamo/dynamo components/src/dynamo/planner/{config/defaults.py, core/state_machine.py,
// core/throughput_scaling.py, core/load_scaling.py, core/perf_model/agg.py, core/load/predictors.py}.
//
//   every 180 s (throughput)  predicts the next interval's requests and mean lengths; an engine's best rate R is that of the
//                             largest batch b with  wall(b I / O prefill tokens, b (I + O / 2) KV tokens)  within ITL and
//                             TTFT;  the lower bound = ceil(rate / R)
//   every 5 s (load)          no decision while workers start or end; estimates each engine's TTFT from its waiting prompt
//                             tokens, and ITL from its KV tokens.
//                             +1 if all engines are above the TTFT objective or all above the ITL objective;
//                             -1 if the estimate of each with n / (n - 1) times its load stays below 80 % of the objective;
//                             never below the lower bound
//
// Assumptions in its favour: its regression wall(prefill tokens, KV tokens) is the latency model of the run itself. Its load
// predictor, ARIMA with a searched order, is an autoregression of up to two terms on the values or their differences, by AIC,
// and the last value until there are five. Requests waiting at the gateway count as spread evenly over the engines, as Dynamo's
// own router would have sent them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/reference/autoscalers/baseline_deployment.h"

namespace windlass::sim {

struct DynamoOptions {
  double ttft_s = 0.5;
  double itl_s = 0.05;
  double throughput_interval_s = 180;
  double load_interval_s = 5;
  double scale_down_sensitivity = 0.8;
  int min_replicas = 1;
  int max_replicas = 1 << 20;
  std::size_t predictor_points = 5;  // with fewer: the last value
};

// The next value of a series; the last one while there are fewer than `fewest`. Never negative. REQUIRES: a value.
[[nodiscard]] double predict_next(const std::vector<double>& values, std::size_t fewest);

struct DynamoLengths {
  double input_tokens = 0;
  double output_tokens = 0;
};

struct DynamoEngine {
  const planner::IterationModel* model = nullptr;
  int max_sequences = 0;
  int max_batch_tokens = 0;
};

// Requests per second of one engine within the objectives; the rate of one request at a time if even that exceeds them.
[[nodiscard]] double best_engine_rate(const DynamoEngine& engine, const DynamoLengths& lengths, const DynamoOptions& options);

struct DynamoLoad {  // of one engine
  double waiting_tokens = 0;
  double kv_tokens = 0;
};

// Workers by the load loop alone: engines.size() less one, the same, or one more. `prefill_tokens`: mean per iteration.
[[nodiscard]] int load_decision(const DynamoEngine& engine, const std::vector<DynamoLoad>& engines,
                                const DynamoLengths& lengths, double prefill_tokens, const DynamoOptions& options);

class BaselineDynamo final : public ClusterController {
 public:
  BaselineDynamo(BaselineDeployment deployment, const DynamoOptions& options);

  [[nodiscard]] double interval_s() const override { return options_.load_interval_s; }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override;

 private:
  void predict(double now_s, const ObservedService& seen);

  BaselineDeployment deployment_;
  DynamoOptions options_;
  DynamoEngine engine_;
  std::optional<ObservedService> before_;  // at the last throughput tick
  double before_s_ = 0;
  std::vector<double> requests_, inputs_, outputs_;  // of past intervals
  DynamoLengths lengths_;
  double rate_per_s_ = 0;
  int lower_bound_ = 1;
  int wanted_ = 0;  // 0: no decision yet
};

}  // namespace windlass::sim
