// A service's scheduling, objectives and scaling. See scenario_yaml_service.h.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "planner/dispatch/policies.h"
#include "planner/whatif/scenario_yaml_service.h"

namespace windlass::sim {
namespace {

// The shortest queue in pending tokens; planner/dispatch's jsq counts requests.
constexpr const char* kDispatchTokens = "jsq-tokens";

// Names of an enumeration, in its order.
template <class Value, std::size_t kCount>
std::array<const char*, kCount> names_of(const std::array<Value, kCount>& values) {
  std::array<const char*, kCount> names{};
  for (std::size_t i = 0; i < kCount; ++i) names[i] = to_string(values[i]);
  return names;
}

}  // namespace

void ServiceReader::read_dispatch(YamlReader& reader) {
  std::vector<const char*> allowed = {dispatch::to_string(dispatch::PolicyKind::kJsq), kDispatchTokens};
  std::vector<std::optional<dispatch::PolicyKind>> kinds = {dispatch::PolicyKind::kJsq, std::nullopt};
  for (const dispatch::PolicyKind kind : dispatch::kAllPolicies) {
    if (kind == dispatch::PolicyKind::kJsq) continue;
    allowed.push_back(dispatch::to_string(kind));
    kinds.emplace_back(kind);
  }
  service_.dispatch.policy = kinds[noted_choice(reader, "dispatch", allowed, 0)];
}

void ServiceReader::read_preemption(YamlReader& reader) {
  planner::EngineSettings& engine = service_.engine;
  engine.preemption = planner::kAllPreemptions[noted_choice(reader, "preemption", names_of(planner::kAllPreemptions), 0)];
  if (engine.preemption == planner::Preemption::kSwap) {
    ScenarioSwap swap;
    swap.bytes_per_gpu = 1e9 * noted_number(reader, "swapSpaceGB", {0, 1e6}, swap.bytes_per_gpu / 1e9);
    swap.bytes_per_s_per_gpu = 1e9 * noted_number(reader, "swapGBps", {1e-3, 1e6}, swap.bytes_per_s_per_gpu / 1e9);
    service_.swap = swap;
    return;
  }
  for (const char* key : {"swapSpaceGB", "swapGBps"}) {
    if (const auto* found = reader.find(key)) {
      mistake_.keep(found->line, fmt::format("{}: belongs to preemption: swap", reader.path_of(key)));
    }
  }
}

void ServiceReader::read_prompt_order(YamlReader& reader) {
  static constexpr std::array kOrders = {"arrival", "shortest-first", "longest-first"};
  planner::EngineSettings& engine = service_.engine;
  engine.prompt_order = planner::kAllPromptOrders[noted_choice(reader, "promptOrder", kOrders, 0)];
  if (engine.prompt_order != planner::PromptOrder::kArrival) {
    engine.prompt_order_window =
        static_cast<int>(noted_whole(reader, "promptOrderWindow", 1, 1'000'000, engine.prompt_order_window));
  } else if (const auto* window = reader.find("promptOrderWindow")) {
    mistake_.keep(window->line, fmt::format("{}: belongs to promptOrder: shortest-first or longest-first",
                                            reader.path_of("promptOrderWindow")));
  }
}

// Which decodes are let in, to which worker they go, what is known of their lengths, and workers that
// flip: TetriInfer's, beside what Splitwise does.
void ServiceReader::read_decodes(YamlReader& reader) {
  static constexpr std::array kNames = {"at-arrival", "least-memory", "two-choice", "partner"};
  static constexpr std::array kChoices = {dispatch::DecodeChoice::kAtArrival, dispatch::DecodeChoice::kLeastMemory,
                                          dispatch::DecodeChoice::kTwoChoice, dispatch::DecodeChoice::kPartner};
  service_.engine.admission =
      planner::kAllDecodeAdmissions[noted_choice(reader, "decodeAdmission", names_of(planner::kAllDecodeAdmissions), 0)];
  if (const auto* prediction = reader.find("lengthPrediction")) {
    YamlReader fields(*prediction, reader.path_of("lengthPrediction"), mistake_);
    dispatch::LengthPrediction asked;
    asked.bucket_tokens = static_cast<int>(noted_whole(fields, "bucketTokens", 1, workload::kMaxTokens, asked.bucket_tokens));
    asked.accuracy = noted_number(fields, "accuracy", {0, 1}, asked.accuracy);
    fields.finish();
    service_.dispatch.prediction = asked;
  }
  const auto belongs = [&](const char* key) {
    const auto* found = reader.find(key);
    if (found == nullptr) return;
    mistake_.keep(found->line, fmt::format("{}: belongs to prefill and decode pools; found unified ones", reader.path_of(key)));
  };
  if (!two_roles()) {
    for (const char* key : {"decodeChoice", "heavyDecodeTokens", "flip"}) belongs(key);
    return;
  }
  service_.dispatch.decode_choice =
      kChoices[noted_choice(reader, "decodeChoice", kNames, service_.dispatch.mixed_pool_threshold_tokens ? 1 : 0)];
  if (service_.dispatch.mixed_pool_threshold_tokens && service_.dispatch.decode_choice == dispatch::DecodeChoice::kTwoChoice) {
    mistake_.keep(reader.line(), fmt::format("{}: found 'two-choice' beside mixedPool, allowed is at-arrival or least-memory",
                                             reader.path_of("decodeChoice")));
  }
  if (service_.dispatch.decode_choice == dispatch::DecodeChoice::kTwoChoice) {
    service_.dispatch.heavy_decode_tokens = static_cast<int>(
        noted_whole(reader, "heavyDecodeTokens", 1, workload::kMaxTokens, service_.dispatch.heavy_decode_tokens));
  } else if (const auto* heavy = reader.find("heavyDecodeTokens")) {
    mistake_.keep(heavy->line, fmt::format("{}: belongs to decodeChoice: two-choice", reader.path_of("heavyDecodeTokens")));
  }
  if (const auto* flip = reader.find("flip")) {
    YamlReader fields(*flip, reader.path_of("flip"), mistake_);
    dispatch::FlipPolicy asked;
    asked.window_s = noted_duration_s(fields, "window", {1e-3, kYear_s}, asked.window_s);
    asked.below = noted_number(fields, "below", {0, 1}, asked.below);
    asked.flip_s = noted_duration_s(fields, "takes", {0, kYear_s}, asked.flip_s);
    fields.finish();
    service_.dispatch.flip = asked;
  }
}

void ServiceReader::read_mixed_pool(YamlReader& reader) {
  if (reader.flag("mixedPool", false)) {
    service_.dispatch.mixed_pool_threshold_tokens = noted_whole(reader, "mixedPoolThresholdTokens", 0, 1'000'000'000, 8192);
    if (!two_roles()) {
      mistake_.keep(reader.line(),
                    fmt::format("{}: belongs to prefill and decode pools; found unified ones", reader.path_of("mixedPool")));
    }
    if (const auto* repurpose = reader.find("repurpose")) {
      YamlReader fields(*repurpose, reader.path_of("repurpose"), mistake_);
      dispatch::RepurposePolicy asked;
      asked.window_s = noted_duration_s(fields, "window", {1e-3, kYear_s}, asked.window_s);
      asked.above = noted_number(fields, "above", {0, 1}, asked.above);
      fields.finish();
      service_.dispatch.repurpose = asked;
    }
    return;
  }
  for (const char* key : {"mixedPoolThresholdTokens", "repurpose"}) {
    if (const auto* found = reader.find(key)) {
      mistake_.keep(found->line, fmt::format("{}: belongs to mixedPool: true", reader.path_of(key)));
    }
  }
}

void ServiceReader::read_scheduling(const YamlValue& value) {
  YamlReader reader(value, at("scheduling"), mistake_);
  constexpr std::size_t kStandard = static_cast<std::size_t>(planner::Batching::kVllm);
  planner::EngineSettings& engine = service_.engine;
  engine = planner::with_defaults_of(
      planner::kAllBatchings[noted_choice(reader, "batching", names_of(planner::kAllBatchings), kStandard)]);
  read_dispatch(reader);
  engine.max_batch_tokens =
      static_cast<int>(noted_whole(reader, "maxBatchTokens", 1, workload::kMaxTokens, engine.max_batch_tokens));
  engine.max_sequences = static_cast<int>(noted_whole(reader, "maxSequences", 1, 1'000'000, engine.max_sequences));
  engine.block_tokens = static_cast<int>(noted_whole(reader, "blockTokens", 1, 65536, engine.block_tokens));
  engine.admission_reserve = noted_number(reader, "admissionReserve", {0, 0.9}, engine.admission_reserve);
  read_preemption(reader);
  note(reader, "prefixCaching", engine.prefix_caching ? "true" : "false");
  engine.prefix_caching = reader.flag("prefixCaching", engine.prefix_caching);
  read_prompt_order(reader);
  read_mixed_pool(reader);
  read_decodes(reader);
  reader.finish();
}

void ServiceReader::read_slo(const YamlValue& value) {
  YamlReader reader(value, at("slo"), mistake_);
  ScenarioSlo slo;
  if (reader.find("timeToFirstToken") != nullptr) slo.ttft_s = reader.duration_s("timeToFirstToken", {1e-6, kYear_s});
  if (reader.find("timePerOutputToken") != nullptr) slo.tpot_s = reader.duration_s("timePerOutputToken", {1e-6, kYear_s});
  if (!slo.ttft_s && !slo.tpot_s) {
    mistake_.keep(value.line,
                  fmt::format("{}: found no objective, allowed is timeToFirstToken, timePerOutputToken or both", at("slo")));
  }
  slo.percentile = noted_number(reader, "percentile", {0, 100}, slo.percentile);
  reader.finish();
  service_.slo = slo;
}

// As a ModelService says it, where the controller is in the loop.
void ServiceReader::read_scaling(const YamlValue& value) {
  YamlReader reader(value, at("scaling"), mistake_);
  ScenarioScaling& scaling = service_.scaling;
  scaling.min_workers = static_cast<int>(noted_whole(reader, "minWorkers", 0, kMaxWorkers, scaling.min_workers));
  if (reader.find("maxWorkers") != nullptr) {
    scaling.max_workers = static_cast<int>(reader.whole("maxWorkers", std::max(1, scaling.min_workers), kMaxWorkers));
  }
  if (reader.find("maxCostPerHour") != nullptr) scaling.max_cost_per_hour = reader.number("maxCostPerHour", {1e-6, 1e9});
  if (const auto* idle = reader.find("idleToZeroAfter")) {
    scaling.idle_to_zero_after_s = reader.duration_s("idleToZeroAfter", {0, kYear_s});
    if (scaling.min_workers > 0) {
      mistake_.keep(idle->line, fmt::format("{}: belongs to minWorkers: 0", reader.path_of("idleToZeroAfter")));
    }
  }
  scaling.scale_up_stabilization_s =
      noted_duration_s(reader, "scaleUpStabilization", {0, kYear_s}, scaling.scale_up_stabilization_s);
  scaling.scale_down_stabilization_s =
      noted_duration_s(reader, "scaleDownStabilization", {0, kYear_s}, scaling.scale_down_stabilization_s);
  scaling.priority = static_cast<int>(noted_whole(reader, "priority", -1'000'000'000, 1'000'000'000, 0));
  note(reader, "assumed", "the workload's means");
  if (const auto* assumed = reader.find("assumed")) {
    YamlReader fields(*assumed, reader.path_of("assumed"), mistake_);
    scaling.assumed_requests_per_s = fields.number("requestsPerSecond", {0, 1e6});
    scaling.assumed_input_tokens = fields.number("inputTokens", {1, workload::kMaxTokens});
    scaling.assumed_output_tokens = fields.number("outputTokens", {1, workload::kMaxTokens});
    fields.finish();
  }
  reader.finish();
}

}  // namespace windlass::sim
