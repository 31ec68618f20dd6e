// Implements huawei_setting.h.
#include "tests/bench/heterogeneous/huawei_setting.h"

#include <utility>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/strategies/core/staged_model.h"
#include "tests/bench/fidelity/orderings.h"

namespace windlass::bench {
namespace {

constexpr int kContextTokens = 8192;

}  // namespace

planner::EngineOverhead HuaweiRoofline::overhead() const {
  planner::EngineOverhead overhead;
  overhead.iteration_s = iteration_s;
  overhead.sequence_s = sequence_s;
  return overhead;
}

hetero::ClusterNode v100_machine(const HuaweiRoofline& roofline) {
  planner::AcceleratorSpec v100 = planner::accelerator_by_name("v100-32gb").value();
  for (auto& [type, flops] : v100.peak_flops) flops *= roofline.v100_compute;
  return {"v100", v100, 8, {roofline.link_bytes_per_s, roofline.hop_s}};
}

// "NVIDIA A800 80GB PCIe" data sheet: an A100 80GB PCIe with a slower NVLink, which one GPU alone does not use.
hetero::ClusterNode a800_machine() {
  planner::AcceleratorSpec a800 = planner::accelerator_by_name("a100-80gb").value();
  a800.memory_bandwidth_bytes_per_s = 1935e9;
  a800.intra_link_bandwidth_bytes_per_s = 32e9;
  a800.power_watts = 300;
  return {"a800", a800, 1, {32e9, 5e-6}};
}

planner::ModelShape distill_qwen_14b() {
  return planner::model_shape_from_config_json(R"({"model_type": "qwen2", "torch_dtype": "bfloat16", "num_hidden_layers": 48,
      "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 13824,
      "vocab_size": 152064, "max_position_embeddings": 131072})")
      .value();
}

Result<std::vector<workload::TokenPair>> huawei_lengths(const std::string& data) {
  return sharegpt_lengths(data, kContextTokens);
}

Result<sim::ServingOptions> huawei_service(const planner::ModelShape& shape, const HuaweiRoofline& roofline,
                                           const std::vector<HuaweiInstances>& instances,
                                           std::vector<std::shared_ptr<const planner::IterationModel>>& models) {
  sim::ServingOptions options;
  options.name = "huawei";
  for (const HuaweiInstances& of : instances) {
    WINDLASS_ASSIGN_OR_RETURN(auto model,
                              hetero::roofline_instance(shape, of.machine, of.tensor_parallel, roofline.overhead()));
    models.push_back(std::move(model));
    sim::ServingPool pool;
    pool.name = of.name;
    pool.spec.accelerator = of.machine.accelerator.name;
    pool.workers = of.instances;
    pool.model = models.back().get();
    pool.spec.engine = planner::with_defaults_of(planner::Batching::kVllm);
    pool.spec.engine.max_batch_tokens = 8192;
    const double kv_tokens = hetero::kv_cache_bytes(shape, of.machine.accelerator, of.tensor_parallel) /
                             hetero::kv_token_bytes(shape, of.tensor_parallel);
    pool.spec.engine.kv_blocks = static_cast<std::int64_t>(kv_tokens) / pool.spec.engine.block_tokens;
    pool.spec.tensor_parallel = of.tensor_parallel;
    pool.dispatch_weight = of.tensor_parallel;
    options.pools.push_back(pool);
  }
  return options;
}

}  // namespace windlass::bench
