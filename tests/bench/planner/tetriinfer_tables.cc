// TetriInfer's Fig. 11 to 16, 18 and 19 (Hu et al. 2024): OPT-13B with tensor parallelism 2 on V100-32GB, ShareGPT lengths
// within OPT's 2,048 tokens.
//
// No profile of OPT-13B on V100 is published: iteration times are a roofline of its data sheet with the efficiencies fitted on
// A100. All requests arrive together, because the paper does not describe arrivals. Fig. 11 to 15 are in tetriinfer_ordering.h.
#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/strategies/core/worker_models.h"
#include "planner/strategies/splitwise/splitwise.h"
#include "planner/strategies/tetriinfer/tetriinfer.h"
#include "tests/bench/fidelity/orderings.h"
#include "tests/bench/fidelity/tetriinfer_ordering.h"
#include "tests/bench/planner/experiments.h"

namespace windlass::bench {
namespace {

using search::Deployment;
using search::Problem;
using search::TetriInferKnobs;
using search::TetriInferOptions;
using workload::TokenPair;

constexpr int kContextTokens = 2048;
constexpr int kSeeds = 20;

struct Setting {
  std::unique_ptr<search::DrawnRequests> requests;
  std::vector<TokenPair> lengths;
  Problem problem;
};

Result<Setting> setting_of(const std::string& data) {
  Setting setting;
  Problem& problem = setting.problem;
  problem.name = "OPT-13B on V100";
  WINDLASS_ASSIGN_OR_RETURN(problem.shape, planner::model_shape_by_name("opt-13b"));
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec v100, planner::accelerator_by_name("v100-32gb"));
  problem.accelerators = {{v100}};
  search::KindSpace space;
  space.tensor_parallel = {2};
  search::Kinds kinds =
      search::worker_kinds(problem.shape, problem.accelerators, space, search::roofline_models(problem.shape));
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  WINDLASS_ASSIGN_OR_RETURN(setting.lengths, sharegpt_lengths(data, kContextTokens));
  WINDLASS_ASSIGN_OR_RETURN(auto lengths, workload::LengthDistribution::empirical(setting.lengths));
  WINDLASS_ASSIGN_OR_RETURN(auto requests, search::DrawnRequests::make(std::move(lengths)));
  setting.requests = std::make_unique<search::DrawnRequests>(std::move(requests));
  problem.requests = setting.requests.get();
  problem.requests_per_s = 1;
  problem.objectives.both = sim::ServingObjectives{1, 0.1};
  problem.objectives.attainment = 0.9;
  problem.between_nodes = {25e9, 5e-6, 0, 0};  // RoCE, 200 Gbit/s
  problem.within_node = problem.between_nodes;
  return setting;
}

std::vector<TokenPair> draw(const Setting& setting, int count, std::uint64_t seed) {
  Rng rng(seed, "tetriinfer/burst");
  std::vector<TokenPair> requests;
  const auto last = static_cast<std::int64_t>(setting.lengths.size()) - 1;
  for (int i = 0; i < count; ++i) requests.push_back(setting.lengths[static_cast<std::size_t>(rng.integer(0, last))]);
  return requests;
}

Result<sim::ServingResult> run(const Problem& problem, const Deployment& deployment, std::vector<TokenPair> requests,
                               std::uint64_t seed, sim::ServingObserver* observer = nullptr) {
  sim::ServingOptions options;
  WINDLASS_ASSIGN_OR_RETURN(search::Served served, search::serving_service(problem, deployment));
  static_cast<sim::ServingService&>(options) = std::move(served.service);
  options.seed = seed;
  options.observer = observer;
  Burst source(std::move(requests));
  return sim::simulate_serving(source, options);
}

// The mean of one figure of a run over the seeds.
Result<double> mean(const Setting& setting, const Deployment& deployment, int requests, bool prefill_only,
                    double (*figure)(const sim::ServingResult&)) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    auto burst = draw(setting, requests, seed);
    for (TokenPair& pair : burst) pair.output_tokens = prefill_only ? 1 : pair.output_tokens;
    WINDLASS_ASSIGN_OR_RETURN(const auto result, run(setting.problem, deployment, std::move(burst), seed));
    sum += figure(result) / kSeeds;
  }
  return sum;
}

double ttft(const sim::ServingResult& result) { return result.ttft.mean_s; }
double jct(const sim::ServingResult& result) { return result.e2e.mean_s; }

// Fig. 16: only prefill, in chunks and in vLLM's fixed batches of 16.
Result<std::string> figure_sixteen(const Setting& setting) {
  constexpr int kRequests = 128;
  Deployment vllm;
  vllm.pools = {setting.problem.pool(0)};
  planner::EngineSettings& engine = vllm.pools[0].spec.engine;
  engine.batching = planner::Batching::kVllm;
  engine.max_sequences = 16;
  engine.max_batch_tokens = 16 * kContextTokens;
  std::string text =
      "| prefill | mean TTFT | less than vLLM's coupled batches of 16 | less than chunks, first come |\n|---|---:|---:|---:|\n";
  WINDLASS_ASSIGN_OR_RETURN(const double coupled, mean(setting, vllm, kRequests, false, ttft));
  WINDLASS_ASSIGN_OR_RETURN(const double alone, mean(setting, vllm, kRequests, true, ttft));
  const auto less = [](double now, double before) { return fmt::format("{:.1f} %", 100 * (1 - now / before)); };
  text += fmt::format("| vLLM, batches of 16, with their decodes | {:.2f} s | | |\n", coupled);
  text += fmt::format("| vLLM, batches of 16, prefill alone | {:.2f} s | {} | |\n", alone, less(alone, coupled));
  double first_come = 0;
  for (const auto& [order, window] : {std::pair(planner::PromptOrder::kArrival, 16),
                                      {planner::PromptOrder::kShortestFirst, 16},
                                      {planner::PromptOrder::kLongestFirst, 16},
                                      {planner::PromptOrder::kShortestFirst, 32},
                                      {planner::PromptOrder::kShortestFirst, 64},
                                      {planner::PromptOrder::kShortestFirst, 128}}) {
    TetriInferOptions options;
    options.prefill_sched_batch = window;
    TetriInferKnobs knobs;
    knobs.order = order;
    const Deployment split = search::tetriinfer_design(setting.problem, 0, 0, knobs, options).deploy({1, 1});
    WINDLASS_ASSIGN_OR_RETURN(const double chunked, mean(setting, split, kRequests, true, ttft));
    if (first_come == 0) first_come = chunked;
    text += fmt::format("| chunks of {}, {}, PrefillSchedBatch {} | {:.2f} s | {} | {} |\n",
                        split.pools[0].spec.engine.max_batch_tokens, planner::to_string(order), window, chunked,
                        less(chunked, coupled), less(chunked, first_come));
  }
  return text;
}

// Prefill takes no time, on the problem's last kind, so that only decode is studied.
Deployment decode_alone(const Problem& problem, const TetriInferKnobs& knobs, double accuracy, int workers) {
  TetriInferOptions options;
  options.prediction.accuracy = accuracy;
  options.flip.reset();
  Deployment deployment = search::tetriinfer_design(problem, 0, 0, knobs, options).deploy({1, workers});
  deployment.pools[0].spec = problem.pool(static_cast<int>(problem.kinds.size()) - 1).spec;
  deployment.pools[0].spec.engine.kv_blocks = 1'000'000;
  return deployment;
}

// Fig. 18: admission on one decode instance, 256 requests.
Result<std::string> figure_eighteen(const Setting& setting) {
  std::string text =
      "| admission | prediction right in | mean JCT | less than greedy | preemptions |\n|---|---:|---:|---:|---:|\n";
  double greedy = 0;
  for (const auto admission : planner::kAllDecodeAdmissions) {
    for (const double accuracy : {0.749, 1.0}) {
      if (admission == planner::DecodeAdmission::kGreedy && accuracy == 1) continue;
      TetriInferKnobs knobs;
      knobs.admission = admission;
      const Deployment deployment = decode_alone(setting.problem, knobs, accuracy, 1);
      WINDLASS_ASSIGN_OR_RETURN(const double took, mean(setting, deployment, 256, false, jct));
      WINDLASS_ASSIGN_OR_RETURN(const double preempted,
                                mean(setting, deployment, 256, false,
                                     [](const sim::ServingResult& result) { return static_cast<double>(result.preemptions); }));
      if (greedy == 0) greedy = took;
      const bool is_greedy = admission == planner::DecodeAdmission::kGreedy;
      text += fmt::format("| {} | {} | {:.1f} s | {} | {:.0f} |\n", planner::to_string(admission),
                          is_greedy ? std::string() : fmt::format("{:.1f} %", 100 * accuracy), took,
                          is_greedy ? std::string() : fmt::format("{:.1f} %", 100 * (1 - took / greedy)), preempted);
    }
  }
  return text;
}

// Records the placement of decodes.
class Places final : public sim::ServingObserver {
 public:
  explicit Places(int heavy_above) : heavy_above_(heavy_above) {}
  void on_request(const sim::ServedRequest& request) override {
    At& at = of_[request.decode_worker];
    ++(request.output_tokens > heavy_above_ ? at.heavy : at.light);
    at.end_s = std::max(at.end_s, request.arrival_s + request.e2e_s);
  }
  void on_sample(const sim::WorkerSample&) override {}

  struct At {
    int heavy = 0, light = 0;
    double end_s = 0;
  };
  [[nodiscard]] At slowest() const {
    At slowest;
    for (const auto& [worker, at] : of_) {
      if (at.end_s > slowest.end_s) slowest = at;
    }
    return slowest;
  }

 private:
  int heavy_above_;
  std::map<int, At> of_;
};

// Fig. 19: 32 requests for each of two to eight decode instances.
Result<std::string> figure_nineteen(const Setting& setting) {
  std::string text =
      "| decode instances | two-choice: total time | slowest: heavy, light | random: total time | slowest: heavy, light | "
      "imbalance: total time | slowest: heavy, light |\n|---:|---:|---|---:|---|---:|---|\n";
  constexpr int kHeavy = 128;
  for (const int workers : {2, 4, 6, 8}) {
    text += fmt::format("| {} |", workers);
    for (const char* policy : {"two-choice", "random", "imbalance"}) {
      double total_s = 0, heavy = 0, light = 0;
      for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        Deployment deployment = decode_alone(setting.problem, {}, 0.749, workers);
        const std::string name = policy;
        if (name != "two-choice") {
          deployment.dispatch.decode_choice = dispatch::DecodeChoice::kAtArrival;
          deployment.dispatch.policy = dispatch::PolicyKind::kRandom;
        }
        std::vector<TokenPair> burst = draw(setting, 32 * workers, seed);
        Places::At slowest;
        const auto add = [&](const Deployment& to, std::vector<TokenPair> requests) -> Result<void> {
          Places places(kHeavy);
          WINDLASS_ASSIGN_OR_RETURN(const auto result, run(setting.problem, to, std::move(requests), seed, &places));
          if (result.completed < result.requests) return Error{ErrorCode::kInternal, "Fig. 19: not all requests were served"};
          if (places.slowest().end_s > slowest.end_s) slowest = places.slowest();
          return {};
        };
        if (name == "imbalance") {
          // All heavy requests on one instance, the light ones on the others.
          const auto middle = std::stable_partition(burst.begin(), burst.end(),
                                                    [](const TokenPair& pair) { return pair.output_tokens > kHeavy; });
          deployment.pools[1].workers = 1;
          WINDLASS_RETURN_IF_ERROR(add(deployment, {burst.begin(), middle}));
          deployment.pools[1].workers = workers - 1;
          WINDLASS_RETURN_IF_ERROR(add(deployment, {middle, burst.end()}));
        } else {
          WINDLASS_RETURN_IF_ERROR(add(deployment, burst));
        }
        total_s += slowest.end_s / kSeeds;
        heavy += 1.0 * slowest.heavy / kSeeds;
        light += 1.0 * slowest.light / kSeeds;
      }
      text += fmt::format(" {:.1f} s | {:.1f}, {:.1f} |", total_s, heavy, light);
    }
    text += "\n";
  }
  return text;
}

// The strategy's choice, compared with workers that do both phases.
Result<std::string> plans(const std::string& data, Executor& executor) {
  std::string text =
      "| requests/s | prefill | decode | policies | GPUs | unified workers | GPUs |\n|---:|---:|---:|---|---:|---:|---:|\n";
  for (const double rate : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    WINDLASS_ASSIGN_OR_RETURN(Setting setting, setting_of(data));
    setting.problem.requests_per_s = rate;
    setting.problem.requests_per_trial = 1000;
    search::Effort effort;
    effort.executor = &executor;
    WINDLASS_ASSIGN_OR_RETURN(const search::Offer plan, search::tetriinfer_plan(setting.problem, effort));
    WINDLASS_ASSIGN_OR_RETURN(
        const search::Offer unified,
        search::plan_of_designs(setting.problem, effort, {}, "unified", {search::baseline_design(setting.problem, 0)}));
    const Deployment& of = plan.deployment;
    text += fmt::format(
        "| {:.0f} | {} | {} | chunks of {}, {}, {}, {} | {}{} | {} | {}{} |\n", rate, of.pools[0].workers, of.pools[1].workers,
        of.pools[0].spec.engine.max_batch_tokens, planner::to_string(of.pools[0].spec.engine.prompt_order),
        planner::to_string(of.pools[1].spec.engine.admission),
        of.dispatch.decode_choice == dispatch::DecodeChoice::kTwoChoice ? "two-choice" : "at-arrival", plan.gpus,
        plan.holds ? "" : " (misses)", unified.deployment.pools[0].workers, unified.gpus, unified.holds ? "" : " (misses)");
  }
  return text;
}

Result<std::string> figures_eleven_to_fifteen(const Setting& setting) {
  WINDLASS_ASSIGN_OR_RETURN(const auto found, compare_tetriinfer(setting.lengths));
  std::string text =
      "| workload | TTFT less by: paper | ours | JCT less by: paper | ours | resource time less by: paper | ours | perf/$: "
      "paper "
      "| ours |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (std::size_t i = 0; i < found.size(); ++i) {
    const TetriInferWorkload& paper = tetriinfer_workloads()[i];
    const TetriInferComparison& here = found[i];
    text += fmt::format("| {} | {} | {:.0f} % | {:.0f} % | {:.0f} % | {:.0f} % | {:.0f} % | {:.2f} | {:.2f} |\n", paper.name,
                        paper.paper_ttft < 0 ? "more than HPLD" : fmt::format("{:.0f} %", 100 * paper.paper_ttft),
                        100 * here.ttft_less(), 100 * paper.paper_jct, 100 * here.jct_less(), 100 * paper.paper_resource,
                        100 * here.resource_less(), paper.paper_perf_per_dollar, here.perf_per_dollar());
  }
  return text;
}

}  // namespace

Result<std::vector<PlannerTable>> tetriinfer_tables(const std::string& data, Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const Setting setting, setting_of(data));
  std::vector<PlannerTable> tables;
  WINDLASS_ASSIGN_OR_RETURN(const std::string eleven, figures_eleven_to_fifteen(setting));
  tables.push_back({"tetriinfer-11", eleven});
  WINDLASS_ASSIGN_OR_RETURN(const std::string sixteen, figure_sixteen(setting));
  tables.push_back({"tetriinfer-16", sixteen});
  WINDLASS_ASSIGN_OR_RETURN(Setting decoding, setting_of(data));
  search::add_instant_kind(decoding.problem);
  WINDLASS_ASSIGN_OR_RETURN(const std::string eighteen, figure_eighteen(decoding));
  tables.push_back({"tetriinfer-18", eighteen});
  WINDLASS_ASSIGN_OR_RETURN(const std::string nineteen, figure_nineteen(decoding));
  tables.push_back({"tetriinfer-19", nineteen});
  WINDLASS_ASSIGN_OR_RETURN(const std::string chosen, plans(data, executor));
  tables.push_back({"tetriinfer-plans", chosen});
  return tables;
}

}  // namespace windlass::bench
