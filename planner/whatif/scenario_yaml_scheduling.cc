// Reads the sections about a service's scheduling, objectives and scaling. See scenario_sections.h.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "planner/dispatch/policies.h"
#include "planner/whatif/scenario_sections.h"

namespace windlass::sim {
namespace {

using Service = ScenarioService;
using Engine = planner::EngineSettings;
using Dispatch = dispatch::DispatchSettings;
using Scaling = ScenarioScaling;

// Shortest queue in pending tokens; planner/dispatch's jsq counts requests.
constexpr const char* kDispatchTokens = "jsq-tokens";
constexpr std::array kOrders = {"arrival", "shortest-first", "longest-first"};
constexpr std::array kDecodeChoices = {"at-arrival", "least-memory", "two-choice", "partner"};

// Names of an enumeration, in order.
template <class Value, std::size_t kCount>
std::array<const char*, kCount> names_of(const std::array<Value, kCount>& values) {
  std::array<const char*, kCount> names{};
  for (std::size_t i = 0; i < kCount; ++i) names[i] = to_string(values[i]);
  return names;
}

void read_dispatch(YamlReader& reader, Dispatch& dispatch) {
  std::vector<const char*> allowed = {dispatch::to_string(dispatch::PolicyKind::kJsq), kDispatchTokens};
  std::vector<std::optional<dispatch::PolicyKind>> kinds = {dispatch::PolicyKind::kJsq, std::nullopt};
  for (const dispatch::PolicyKind kind : dispatch::kAllPolicies) {
    if (kind == dispatch::PolicyKind::kJsq) continue;
    allowed.push_back(dispatch::to_string(kind));
    kinds.emplace_back(kind);
  }
  reader.note("dispatch", allowed[0]);
  dispatch.policy = kinds[reader.choice("dispatch", allowed, 0)];
}

auto batching_fields() {
  static const auto kBatchings = names_of(planner::kAllBatchings);
  return map(choice("batching", &Engine::batching, kBatchings).noted(),
             hook([](YamlReader&, Engine& engine) { engine = planner::with_defaults_of(engine.batching); }));
}

auto budget_fields() {
  static const auto kPreemptions = names_of(planner::kAllPreemptions);
  return map(whole("maxBatchTokens", &Engine::max_batch_tokens, 1, workload::kMaxTokens).noted(),
             whole("maxSequences", &Engine::max_sequences, 1, 1'000'000).noted(),
             whole("blockTokens", &Engine::block_tokens, 1, 65536).noted(),
             number("admissionReserve", &Engine::admission_reserve, {0, 0.9}).noted(),
             choice("preemption", &Engine::preemption, kPreemptions).noted());
}

auto swap_fields() {
  const auto swaps = [](Service& service) { return service.engine.preemption == planner::Preemption::kSwap; };
  return only("preemption: swap", swaps,
              part(&Service::swap, number("swapSpaceGB", &ScenarioSwap::bytes_per_gpu, {0, 1e6}, kGiga).noted(),
                   number("swapGBps", &ScenarioSwap::bytes_per_s_per_gpu, {1e-3, 1e6}, kGiga).noted()));
}

auto prompt_fields() {
  const auto sorts = [](Engine& engine) { return engine.prompt_order != planner::PromptOrder::kArrival; };
  return map(flag("prefixCaching", &Engine::prefix_caching).noted(), flag("schedulesAhead", &Engine::schedules_ahead).noted(),
             choice("promptOrder", &Engine::prompt_order, kOrders).noted(),
             only("promptOrder: shortest-first or longest-first", sorts,
                  whole("promptOrderWindow", &Engine::prompt_order_window, 1, 1'000'000).noted()));
}

// Splitwise's mixed pool.
auto mixed_pool_fields() {
  using Repurpose = dispatch::RepurposePolicy;
  return map(hook([](YamlReader& reader, Dispatch& dispatch) {
               if (reader.flag("mixedPool")) dispatch.mixed_pool_threshold_tokens = 8192;
             }),
             only(
                 "mixedPool: true", [](Dispatch& dispatch) { return dispatch.mixed_pool_threshold_tokens.has_value(); },
                 whole("mixedPoolThresholdTokens", &Dispatch::mixed_pool_threshold_tokens, 0, 1'000'000'000).noted(),
                 hook([](YamlReader& reader, Reading& reading) {
                   if (reading.two_roles()) return;
                   reader.wrong("mixedPool", "belongs to prefill and decode pools (got unified pools)");
                 }),
                 section("repurpose", &Dispatch::repurpose,
                         map(duration("window", &Repurpose::window_s, {1e-3, kYear_s}).noted(),
                             number("above", &Repurpose::above, {0, 1}).noted()))));
}

// What is known about lengths: for TetriInfer, in addition to Splitwise's settings.
auto prediction_fields() {
  using Prediction = dispatch::LengthPrediction;
  return section("lengthPrediction", &Dispatch::prediction,
                 map(whole("bucketTokens", &Prediction::bucket_tokens, 1, workload::kMaxTokens).noted(),
                     number("accuracy", &Prediction::accuracy, {0, 1}).noted()));
}

// Assignment of decodes, and workers that flip roles: also TetriInfer's.
auto decode_fields() {
  using Flip = dispatch::FlipPolicy;
  const auto by_two = [](Dispatch& dispatch) { return dispatch.decode_choice == dispatch::DecodeChoice::kTwoChoice; };
  return only(
      "prefill and decode pools (got unified pools)", &Reading::two_roles, hook([](YamlReader&, Dispatch& dispatch) {
        if (dispatch.mixed_pool_threshold_tokens) dispatch.decode_choice = dispatch::DecodeChoice::kLeastMemory;
      }),
      choice("decodeChoice", &Dispatch::decode_choice, kDecodeChoices).noted(),
      hook([by_two](YamlReader& reader, Dispatch& dispatch) {
        if (!by_two(dispatch) || !dispatch.mixed_pool_threshold_tokens) return;
        reader.wrong("decodeChoice", "must be at-arrival or least-memory with mixedPool (got 'two-choice')");
      }),
      only("decodeChoice: two-choice", by_two,
           whole("heavyDecodeTokens", &Dispatch::heavy_decode_tokens, 1, workload::kMaxTokens).noted()),
      section("flip", &Dispatch::flip,
              map(duration("window", &Flip::window_s, {1e-3, kYear_s}).noted(), number("below", &Flip::below, {0, 1}).noted(),
                  duration("takes", &Flip::flip_s, {0, kYear_s}).noted())));
}

auto scheduling_fields() {
  static const auto kAdmissions = names_of(planner::kAllDecodeAdmissions);
  return map(part(&Service::engine, batching_fields()), part(&Service::dispatch, hook(read_dispatch)),
             part(&Service::engine, budget_fields()), swap_fields(), part(&Service::engine, prompt_fields()),
             part(&Service::dispatch, mixed_pool_fields()),
             part(&Service::engine, choice("decodeAdmission", &Engine::admission, kAdmissions).noted()),
             part(&Service::dispatch, prediction_fields(), decode_fields()));
}

auto scaling_fields() {
  return map(
      whole("minWorkers", &Scaling::min_workers, 0, kMaxWorkers).noted(),
      hook([](YamlReader& reader, Scaling& scaling, Reading& reading) {
        const int fewest = std::max(1, scaling.min_workers);
        whole("maxWorkers", &Scaling::max_workers, fewest, kMaxWorkers).read(reader, scaling, reading);
      }),
      number("maxCostPerHour", &Scaling::max_cost_per_hour, kBudget),
      duration("idleToZeroAfter", &Scaling::idle_to_zero_after_s, {0, kYear_s}), hook([](YamlReader& reader, Scaling& scaling) {
        if (scaling.min_workers > 0) reader.belongs("idleToZeroAfter", "minWorkers: 0");
      }),
      duration("scaleUpStabilization", &Scaling::scale_up_stabilization_s, {0, kYear_s}).noted(),
      duration("scaleDownStabilization", &Scaling::scale_down_stabilization_s, {0, kYear_s}).noted(),
      whole("priority", &Scaling::priority, -1'000'000'000, 1'000'000'000).noted(),
      section("assumed", map(number("requestsPerSecond", &Scaling::assumed_requests_per_s, {0, 1e6}).required(),
                             number("inputTokens", &Scaling::assumed_input_tokens, {1, workload::kMaxTokens}).required(),
                             number("outputTokens", &Scaling::assumed_output_tokens, {1, workload::kMaxTokens}).required()))
          .noted("the workload's means"));
}

}  // namespace

void read_scheduling(YamlReader& parent, Reading& reading) {
  static const auto kScheduling = section("scheduling", scheduling_fields()).or_defaults();
  kScheduling.read(parent, *reading.service, reading);
}

void read_slo(YamlReader& parent, Reading& reading) {
  using Slo = ScenarioSlo;
  static const auto kSlo =
      section("slo", &Service::slo,
              map(duration("timeToFirstToken", &Slo::ttft_s, {1e-6, kYear_s}),
                  duration("timePerOutputToken", &Slo::tpot_s, {1e-6, kYear_s}), hook([](YamlReader& reader, Slo& slo) {
                    if (slo.ttft_s || slo.tpot_s) return;
                    reader.wrong("must have timeToFirstToken, timePerOutputToken or both (got neither)");
                  }),
                  number("percentile", &Slo::percentile, {0, 100}).noted()));
  kSlo.read(parent, *reading.service, reading);
}

// As in a ModelService, if the controller is in the loop.
void read_scaling(YamlReader& parent, Reading& reading) {
  static const auto kScaling =
      only("cluster.autoscaling", &Reading::autoscaled, section("scaling", &Service::scaling, scaling_fields()).or_defaults());
  kScaling.read(parent, *reading.service, reading);
}

}  // namespace windlass::sim
