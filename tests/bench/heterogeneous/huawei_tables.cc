// Huawei's results (Xiong et al. 2025): the order of the degrees of tensor parallelism (Fig. 4), its scheduler beside the
// paper's other rules on two unlike instances (Fig. 5) and on two machines (Fig. 6), and its mapping beside the best of all.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/rng.h"
#include "planner/search/drawn_requests.h"
#include "tests/bench/fidelity/orderings.h"
#include "tests/bench/heterogeneous/experiments.h"
#include "tests/bench/heterogeneous/huawei_mapping.h"
#include "tests/bench/heterogeneous/huawei_setting.h"

namespace windlass::bench {
namespace {

using dispatch::PolicyKind;
using workload::TokenPair;

constexpr std::array kDegrees = {1, 2, 4, 8};

// ---- Fig. 4: which degree ----

struct RankingRow {
  std::string what;
  HuaweiRoofline roofline;
};

std::string order_of(const std::vector<double>& by_degree) {
  std::vector<std::size_t> order(by_degree.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return by_degree[a] > by_degree[b]; });
  std::vector<int> degrees;
  for (const std::size_t i : order) degrees.push_back(kDegrees[i]);
  return fmt::format("{}", fmt::join(degrees, " > "));
}

// Alg. 1's tokens/s of the machine by degree, on 200 requests of the seed.
Result<std::vector<double>> estimated(const HuaweiRoofline& roofline, const workload::LengthDistribution& lengths,
                                      std::uint64_t seed) {
  WINDLASS_ASSIGN_OR_RETURN(const auto requests, search::DrawnRequests::make(lengths));
  search::Problem problem;
  problem.name = "8 x V100";
  WINDLASS_ASSIGN_OR_RETURN(problem.shape, planner::model_shape_by_name("llama3-8b"));
  problem.requests = &requests;
  problem.requests_per_s = 1;
  problem.seed = seed;
  hetero::ClusterProblem asked{&problem, {}};
  asked.cluster.nodes = {v100_machine(roofline)};
  hetero::HuaweiOptions options;
  options.times_of = hetero::roofline_batch_times(problem.shape, roofline.overhead());
  WINDLASS_ASSIGN_OR_RETURN(const auto found, hetero::search_tensor_parallel(asked, {}, options));
  std::vector<double> tokens_per_s;
  for (const auto& option : found.machines.front().options) tokens_per_s.push_back(option.tokens_per_s());
  return tokens_per_s;
}

// The paper's measurement: 1,000 requests eight times each, all at once, dealt out to the instances in turn.
Result<double> simulated(const HuaweiRoofline& roofline, const workload::LengthDistribution& lengths, std::uint64_t seed,
                         int degree, double scale) {
  WINDLASS_ASSIGN_OR_RETURN(const auto shape, planner::model_shape_by_name("llama3-8b"));
  std::vector<std::shared_ptr<const planner::IterationModel>> models;
  WINDLASS_ASSIGN_OR_RETURN(auto options,
                            huawei_service(shape, roofline, {{"v100", v100_machine(roofline), degree, 8 / degree}}, models));
  options.dispatch = PolicyKind::kRoundRobin;
  Rng rng(seed, "requests");
  std::vector<TokenPair> requests;
  double tokens = 0;
  for (int i = 0; i < static_cast<int>(1000 * scale); ++i) {
    const TokenPair pair = lengths.draw(rng);
    for (int copy = 0; copy < 8; ++copy) requests.push_back(pair);
    tokens += 8.0 * (pair.input_tokens + pair.output_tokens);
  }
  Burst burst(std::move(requests));
  WINDLASS_ASSIGN_OR_RETURN(const auto result, sim::simulate_serving(burst, options));
  return tokens / result.simulated_s;
}

Result<std::string> ranking(const workload::LengthDistribution& lengths, Executor& executor, double scale) {
  std::vector<RankingRow> rows;
  for (const double link : {8e9, 16e9, 150e9}) {
    for (const double hop_s : {2e-6, 10e-6}) {
      for (const double iteration_s : {0.0, 5e-3, 10e-3}) {
        HuaweiRoofline roofline;
        roofline.link_bytes_per_s = link;
        roofline.hop_s = hop_s;
        roofline.iteration_s = iteration_s;
        if (iteration_s == 0) roofline.sequence_s = 0;
        rows.push_back(
            {fmt::format("{:.0f} GB/s | {:.0f} us | {:.0f} ms", link / 1e9, hop_s * 1e6, iteration_s * 1e3), roofline});
      }
    }
  }
  constexpr std::array<std::uint64_t, 2> kSeeds = {1, 2};
  struct Cells {
    std::vector<Result<std::vector<double>>> estimates;
    std::vector<Result<double>> served;
  };
  std::vector<Cells> cells(rows.size());
  executor.run(rows.size(), [&](std::size_t i) {
    for (const std::uint64_t seed : kSeeds) cells[i].estimates.push_back(estimated(rows[i].roofline, lengths, seed));
    for (const int degree : kDegrees) cells[i].served.push_back(simulated(rows[i].roofline, lengths, 1, degree, scale));
  });
  std::string text =
      "| link of a GPU | a hop | engine, an iteration | Alg. 1, tokens/s at t = 1, 2, 4, 8 | its order | other sample | "
      "simulated, "
      "tokens/s | its order |\n|---|---|---|---|---|---|---|---|\n| *the paper* | | | | 2 > 4 > 1 > 8 | 2 > 4 > 1 > 8 | | 2 > "
      "4 > "
      "1 > 8 |\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<double> served;
    for (const auto& of : cells[i].served) {
      if (!of.ok()) return of.error();
      served.push_back(*of);
    }
    for (const auto& of : cells[i].estimates) {
      if (!of.ok()) return of.error();
    }
    const auto& first = *cells[i].estimates[0];
    text += fmt::format("| {} | {:.0f} | {} | {} | {:.0f} | {} |\n", rows[i].what, fmt::join(first, ", "), order_of(first),
                        order_of(*cells[i].estimates[1]), fmt::join(served, ", "), order_of(served));
  }
  return text;
}

// ---- Fig. 5 and 6: which instance ----

struct Rule {
  const char* name;
  PolicyKind policy;
  enum class Outputs { kDrawn, kLearned, kKnown } outputs = Outputs::kDrawn;
  bool papers = true;
};

constexpr Rule kRules[] = {
    {"round robin (RR)", PolicyKind::kRoundRobin},
    {"single instance (SI)", PolicyKind::kSingleInstance},
    {"memory-based (MB)", PolicyKind::kMemoryBased},
    {"the scheduler (OS)", PolicyKind::kHuawei},
    {"weighted round robin (WRR)", PolicyKind::kWeightedRoundRobin},
    {"OS, outputs from history", PolicyKind::kHuawei, Rule::Outputs::kLearned, false},
    {"OS, outputs known", PolicyKind::kHuawei, Rule::Outputs::kKnown, false},
    {"JSQ", PolicyKind::kJsq, Rule::Outputs::kDrawn, false},
    {"JFFC", PolicyKind::kJffc, Rule::Outputs::kDrawn, false},
};

// When the last request of each pool ended.
class LastEnds final : public sim::ServingObserver {
 public:
  explicit LastEnds(const std::vector<sim::ServingPool>& pools) : ends_s_(pools.size()) {
    for (std::size_t pool = 0; pool < pools.size(); ++pool)
      pool_of_.insert(pool_of_.end(), static_cast<std::size_t>(pools[pool].workers), pool);
  }
  void on_request(const sim::ServedRequest& request) override {
    if (request.decode_worker < 0) return;
    double& end_s = ends_s_[pool_of_[static_cast<std::size_t>(request.decode_worker)]];
    end_s = std::max(end_s, request.arrival_s + request.e2e_s);
  }
  void on_sample(const sim::WorkerSample& /*sample*/) override {}
  [[nodiscard]] const std::vector<double>& ends_s() const { return ends_s_; }

 private:
  std::vector<std::size_t> pool_of_;  // of a worker
  std::vector<double> ends_s_;
};

struct Fleet {
  std::string table;
  planner::ModelShape shape;
  std::vector<HuaweiInstances> instances;
  std::vector<double> rates;  // infinite: all at once
  int requests = 4000;
};

struct Served {
  double tokens_per_s = 0;
  std::vector<double> ends_s;
};

Result<Served> serve(const Fleet& fleet, const workload::LengthDistribution& lengths, const Rule& rule, double rate,
                     std::uint64_t seed, double scale) {
  std::vector<std::shared_ptr<const planner::IterationModel>> models;
  WINDLASS_ASSIGN_OR_RETURN(auto options, huawei_service(fleet.shape, {}, fleet.instances, models));
  options.dispatch = rule.policy;
  options.placement.learns_lengths = rule.outputs != Rule::Outputs::kKnown;
  // The authors' predictor: normal, with mean and deviation of a sample of the data.
  Rng rng(seed, "predictor's sample");
  double sum = 0, squares = 0;
  constexpr int kSample = 1000;
  for (int i = 0; i < kSample; ++i) {
    const double output = lengths.draw(rng).output_tokens;
    sum += output;
    squares += output * output;
  }
  const double mean = sum / kSample;
  if (rule.outputs == Rule::Outputs::kDrawn) {
    options.huawei.drawn_outputs =
        dispatch::HuaweiRules::NormalOutputs{mean, std::sqrt(std::max(0.0, squares / kSample - mean * mean))};
  }
  options.huawei.assumed_output_tokens = mean;
  LastEnds ends(options.pools);
  options.observer = &ends;
  options.seed = seed;
  const int count = static_cast<int>(fleet.requests * scale);
  // The same requests in each row and at each rate.
  Rng draws(seed, "requests");
  std::vector<TokenPair> requests;
  double tokens = 0;
  for (int i = 0; i < count; ++i) {
    requests.push_back(lengths.draw(draws));
    tokens += static_cast<double>(requests.back().input_tokens) + requests.back().output_tokens;
  }
  class Arriving final : public workload::RequestSource {
   public:
    Arriving(std::vector<TokenPair> requests, double rate, std::uint64_t seed)
        : requests_(std::move(requests)), rate_(rate), rng_(seed, "arrivals") {}
    std::optional<workload::Request> next() override {
      if (at_ == requests_.size()) return std::nullopt;
      if (std::isfinite(rate_)) now_s_ += rng_.exponential(rate_);
      workload::Request request;
      request.arrival_s = now_s_;
      request.input_tokens = requests_[at_].input_tokens;
      request.output_tokens = requests_[at_++].output_tokens;
      return request;
    }

   private:
    std::vector<TokenPair> requests_;
    double rate_;
    Rng rng_;
    std::size_t at_ = 0;
    double now_s_ = 0;
  };
  Arriving source(std::move(requests), rate, seed);
  WINDLASS_ASSIGN_OR_RETURN(const auto result, sim::simulate_serving(source, options));
  if (result.completed != count) {
    return Error{ErrorCode::kInternal, fmt::format("{}: {} of {} requests were served", rule.name, result.completed, count)};
  }
  return Served{tokens / *std::max_element(ends.ends_s().begin(), ends.ends_s().end()), ends.ends_s()};
}

constexpr int kSeeds = 3;

Result<std::string> scheduling(const Fleet& fleet, const workload::LengthDistribution& lengths, Executor& executor,
                               double scale) {
  const std::size_t rules = std::size(kRules), rates = fleet.rates.size();
  std::vector<std::vector<Result<Served>>> served(rules * rates);
  executor.run(served.size(), [&](std::size_t i) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      served[i].push_back(serve(fleet, lengths, kRules[i / rates], fleet.rates[i % rates], seed, scale));
    }
  });
  std::vector<double> tokens_per_s(served.size(), 0);
  std::vector<std::vector<double>> ends_s(served.size(), std::vector<double>(fleet.instances.size(), 0));
  for (std::size_t i = 0; i < served.size(); ++i) {
    for (const auto& of : served[i]) {
      if (!of.ok()) return of.error();
      tokens_per_s[i] += of->tokens_per_s / kSeeds;
      for (std::size_t pool = 0; pool < ends_s[i].size(); ++pool) ends_s[i][pool] += of->ends_s[pool] / kSeeds;
    }
  }
  std::string text = "| requests to |";
  std::string line = "\n|---|";
  for (const double rate : fleet.rates) {
    text += std::isfinite(rate) ? fmt::format(" {:.0f} requests/s |", rate) : " all at once |";
    text += " over RR | last ends, s |";
    line += "---:|---:|---|";
  }
  text += line + "\n";
  for (std::size_t r = 0; r < rules; ++r) {
    text += fmt::format("| {}{}{} |", kRules[r].papers ? "" : "*", kRules[r].name, kRules[r].papers ? "" : "*");
    for (std::size_t k = 0; k < rates; ++k) {
      const std::size_t i = r * rates + k;
      text += fmt::format(" {:.0f} | {:+.1f} % | {:.0f} |", tokens_per_s[i], 100 * (tokens_per_s[i] / tokens_per_s[k] - 1),
                          fmt::join(ends_s[i], ", "));
    }
    text += "\n";
  }
  return text;
}

// ---- Alg. 2 beside the best mapping ----

std::string mapping(Executor& executor, double scale) {
  const int cases = std::max(10, static_cast<int>(2000 * scale));
  std::string text =
      "| instances | requests | theta | bursts | as good as the best | mean ratio | 95 in 100 below | worst |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const auto& [instances, requests] : {std::pair{2, 8}, {3, 8}, {4, 8}}) {
    for (const double theta : {0.0, 2.0}) {
      std::vector<double> ratios(static_cast<std::size_t>(cases));
      executor.run(ratios.size(), [&, most_instances = instances, most_requests = requests](std::size_t i) {
        const MappingCase made = random_mapping_case(i + 1, most_instances, most_requests, theta);
        ratios[i] = mapped_load(made) / least_load(made);
      });
      std::sort(ratios.begin(), ratios.end());
      const auto equal = std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio < 1 + 1e-9; });
      text += fmt::format("| 2 to {} | 2 to {} | {:.0f} | {} | {:.0f} % | {:.3f} | {:.2f} | {:.2f} |\n", instances, requests,
                          theta, cases, 100.0 * static_cast<double>(equal) / cases,
                          std::accumulate(ratios.begin(), ratios.end(), 0.0) / cases, ratios[ratios.size() * 95 / 100],
                          ratios.back());
    }
  }
  return text;
}

}  // namespace

Result<std::vector<HeterogeneousTable>> huawei_tables(const HeterogeneousOptions& options) {
  SerialExecutor serial;
  Executor& executor = options.executor == nullptr ? serial : *options.executor;
  WINDLASS_ASSIGN_OR_RETURN(auto pairs, huawei_lengths(options.data));
  WINDLASS_ASSIGN_OR_RETURN(const auto lengths, workload::LengthDistribution::empirical(std::move(pairs)));
  WINDLASS_ASSIGN_OR_RETURN(auto by_degree, ranking(lengths, executor, options.scale));

  const HuaweiRoofline roofline;
  WINDLASS_ASSIGN_OR_RETURN(const auto llama, planner::model_shape_by_name("llama3-8b"));
  const hetero::ClusterNode v100 = v100_machine(roofline);
  constexpr double kAtOnce = std::numeric_limits<double>::infinity();
  const Fleet two_instances{"", llama, {{"t4", v100, 4, 1}, {"t1", v100, 1, 1}}, {8, 16, 24, kAtOnce}};
  const Fleet two_machines{
      "", distill_qwen_14b(), {{"v100", v100, 2, 4}, {"a800", a800_machine(), 1, 1}}, {8, 16, 24, kAtOnce}};
  WINDLASS_ASSIGN_OR_RETURN(auto fig_5, scheduling(two_instances, lengths, executor, options.scale));
  WINDLASS_ASSIGN_OR_RETURN(auto fig_6, scheduling(two_machines, lengths, executor, options.scale));
  return std::vector<HeterogeneousTable>{{"huawei-degrees", std::move(by_degree)},
                                         {"huawei-two-instances", std::move(fig_5)},
                                         {"huawei-two-machines", std::move(fig_6)},
                                         {"huawei-mapping", mapping(executor, options.scale)}};
}

}  // namespace windlass::bench
