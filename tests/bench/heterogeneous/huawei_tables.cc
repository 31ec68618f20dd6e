// Huawei's results (Xiong et al. 2025): the order of the degrees of tensor parallelism (Fig. 4), its scheduler against the
// paper's other rules on two heterogeneous instances (Fig. 5) and on two machines (Fig. 6), and its mapping against the
// optimum.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/strategies/core/drawn_requests.h"
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

// The rooflines of Fig. 5 and 6: the link that the paper names or the one that its V100s (SXM2) have, and V100s that reach the
// same share of their peak as A100s, or 60 % of it.
struct Stated {
  std::string name;
  std::string place;  // of its tables; empty: only in the summary
  HuaweiRoofline roofline;
};

std::vector<Stated> stated() {
  std::vector<Stated> made;
  for (const bool nvlink : {false, true}) {
    for (const double compute : {1.0, 0.6}) {
      HuaweiRoofline roofline;
      if (nvlink) {
        roofline.link_bytes_per_s = 150e9;
        roofline.hop_s = 2e-6;
      }
      roofline.v100_compute = compute;
      const std::string name = nvlink ? "NVLink" : "PCIe 3.0";
      const std::string place = compute < 1 ? "" : nvlink ? "nvlink" : "pcie";
      made.push_back({fmt::format("{}, {:.0f} %", name, 100 * compute), place, roofline});
    }
  }
  return made;
}

struct RankingRow {
  std::string what;
  HuaweiRoofline roofline;
  const workload::LengthDistribution* lengths;
};

std::string order_of(const std::vector<double>& by_degree) {
  std::vector<std::size_t> order(by_degree.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return by_degree[a] > by_degree[b]; });
  std::vector<int> degrees;
  for (const std::size_t i : order) degrees.push_back(kDegrees[i]);
  return fmt::format("{}", fmt::join(degrees, " > "));
}

// `kAsWritten`: Alg. 1, if a token's cache takes 2 l h values, as if each head had its own keys and values.
enum class Estimate { kStatic, kAsWritten, kContinuous };

// A machine's degrees as the planner sees them, with `sample` requests for Alg. 1.
Result<std::vector<hetero::InstanceOption>> options_of(const planner::ModelShape& shape, const hetero::ClusterNode& node,
                                                       const HuaweiRoofline& roofline, const search::Requests& requests,
                                                       std::uint64_t seed, int sample) {
  search::Problem problem;
  problem.name = node.name;
  problem.shape = shape;
  problem.requests = &requests;
  problem.requests_per_s = 1;
  problem.seed = seed;
  hetero::GpuCluster cluster;
  cluster.nodes = {node};
  problem.cluster = std::make_shared<const hetero::GpuCluster>(std::move(cluster));
  hetero::HuaweiOptions options;
  options.sampled_requests = sample;
  options.times_of = hetero::roofline_batch_times(problem.shape, roofline.overhead());
  WINDLASS_ASSIGN_OR_RETURN(auto found, hetero::search_tensor_parallel(problem, {}, options));
  return std::move(found.machines.front().options);
}

constexpr int kSampled = 200;      // the paper's
constexpr int kMaxRequests = 256;  // in a batch

// Tokens/s of the machine by degree.
Result<std::vector<double>> estimated(const HuaweiRoofline& roofline, const workload::LengthDistribution& lengths,
                                      std::uint64_t seed, Estimate estimate) {
  WINDLASS_ASSIGN_OR_RETURN(const auto requests, search::DrawnRequests::make(lengths));
  WINDLASS_ASSIGN_OR_RETURN(const auto shape, planner::model_shape_by_name("llama3-8b"));
  WINDLASS_ASSIGN_OR_RETURN(const auto options, options_of(shape, v100_machine(roofline), roofline, requests, seed, kSampled));
  const auto sample = search::lengths_of(requests, seed, kSampled);
  std::vector<double> tokens_per_s;
  for (const auto& option : options) {
    if (estimate != Estimate::kAsWritten) {
      tokens_per_s.push_back(estimate == Estimate::kStatic ? option.static_tokens_per_s() : option.tokens_per_s());
      continue;
    }
    const double token_bytes = 2.0 * shape.layers * shape.hidden * 2;
    WINDLASS_ASSIGN_OR_RETURN(const auto one,
                              hetero::estimate_throughput(option.times, option.kv_bytes / token_bytes, kMaxRequests, sample));
    tokens_per_s.push_back(option.instances * one.tokens_per_s);
  }
  return tokens_per_s;
}

// Tokens/s with these requests at time 0, assigned to the machine's instances in turn.
Result<double> burst_tokens_per_s(const planner::ModelShape& shape, const HuaweiRoofline& roofline,
                                  const hetero::ClusterNode& node, int degree, std::vector<TokenPair> requests) {
  std::vector<std::shared_ptr<const planner::IterationModel>> models;
  WINDLASS_ASSIGN_OR_RETURN(auto options,
                            huawei_service(shape, roofline, {{node.name, node, degree, node.gpus / degree}}, models));
  options.dispatch.policy = PolicyKind::kRoundRobin;
  double tokens = 0;
  for (const TokenPair& pair : requests) tokens += static_cast<double>(pair.input_tokens) + pair.output_tokens;
  Burst burst(std::move(requests));
  WINDLASS_ASSIGN_OR_RETURN(const auto result, sim::simulate_serving(burst, options));
  return tokens / result.simulated_s;
}

// The paper's measurement: 1,000 requests, eight times each.
Result<double> simulated(const HuaweiRoofline& roofline, const workload::LengthDistribution& lengths, std::uint64_t seed,
                         int degree, double scale) {
  WINDLASS_ASSIGN_OR_RETURN(const auto shape, planner::model_shape_by_name("llama3-8b"));
  Rng rng(seed, "requests");
  std::vector<TokenPair> requests;
  for (int i = 0; i < static_cast<int>(1000 * scale); ++i) {
    const TokenPair pair = lengths.draw(rng);
    for (int copy = 0; copy < 8; ++copy) requests.push_back(pair);
  }
  return burst_tokens_per_s(shape, roofline, v100_machine(roofline), degree, std::move(requests));
}

Result<std::string> ranking(const workload::LengthDistribution& all, const workload::LengthDistribution& filtered,
                            Executor& executor, double scale) {
  std::vector<RankingRow> rows;
  for (const auto* lengths : {&all, &filtered}) {
    for (const auto& [link, hop_s] : {std::pair{8e9, 10e-6}, {16e9, 10e-6}, {150e9, 2e-6}}) {
      for (const double iteration_s : {0.0, 5e-3, 20e-3}) {
        HuaweiRoofline roofline;
        roofline.link_bytes_per_s = link;
        roofline.hop_s = hop_s;
        roofline.iteration_s = iteration_s;
        if (iteration_s == 0) roofline.sequence_s = 0;
        rows.push_back({fmt::format("{} | {:.0f} GB/s, {:.0f} us | {:.0f} ms", lengths == &all ? "all" : "short", link / 1e9,
                                    hop_s * 1e6, iteration_s * 1e3),
                        roofline, lengths});
      }
    }
  }
  // For each row: Alg. 1 on two samples, Alg. 1 as written on two, continuous batching, simulated.
  std::vector<std::vector<Result<std::vector<double>>>> cells(rows.size());
  executor.run(rows.size(), [&](std::size_t i) {
    const HuaweiRoofline& roofline = rows[i].roofline;
    for (const Estimate estimate : {Estimate::kStatic, Estimate::kAsWritten}) {
      for (const std::uint64_t seed : {1, 2}) cells[i].push_back(estimated(roofline, *rows[i].lengths, seed, estimate));
    }
    cells[i].push_back(estimated(roofline, *rows[i].lengths, 1, Estimate::kContinuous));
    cells[i].push_back([&]() -> Result<std::vector<double>> {
      std::vector<double> by_degree;
      for (const int degree : kDegrees) {
        WINDLASS_ASSIGN_OR_RETURN(const double tokens_per_s, simulated(roofline, *rows[i].lengths, 1, degree, scale));
        by_degree.push_back(tokens_per_s);
      }
      return by_degree;
    }());
  });
  std::string text =
      "| requests | link, hop | engine | Alg. 1, tokens/s at t = 1, 2, 4, 8 | its order (other sample) | with caches of 2 "
      "l h "
      "| its order (other sample) | continuous batching | its order | simulated, tokens/s | its order |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n"
      "| *the paper* | | | | | | **2 > 4 > 1 > 8** (the same) | | | | **2 > 4 > 1 > 8** |\n";
  const auto marked = [](const std::string& order) { return order == "2 > 4 > 1 > 8" ? "**" + order + "**" : order; };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& of : cells[i]) {
      if (!of.ok()) return of.error();
    }
    text += fmt::format("| {} |", rows[i].what);
    for (const std::size_t of : {0, 2}) {
      const std::string order = order_of(*cells[i][of]), other = order_of(*cells[i][of + 1]);
      text += fmt::format(" {:.0f} | {} ({}) |", fmt::join(*cells[i][of], ", "), marked(order),
                          order == other ? "the same" : marked(other));
    }
    for (const std::size_t of : {4, 5}) {
      text += fmt::format(" {:.0f} | {} |", fmt::join(*cells[i][of], ", "), marked(order_of(*cells[i][of])));
    }
    text += "\n";
  }
  return text;
}

// ---- How far the estimates are from what continuous batching serves ----

struct EstimatedMachine {
  const char* text;
  hetero::ClusterNode node;
  HuaweiRoofline roofline;
  planner::ModelShape shape;
};

Result<std::vector<EstimatedMachine>> estimated_machines() {
  WINDLASS_ASSIGN_OR_RETURN(const auto llama, planner::model_shape_by_name("llama3-8b"));
  WINDLASS_ASSIGN_OR_RETURN(const auto a100, planner::accelerator_by_name("a100-80gb"));
  const planner::ModelShape qwen = distill_qwen_14b();
  HuaweiRoofline pcie, nvlink;
  nvlink.link_bytes_per_s = 150e9;
  nvlink.hop_s = 2e-6;
  const hetero::ClusterNode four{"a100", a100, 4, {300e9, nvlink.hop_s}};
  return std::vector<EstimatedMachine>{{"8 x V100, PCIe 3.0, Llama-3-8B", v100_machine(pcie), pcie, llama},
                                       {"8 x V100, NVLink, Llama-3-8B", v100_machine(nvlink), nvlink, llama},
                                       {"8 x V100, PCIe 3.0, Qwen-14B", v100_machine(pcie), pcie, qwen},
                                       {"A800, Qwen-14B", a800_machine(), pcie, qwen},
                                       {"4 x A100, NVLink, Llama-3-8B", four, nvlink, llama},
                                       {"4 x A100, NVLink, Qwen-14B", four, nvlink, qwen}};
}

// The longest prompt and answer in 200 requests, on average.
std::string longest_of(const std::vector<hetero::Lengths>& requests) {
  double inputs = 0, outputs = 0, groups = 0;
  for (std::size_t begin = 0; begin + kSampled <= requests.size(); begin += kSampled, ++groups) {
    int input = 0, output = 0;
    for (std::size_t i = begin; i < begin + kSampled; ++i) {
      input = std::max(input, requests[i].first);
      output = std::max(output, requests[i].second);
    }
    inputs += input;
    outputs += output;
  }
  const search::LengthMoments means = search::length_moments(requests);
  return fmt::format(
      "\nIn {} requests, the longest prompt has {:.0f} tokens, {:.1f} times the mean, and the longest answer {:.0f}, {:.1f} "
      "times "
      "the mean.\n",
      kSampled, inputs / groups, inputs / groups / means.input_tokens, outputs / groups,
      outputs / groups / means.output_tokens);
}

// Alg. 1, Alg. 1 of equal requests, and the estimate for continuous batching against the simulator, which serves enough
// requests that the last ones hardly count.
Result<std::string> estimates(const workload::LengthDistribution& lengths, double scale) {
  WINDLASS_ASSIGN_OR_RETURN(const auto machines, estimated_machines());
  WINDLASS_ASSIGN_OR_RETURN(const auto requests, search::DrawnRequests::make(lengths));
  const auto drawn = search::lengths_of(requests, 1, static_cast<std::int64_t>(64'000 * scale));
  const search::LengthMoments means = search::length_moments(drawn);
  const std::vector<hetero::Lengths> equal(10 * kMaxRequests, {static_cast<int>(std::lround(means.input_tokens)),
                                                               static_cast<int>(std::lround(means.output_tokens))});
  std::vector<TokenPair> burst;
  for (const auto& [input, output] : drawn) burst.push_back({input, output});
  std::string text =
      "| machine | t | Alg. 1, tokens/s | its batch | of equal requests | continuous batching | sequences | simulated | over "
      "Alg. 1 | "
      "over continuous batching |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const EstimatedMachine& of : machines) {
    WINDLASS_ASSIGN_OR_RETURN(const auto options,
                              options_of(of.shape, of.node, of.roofline, requests, 1, static_cast<int>(8000 * scale)));
    for (const hetero::InstanceOption& option : options) {
      if (!option.unfit.empty()) continue;
      WINDLASS_ASSIGN_OR_RETURN(const auto same,
                                hetero::estimate_throughput(option.times, option.kv_tokens, kMaxRequests, equal));
      WINDLASS_ASSIGN_OR_RETURN(const double served,
                                burst_tokens_per_s(of.shape, of.roofline, of.node, option.tensor_parallel, burst));
      text += fmt::format("| {} | {} | {:.0f} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.1f} | {:.2f} |\n", of.text,
                          option.tensor_parallel, option.static_tokens_per_s(), option.static_batches.largest_batch,
                          option.instances * same.tokens_per_s, option.tokens_per_s(), option.continuous.batch, served,
                          served / option.static_tokens_per_s(), served / option.tokens_per_s());
    }
  }
  return text + longest_of(drawn);
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

// Records when the last request of each pool ended.
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
  std::vector<std::size_t> pool_of_;  // by worker
  std::vector<double> ends_s_;
};

struct Fleet {
  planner::ModelShape shape;
  HuaweiRoofline roofline;
  std::vector<HuaweiInstances> instances;
  std::vector<double> rates;  // infinite: all at time 0
  int requests = 4000;
};

struct Served {
  double tokens_per_s = 0;
  std::vector<double> ends_s;
};

Result<Served> serve(const Fleet& fleet, const workload::LengthDistribution& lengths, const Rule& rule, double rate,
                     std::uint64_t seed, double scale) {
  std::vector<std::shared_ptr<const planner::IterationModel>> models;
  WINDLASS_ASSIGN_OR_RETURN(auto options, huawei_service(fleet.shape, fleet.roofline, fleet.instances, models));
  options.dispatch.policy = rule.policy;
  options.dispatch.learns_lengths = rule.outputs != Rule::Outputs::kKnown;
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
    options.dispatch.drawn_outputs =
        dispatch::HuaweiRules::NormalOutputs{mean, std::sqrt(std::max(0.0, squares / kSample - mean * mean))};
  }
  options.dispatch.huawei.assumed_output_tokens = mean;
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
constexpr std::size_t kLooked = 2;  // index into Fleet::rates for the table of last ends

struct Scheduled {
  std::string table;
  std::vector<std::vector<double>> over_rr;  // [rule][rate]: tokens/s relative to round robin, less 1
  double room = 0;                           // all at time 0: what the pools serve separately, relative to round robin, less 1
};

Result<Scheduled> scheduling(const Fleet& fleet, const workload::LengthDistribution& lengths, Executor& executor,
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
  Scheduled made;
  for (std::size_t pool = 0; pool < fleet.instances.size(); ++pool) {
    Fleet alone = fleet;
    alone.instances = {fleet.instances[pool]};
    WINDLASS_ASSIGN_OR_RETURN(const Served of, serve(alone, lengths, kRules[0], fleet.rates.back(), 1, scale));
    made.room += of.tokens_per_s;
  }
  made.room = made.room / tokens_per_s[rates - 1] - 1;
  std::string text = "| rule |", line = "\n|---|";
  for (const double rate : fleet.rates) {
    const std::string at = std::isfinite(rate) ? fmt::format("{:.0f} requests/s", rate) : "all at once";
    text += fmt::format(" {} | over RR |", at);
    line += "---:|---:|";
  }
  std::vector<std::string> names;
  for (const HuaweiInstances& of : fleet.instances) names.push_back(of.name);
  text += fmt::format(" last end at {:.0f} requests/s: {} |{}---|\n", fleet.rates[kLooked], fmt::join(names, ", "), line);
  for (std::size_t r = 0; r < rules; ++r) {
    text += fmt::format("| {}{}{} |", kRules[r].papers ? "" : "*", kRules[r].name, kRules[r].papers ? "" : "*");
    made.over_rr.emplace_back();
    for (std::size_t k = 0; k < rates; ++k) {
      const std::size_t i = r * rates + k;
      made.over_rr.back().push_back(tokens_per_s[i] / tokens_per_s[k] - 1);
      text += fmt::format(" {:.0f} | {:+.1f} % |", tokens_per_s[i], 100 * made.over_rr.back().back());
    }
    std::vector<std::string> ends;
    for (const double end_s : ends_s[r * rates + kLooked]) ends.push_back(end_s > 0 ? fmt::format("{:.0f} s", end_s) : "-");
    text += fmt::format(" {} |\n", fmt::join(ends, ", "));
  }
  made.table = std::move(text);
  return made;
}

std::string summary_row(const std::string& what, const std::string& roofline, const Scheduled& of) {
  constexpr std::size_t kScheduler = 3, kHistory = 5;  // indices into kRules
  static_assert(kRules[kScheduler].policy == PolicyKind::kHuawei && kRules[kHistory].outputs == Rule::Outputs::kLearned);
  std::string text = fmt::format("| {} | {} |", what, roofline);
  for (const std::size_t rate : {1, 2, 3}) {
    text += fmt::format(" {:+.1f} % | {:+.1f} % |", 100 * of.over_rr[kScheduler][rate], 100 * of.over_rr[kHistory][rate]);
  }
  return text + fmt::format(" {:+.1f} % |\n", 100 * of.room);
}

// ---- Alg. 2 against the best mapping ----

std::string mapping(Executor& executor, double scale) {
  const int cases = std::max(10, static_cast<int>(2000 * scale));
  std::string text =
      "| instances | requests | theta | bursts | as good as the best | mean ratio | 95 in 100 below | worst |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const auto& [instances, requests] : {std::pair{2, 8}, {3, 8}, {4, 8}}) {
    for (const double theta : {0.0, 2.0}) {
      std::vector<double> ratios(static_cast<std::size_t>(cases));
      executor.run(ratios.size(), [&, max_instances = instances, max_requests = requests](std::size_t i) {
        const MappingCase made = random_mapping_case(i + 1, max_instances, max_requests, theta);
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
  auto few = pairs;
  std::erase_if(
      few, [](const TokenPair& pair) { return pair.input_tokens > 1024 || pair.input_tokens + pair.output_tokens > 2048; });
  WINDLASS_ASSIGN_OR_RETURN(const auto lengths, workload::LengthDistribution::empirical(std::move(pairs)));
  WINDLASS_ASSIGN_OR_RETURN(const auto filtered, workload::LengthDistribution::empirical(std::move(few)));
  WINDLASS_ASSIGN_OR_RETURN(auto by_degree, ranking(lengths, filtered, executor, options.scale));

  WINDLASS_ASSIGN_OR_RETURN(const auto llama, planner::model_shape_by_name("llama3-8b"));
  WINDLASS_ASSIGN_OR_RETURN(auto of_machines, estimates(lengths, options.scale));
  std::vector<HeterogeneousTable> tables = {{"huawei-degrees", std::move(by_degree)},
                                            {"huawei-estimates", std::move(of_machines)}};
  const std::vector<double> rates = {8, 16, 24, std::numeric_limits<double>::infinity()};
  std::string summary =
      "| instances | link, V100's FLOP/s | 16 requests/s: OS | from history | 24: OS | from history | all at once: OS | from "
      "history | room |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
      "| *the paper, t = 4 and t = 1* | | | | +122.5 % | | | | |\n| *the paper, V100s and A800* | | +33.6 % | | | | | | |\n";
  for (const char* place : {"two-instances", "two-machines"}) {
    const bool instances = std::string_view(place) == "two-instances";
    for (const Stated& of : stated()) {
      const hetero::ClusterNode v100 = v100_machine(of.roofline);
      const Fleet fleet =
          instances ? Fleet{llama, of.roofline, {{"t = 4", v100, 4, 1}, {"t = 1", v100, 1, 1}}, rates}
                    : Fleet{distill_qwen_14b(), of.roofline, {{"V100s", v100, 2, 4}, {"A800", a800_machine(), 1, 1}}, rates};
      WINDLASS_ASSIGN_OR_RETURN(auto found, scheduling(fleet, lengths, executor, options.scale));
      summary += summary_row(instances ? "t = 4 and t = 1" : "V100s and A800", of.name, found);
      if (!of.place.empty()) tables.push_back({fmt::format("huawei-{}-{}", place, of.place), std::move(found.table)});
    }
  }
  tables.push_back({"huawei-scheduler", std::move(summary)});
  tables.push_back({"huawei-mapping", mapping(executor, options.scale)});
  return tables;
}

}  // namespace windlass::bench
