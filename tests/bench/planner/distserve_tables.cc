// DistServe's Fig. 8 and 11 and Table 2 (Zhong et al., OSDI 2024, Section 6) on the authors' profile files: goodput per GPU of
// colocated vLLM and of DistServe's placements with their parallelism, attainment by rate, and the simulator's results at the
// rates of Table 2. Fig. 12, the running time, is in distserve_benchmark.cc.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/distserve/distserve.h"
#include "planner/strategies/distserve/distserve_search.h"
#include "tests/bench/planner/distserve_measured.h"
#include "tests/bench/planner/distserve_setting.h"
#include "tests/bench/planner/experiments.h"

namespace windlass::bench {
namespace {

using search::Deployment;
using search::DistServeChoice;
using search::NodeAffinity;
using search::Problem;

constexpr std::int64_t kRequests = 4000;  // per probe, before finals
constexpr int kFinals = search::DistServeOptions().finals;
constexpr int kVllmBatchTokens = 2560;  // vLLM's default in 2023
constexpr double kBelowTheEdge = 0.9;   // share of vLLM's goodput: at the goodput itself other seeds fail
constexpr double kFastNetwork_bytes_per_s = 800e9 / 8;
constexpr std::array kModels = {"opt-13b", "opt-66b"};

std::string parallelism(const search::WorkerKind& kind) {
  return fmt::format("TP {}{}", kind.tensor_parallel,
                     kind.pipeline_stages > 1 ? fmt::format(" x PP {}", kind.pipeline_stages) : "");
}

const search::WorkerKind& kind_at(const Problem& problem, int index) { return problem.kinds[static_cast<std::size_t>(index)]; }

Deployment colocated(const Problem& problem, int kind) {
  planner::EngineSettings engine = planner::with_defaults_of(planner::Batching::kVllm);
  engine.max_batch_tokens = kVllmBatchTokens;
  return search::unified(problem, kind, engine, 1);
}

// One system: its deployment and its rate per GPU.
struct System {
  std::string name;
  std::string parallelism;
  const Problem* problem = nullptr;
  Deployment deployment;
  double per_gpu_s = 0;
};

// vLLM with the parallelism of its own paper, or, if that is 0, with the best one (vLLM++).
Result<System> vllm(const Problem& problem, int tensor_parallel, Executor& executor) {
  std::vector<search::Unit> units;
  std::vector<int> kinds;
  for (int kind = 0; kind < static_cast<int>(problem.kinds.size()); ++kind) {
    const search::WorkerKind& of = kind_at(problem, kind);
    if (tensor_parallel > 0 && (of.tensor_parallel != tensor_parallel || of.pipeline_stages != 1)) continue;
    units.push_back({&problem, colocated(problem, kind), static_cast<double>(of.gpus()), static_cast<double>(of.gpus()), 1e3});
    kinds.push_back(kind);
  }
  search::Effort effort;
  effort.executor = &executor;
  WINDLASS_ASSIGN_OR_RETURN(
      const auto found,
      search::search_units({units}, {.requests = kRequests, .seed = problem.seed, .finals = kFinals}, effort));
  System system{tensor_parallel > 0 ? "vLLM" : "vLLM++", "", &problem, colocated(problem, kinds.front()), 0};
  system.parallelism = parallelism(kind_at(problem, kinds.front()));
  if (const auto best = found.families[0].best) {
    system.deployment = units[*best].deployment;
    system.parallelism = parallelism(kind_at(problem, kinds[*best]));
    system.per_gpu_s = found.families[0].goodputs[*best].requests_per_s / units[*best].worth;
  }
  return system;
}

// Numbers of instances of both phases that make their goodputs about equal.
std::pair<int, int> even_counts(const DistServeChoice& choice) {
  constexpr int kMost = 5;
  std::pair<int, int> best{1, 1};
  double nearest = std::numeric_limits<double>::infinity();
  for (int prefill = 1; prefill <= kMost; ++prefill) {
    for (int decode = 1; decode <= kMost; ++decode) {
      const double apart = std::abs(std::log(prefill * choice.prefill_per_s / (decode * choice.decode_per_s)));
      if (apart < nearest - 1e-9) {
        nearest = apart;
        best = {prefill, decode};
      }
    }
  }
  return best;
}

Result<System> distserve(const Problem& problem, NodeAffinity affinity, std::string name, Executor& executor) {
  search::Effort effort;
  effort.executor = &executor;
  search::DistServeOptions options;
  options.affinity = affinity;
  options.requests_per_probe = kRequests;
  WINDLASS_ASSIGN_OR_RETURN(const auto choice, search::distserve_choice(problem, effort, options));
  const search::WorkerKind &prefill = kind_at(problem, choice.prefill_kind), &decode = kind_at(problem, choice.decode_kind);
  System system{std::move(name), parallelism(prefill) + ", " + parallelism(decode), &problem, choice.one,
                choice.goodput_per_worth(prefill.gpus(), decode.gpus())};
  if (affinity == NodeAffinity::kLow || !(choice.prefill_per_s > 0 && choice.decode_per_s > 0)) return system;
  const auto [prefills, decodes] = even_counts(choice);
  system.deployment.pools[0].workers = prefills;
  system.deployment.pools[1].workers = decodes;
  system.parallelism = fmt::format("{} x {}, {} x {}", prefills, parallelism(prefill), decodes, parallelism(decode));
  return system;
}

// Share of requests that meet the objectives, scaled by `scale`; only_ttft and only_tpot ignore the other objective.
struct Attained {
  double both = 0, only_ttft = 0, only_tpot = 0;
};
Result<Attained> attained(const System& system, double per_gpu_s, double scale = 1) {
  const double rate = per_gpu_s * gpus_of(system.deployment);
  constexpr double kAny_s = std::numeric_limits<double>::infinity();
  const auto share = [&](bool ttft, bool tpot) -> Result<double> {
    Problem problem = *system.problem;
    const sim::ServingObjectives& both = *system.problem->objectives.both;
    problem.objectives.both = sim::ServingObjectives{ttft ? scale * both.ttft_s : kAny_s, tpot ? scale * both.tpot_s : kAny_s};
    WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem, system.deployment, {rate, kRequests, problem.seed + 1}));
    return result.attainment;
  };
  Attained result;
  WINDLASS_ASSIGN_OR_RETURN(result.both, share(true, true));
  WINDLASS_ASSIGN_OR_RETURN(result.only_ttft, share(true, false));
  WINDLASS_ASSIGN_OR_RETURN(result.only_tpot, share(false, true));
  return result;
}

// The tightest objectives, as a multiple of the problem's, that the system meets at this rate; 0: none up to the largest tried.
Result<double> tightest(const System& system, double per_gpu_s) {
  constexpr double kMost = 8;
  double low = 0.02, high = kMost;
  while (high / low > 1.02) {
    const double scale = std::sqrt(low * high);
    WINDLASS_ASSIGN_OR_RETURN(const Attained found, attained(system, per_gpu_s, scale));
    (found.both >= system.problem->objectives.attainment ? high : low) = scale;
  }
  return high < kMost ? high : 0;
}

struct Paper {
  const char* factor;
  const char* parallelism;
};

// A system's figures in the paper's text and in its published validation run.
Paper paper(const std::string& model, const std::string& system) {
  if (system == "vLLM") return {"1", model == "opt-13b" ? "TP 1" : "TP 4"};
  if (system == "vLLM++") return {model == "opt-13b" ? "1 (Fig. 11)" : "", model == "opt-13b" ? "TP 1" : ""};
  if (system == "DistServe-Low") return {"2.0 to 3.41 (Fig. 8)", model == "opt-13b" ? "TP 2, TP 1" : ""};
  if (system == "DistServe-High") return {"above DistServe-Low (Fig. 11)", ""};
  return {"", ""};
}

// All systems of a model. Keeps pointers into the settings.
struct Systems {
  DistServeSetting own, fast, as_vllm;
  std::vector<System> all;
};

Result<void> find_systems(const std::string& data, const std::string& model, DistServeLengths lengths, Systems& systems,
                          Executor& executor) {
  DistServeSpec spec;
  spec.model = model;
  spec.lengths = lengths;
  WINDLASS_ASSIGN_OR_RETURN(systems.own, distserve_setting(data, spec));
  WINDLASS_ASSIGN_OR_RETURN(systems.fast, distserve_setting(data, spec));
  systems.fast.problem.between_nodes.bandwidth_bytes_per_s = kFastNetwork_bytes_per_s;
  spec.engine = ProfiledEngine::kVllm;
  WINDLASS_ASSIGN_OR_RETURN(systems.as_vllm, distserve_setting(data, spec));
  const auto add = [&](Result<System> system) -> Result<void> {
    if (!system.ok()) return system.error();
    systems.all.push_back(std::move(system).value());
    return {};
  };
  WINDLASS_RETURN_IF_ERROR(add(vllm(systems.as_vllm.problem, model == std::string("opt-13b") ? 1 : 4, executor)));
  WINDLASS_RETURN_IF_ERROR(add(vllm(systems.as_vllm.problem, 0, executor)));
  WINDLASS_RETURN_IF_ERROR(add(distserve(systems.own.problem, NodeAffinity::kLow, "DistServe-Low", executor)));
  WINDLASS_RETURN_IF_ERROR(add(distserve(systems.fast.problem, NodeAffinity::kHigh, "DistServe-High", executor)));
  WINDLASS_RETURN_IF_ERROR(
      add(distserve(systems.as_vllm.problem, NodeAffinity::kLow, "DistServe-Low, vLLM's latencies", executor)));
  return {};
}

Result<std::string> goodput_rows(const std::string& model, const char* lengths, const Systems& systems) {
  std::string text;
  const double vllm_s = systems.all.front().per_gpu_s;
  for (const System& system : systems.all) {
    std::string scale;
    if (vllm_s > 0 && system.per_gpu_s > 0) {
      WINDLASS_ASSIGN_OR_RETURN(const double tightest_scale, tightest(system, kBelowTheEdge * vllm_s));
      scale = tightest_scale > 0 ? fmt::format("{:.2f} x", tightest_scale) : "none";
    }
    const Paper told = paper(model, system.name);
    text +=
        fmt::format("| {} | {} | {} | {} | {:.3f} | {} | {} | {} | {} |\n", model, lengths, system.name,
                    system.per_gpu_s > 0 ? system.parallelism : "", system.per_gpu_s,
                    vllm_s > 0 ? fmt::format("{:.2f}", system.per_gpu_s / vllm_s) : "", scale, told.parallelism, told.factor);
  }
  return text;
}

Result<std::string> attainment_rows(const std::string& model, const Systems& systems) {
  std::string text;
  const double most = systems.all[2].per_gpu_s;
  for (const double share : {0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5}) {
    const double rate = share * most;
    text += fmt::format("| {} | {:.2f} |", model, rate);
    for (const std::size_t at : {std::size_t{0}, std::size_t{2}, std::size_t{3}}) {
      WINDLASS_ASSIGN_OR_RETURN(const Attained found, attained(systems.all[at], rate));
      text += at == 3 ? fmt::format(" {:.1f} % |", 100 * found.both)
                      : fmt::format(" {:.1f} % | {:.1f} % | {:.1f} % |", 100 * found.both, 100 * found.only_ttft,
                                    100 * found.only_tpot);
    }
    text += '\n';
  }
  return text;
}

// The requests of the authors' run at the times at which they were sent.
class MeasuredSource final : public workload::RequestSource {
 public:
  MeasuredSource() : requests_(kDistServeMeasured) {
    std::sort(requests_.begin(), requests_.end(), [](const auto& a, const auto& b) { return a.issued_s < b.issued_s; });
  }
  [[nodiscard]] std::optional<workload::Request> next() override {
    if (at_ == requests_.size()) return std::nullopt;
    const MeasuredRequest& from = requests_[at_++];
    return workload::Request{
        .arrival_s = from.issued_s, .input_tokens = from.input_tokens, .output_tokens = from.output_tokens};
  }

 private:
  std::array<MeasuredRequest, 100> requests_;
  std::size_t at_ = 0;
};

struct RunFigures {
  std::vector<double> ttft_s, tpot_s;
  int inside = 0;

  void add(double ttft, double tpot, const sim::ServingObjectives& objectives) {
    ttft_s.push_back(ttft);
    tpot_s.push_back(tpot);
    inside += ttft <= objectives.ttft_s && tpot <= objectives.tpot_s ? 1 : 0;
  }
};

class Collect final : public sim::ServingObserver {
 public:
  Collect(RunFigures& into, const sim::ServingObjectives& objectives) : into_(into), objectives_(objectives) {}
  void on_request(const sim::ServedRequest& request) override { into_.add(request.ttft_s, request.tbt_s, objectives_); }
  void on_sample(const sim::WorkerSample&) override {}

 private:
  RunFigures& into_;
  const sim::ServingObjectives& objectives_;
};

std::string run_row(const char* name, RunFigures figures) {
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  const auto quantile = [](std::vector<double>& values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1];
  };
  return fmt::format("| {} | {:.0f} ms | {:.0f} ms | {:.0f} ms | {:.1f} ms | {:.1f} ms | {:.1f} ms | {} % |\n", name,
                     1e3 * mean(figures.ttft_s), 1e3 * quantile(figures.ttft_s, 0.5), 1e3 * quantile(figures.ttft_s, 0.9),
                     1e3 * mean(figures.tpot_s), 1e3 * quantile(figures.tpot_s, 0.5), 1e3 * quantile(figures.tpot_s, 0.9),
                     figures.inside);
}

// The simulator against a measured run: the same requests at the same times.
Result<std::string> measured_rows(const System& vllm) {
  const sim::ServingObjectives& objectives = *vllm.problem->objectives.both;
  RunFigures measured, simulated;
  for (const MeasuredRequest& request : kDistServeMeasured) {
    measured.add(request.ttft_ms / 1e3, request.tpot_ms / 1e3, objectives);
  }
  sim::ServingOptions options;
  WINDLASS_ASSIGN_OR_RETURN(search::Served served, search::serving_service(*vllm.problem, vllm.deployment));
  static_cast<sim::ServingService&>(options) = std::move(served.service);
  Collect collect(simulated, objectives);
  options.observer = &collect;
  MeasuredSource source;
  WINDLASS_ASSIGN_OR_RETURN(const auto result, sim::simulate_serving(source, options));
  if (result.completed != result.requests) return Error{ErrorCode::kInternal, "a measured request does not fit"};
  return run_row("measured", std::move(measured)) + run_row("simulated", std::move(simulated));
}

// Runs of 100 s, as in the names of the authors' files, with different seeds.
Result<double> attained_in_short_runs(const System& system, double per_gpu_s) {
  constexpr double kRun_s = 100;
  constexpr int kRuns = 20;
  const double rate = per_gpu_s * gpus_of(system.deployment);
  double sum = 0;
  for (std::uint64_t run = 1; run <= kRuns; ++run) {
    WINDLASS_ASSIGN_OR_RETURN(const auto result,
                              try_out(*system.problem, system.deployment, {rate, std::llround(kRun_s * rate), run}));
    sum += result.attainment;
  }
  return sum / kRuns;
}

// Table 2: OPT-13B; in the authors' validation run DistServe had TP 2 for prefills and TP 1 for decodes.
Result<std::string> accuracy_rows(const char* lengths, const Systems& systems) {
  struct Row {
    double per_gpu_s, vllm_real, vllm_simulated, split_real, split_simulated;
  };
  constexpr std::array kRows = {Row{1.0, 97.0, 96.8, 100.0, 100.0}, Row{1.5, 65.5, 65.1, 100.0, 100.0},
                                Row{2.0, 52.8, 51.0, 99.3, 99.3},   Row{2.5, 44.9, 46.1, 87.3, 88.3},
                                Row{3.0, 36.7, 38.3, 83.0, 84.1},   Row{3.5, 27.8, 28.0, 77.3, 77.0},
                                Row{4.0, 23.6, 24.1, 70.0, 68.9}};
  System split = systems.all[2];
  split.deployment.pools[0].spec.tensor_parallel = 2;
  split.deployment.pools[1].spec.tensor_parallel = 1;
  for (planner::Pool& pool : split.deployment.pools) pool.spec.pipeline_stages = 1;
  std::string text;
  for (const Row& row : kRows) {
    WINDLASS_ASSIGN_OR_RETURN(const double colocated, attained_in_short_runs(systems.all[0], row.per_gpu_s));
    WINDLASS_ASSIGN_OR_RETURN(const double pair, attained_in_short_runs(split, row.per_gpu_s));
    text += fmt::format("| {} | {:.1f} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % |\n", lengths,
                        row.per_gpu_s, row.vllm_real, row.vllm_simulated, 100 * colocated, row.split_real, row.split_simulated,
                        100 * pair);
  }
  return text;
}

// How much the choice and its goodput depend on the seed.
Result<std::string> seed_rows(const std::string& data, const std::string& model, Executor& executor) {
  constexpr std::uint64_t kSeeds = 10;
  WINDLASS_ASSIGN_OR_RETURN(DistServeSetting setting, distserve_setting(data, {.model = model}));
  Problem& problem = setting.problem;
  search::Effort effort;
  effort.executor = &executor;
  std::string text;
  for (const auto& [affinity, name] : {std::pair(NodeAffinity::kLow, "low"), {NodeAffinity::kHigh, "high"}}) {
    for (const auto& [requests, finals] : {std::pair(300, 0), {2000, 0}, {2000, 2}}) {
      std::vector<double> goodputs;
      std::map<std::string, int> choices;
      std::int64_t iterations = 0;
      for (problem.seed = 1; problem.seed <= kSeeds; ++problem.seed) {
        search::DistServeOptions options;
        options.affinity = affinity;
        options.requests_per_probe = requests;
        options.finals = finals;
        WINDLASS_ASSIGN_OR_RETURN(const auto choice, search::distserve_choice(problem, effort, options));
        const search::WorkerKind &prefill = kind_at(problem, choice.prefill_kind),
                                 &decode = kind_at(problem, choice.decode_kind);
        goodputs.push_back(choice.goodput_per_worth(prefill.gpus(), decode.gpus()));
        iterations += choice.iterations;
        ++choices[parallelism(prefill) + ", " + parallelism(decode)];
      }
      const auto [low, high] = std::minmax_element(goodputs.begin(), goodputs.end());
      const auto most =
          std::max_element(choices.begin(), choices.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      text += fmt::format("| {} | {} | {} | {} | {:.2f} to {:.2f} | {} | {} of {} | {:.2f} |\n", model, name, requests, finals,
                          *low, *high, most->first, most->second, kSeeds, static_cast<double>(iterations) / kSeeds / 1e6);
    }
  }
  return text;
}

}  // namespace

Result<std::vector<PlannerTable>> distserve_tables(const std::string& data, Executor& executor) {
  std::string goodput =
      "| model | lengths | system | parallelism: prefill, decode | requests/s a GPU | over vLLM | tightest objectives near "
      "vLLM's "
      "rate | the paper's parallelism | the paper's factor |\n|---|---|---|---|---:|---:|---:|---|---|\n";
  std::string attainment =
      "| model | requests/s a GPU | vLLM | TTFT | TPOT | DistServe-Low | TTFT | TPOT | DistServe-High |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  std::string accuracy =
      "| our lengths | requests/s a GPU | vLLM, the paper's system | its simulator | ours | DistServe-Low, the paper's system "
      "| its "
      "simulator | ours |\n|---|---:|---:|---:|---:|---:|---:|---:|\n";
  std::string measured =
      "| vLLM, OPT-13B, one A100 | TTFT, mean | P50 | P90 | TPOT, mean | P50 | P90 | inside 0.2 s and 0.1 s |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|\n";
  std::string seeds =
      "| model | node affinity | requests a probe | finals | requests/s a GPU, over seeds | most frequent choice: prefill, "
      "decode | "
      "seeds that choose it | million iterations |\n|---|---|---:|---:|---|---|---:|---:|\n";
  for (const char* model : kModels) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string by_seed, seed_rows(data, model, executor));
    seeds += by_seed;
    for (const DistServeLengths lengths : {DistServeLengths::kShareGpt, DistServeLengths::kMeasured}) {
      const bool sharegpt = lengths == DistServeLengths::kShareGpt, small = model == std::string("opt-13b");
      const char* name = sharegpt ? "ShareGPT" : "the authors' run";
      Systems systems;
      WINDLASS_RETURN_IF_ERROR(find_systems(data, model, lengths, systems, executor));
      WINDLASS_ASSIGN_OR_RETURN(const std::string goodputs, goodput_rows(model, name, systems));
      goodput += goodputs;
      if (sharegpt) {
        WINDLASS_ASSIGN_OR_RETURN(const std::string attainments, attainment_rows(model, systems));
        attainment += attainments;
      }
      if (small) {
        WINDLASS_ASSIGN_OR_RETURN(const std::string rows, accuracy_rows(name, systems));
        accuracy += rows;
      }
      if (small && !sharegpt) {
        WINDLASS_ASSIGN_OR_RETURN(const std::string rows, measured_rows(systems.all.front()));
        measured += rows;
      }
    }
  }
  return std::vector<PlannerTable>{{"distserve-goodput", goodput},
                                   {"distserve-attainment", attainment},
                                   {"distserve-accuracy", accuracy},
                                   {"distserve-measured", measured},
                                   {"distserve-seeds", seeds}};
}

}  // namespace windlass::bench
