// Vidur's what-if analysis (Agrawal et al., MLSys 2024, Section 7.3) in simulation: for each model and workload the
// configuration that serves most requests per dollar, and the paper's conclusions from it.
//
// From the paper: LLaMA2-7B and 70B, InternLM-20B, Qwen-72B; Chat-1M, Arxiv-4K and BWB-4K of its Table 1; A100 or H100, tensor
// and pipeline parallelism 1, 2 and 4; vLLM, Orca+ (prompts join decodes, paged caches: "mixed" here) with at most 4,096 tokens
// per iteration, Sarathi-Serve with 512, 1,024 and 2,048; batches of 32 to 512, divided by the pipeline's microbatches; TTFT
// P90 < 2 s, TBT P99 < 200 ms, scheduling delay P99 < 5 s.
//
// Assumptions: lengths are log-normal with the table's mean and median (BWB's answers: median and P90; Arxiv's prompts:
// uniform, because their mean is below the median), input and output are independent and cut at 4,096 tokens in total; one
// replica stands for all; TBT is a request's mean gap, as in our simulator, not each token's; operators are measured on SXM
// boards with NVLink between all GPUs, while the paper's GPUs are linked in pairs; prices are the catalog's. Results that
// depend on GPU prices are shown as ratios of capacities.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/engine_settings.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/operator_times.h"
#include "planner/workload/lengths.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

struct VidurWorkload {
  std::string name;
  workload::LengthDistribution lengths;
};
[[nodiscard]] Result<std::vector<VidurWorkload>> vidur_workloads();

struct VidurModel {
  std::string name;
  planner::ModelShape shape;
};
[[nodiscard]] Result<std::vector<VidurModel>> vidur_models();

struct VidurConfiguration {
  std::string accelerator;  // name in the catalog
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  planner::Batching batching = planner::Batching::kVllm;
  int max_batch_tokens = 4096;
  int batch_size = 32;

  [[nodiscard]] std::string text() const;
};

struct VidurObjectives {
  double ttft_p90_s = 2;
  double tbt_p99_s = 0.2;
  double scheduling_delay_p99_s = 5;
};

// Capacities of configurations, and the latency models that they share.
class VidurSearch {
 public:
  [[nodiscard]] static Result<VidurSearch> make(const std::string& data);

  // Requests per second that one replica sustains; 0 if the model does not fit or if the capacity is not above `only_above`.
  [[nodiscard]] Result<double> capacity_per_s(const VidurModel& model, const VidurWorkload& workload,
                                              const VidurConfiguration& configuration, const VidurObjectives& objectives,
                                              double only_above_per_s = 0);
  // Dollars per hour of one replica.
  [[nodiscard]] double price_per_hour(const VidurConfiguration& configuration) const;

  struct Best {
    VidurConfiguration configuration;
    double capacity_per_s = 0;  // 0: no configuration meets the objectives
    double per_dollar = 0;      // requests per second for one dollar per hour
  };
  // Over all configurations, or only those of one accelerator.
  [[nodiscard]] Result<Best> best(const VidurModel& model, const VidurWorkload& workload, const VidurObjectives& objectives,
                                  const std::string& accelerator = "");

 private:
  using ModelPtr = std::shared_ptr<const planner::IterationModel>;
  [[nodiscard]] Result<ModelPtr> latency(const VidurModel& model, const VidurConfiguration& configuration);

  std::map<std::string, MeasuredGpu> gpus_;  // by accelerator
  std::map<std::string, std::shared_ptr<const planner::OperatorTimes>> times_;
  std::map<std::string, ModelPtr> models_;  // by model, accelerator and parallelism
};

[[nodiscard]] Result<std::string> vidur_ordering_table(const std::string& data);

}  // namespace windlass::bench
