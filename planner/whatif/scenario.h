// Scenario: what `windlass simulate` is asked to simulate, as plain data, and how it becomes a simulation.
//
// Three steps, so that the planner sees text and no paths: parse_scenario() (scenario_yaml.h) reads the YAML and checks all
// that it says of itself; files_of() names the files that it refers to, which the caller reads; PreparedScenario::make() parses
// those, builds latency models, and hands out options and request sources for as many runs as are wanted. docs/simulate.md
// lists the fields. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/profile_table.h"
#include "planner/sim/serving_simulation.h"
#include "planner/whatif/policy_autoscaler.h"
#include "planner/workload/arrivals.h"
#include "planner/workload/lengths.h"
#include "planner/workload/request_source.h"
#include "planner/workload/shared_prefixes.h"

namespace windlass::sim {

inline constexpr int kMaxWorkers = 100'000;

enum class LatencySource { kProfile, kLinear, kDistServe, kOperators, kRoofline };
const char* to_string(LatencySource source);  // "profile", "linear", "distserve", "operators", "roofline"

struct ScenarioModel {
  std::string name;                          // in the catalog; or
  std::string config_file;                   // a Hugging Face config.json
  std::optional<planner::ModelShape> shape;  // of the name; that of the file is read by make()
  std::optional<int> max_context_tokens;     // in place of the model's own
  int line = 0;
};

// In a folder of operator tables, as ai-dynamo/aiconfigurator publishes them.
inline constexpr std::array kOperatorFiles = {"gemm_perf.csv.gz", "context_attention_perf.csv.gz",
                                              "generation_attention_perf.csv.gz", "nccl_perf.csv.gz",
                                              "custom_allreduce_perf.csv.gz"};

// `file` is a folder with these for the operators.
struct ScenarioLatency {
  LatencySource source = LatencySource::kLinear;
  std::string file;                                                         // empty: none
  std::map<std::string, std::string> files;                                 // in its place, by accelerator
  std::string capacities_file;                                              // DistServe's max_num_tokens.csv; empty: none
  std::string model;                                                        // name in the file
  planner::ProfileReading reading = planner::ProfileReading::kBatchTokens;  // profile
  planner::LinearForm form = planner::LinearForm::kAladdin;                 // linear with a file
  std::optional<double> kv_capacity_tokens;                                 // of a worker, in place of what its memory leaves
  int pipeline_parallel = 1;                                                // stages of a worker; the rest is tensor parallel
  std::optional<planner::EngineOverhead> cpu;                               // operators and roofline: beside the kernels
  int line = 0;

  [[nodiscard]] const std::string& file_for(const std::string& accelerator) const {
    const auto own = files.find(accelerator);
    return own == files.end() ? file : own->second;
  }
};

enum class ArrivalKind { kPoisson, kGamma, kTrace, kDiurnal, kMarkovModulated };

struct ScenarioWorkload {
  std::string trace_file;  // one of these two, or the distributions
  std::string lengths_file;
  std::optional<workload::TokenDistribution> input_tokens, output_tokens;
  bool truncate = false;  // requests longer than the context are cut, not refused
  ArrivalKind arrivals = ArrivalKind::kPoisson;
  double cv = 1;                              // of gamma's gaps
  workload::DiurnalArrivals diurnal;          // its mean rate is requests_per_second
  workload::MarkovModulatedArrivals states;   // with their own rates
  bool scale_time = true;                     // a trace reaches requests_per_second by its pace; false: by thinning or copies
  std::optional<double> requests_per_second;  // none: the trace's or the states' own
  std::optional<double> duration_s;           // of arrivals; none: until the trace or `requests` end
  std::optional<std::int64_t> requests;       // at most
  std::optional<workload::SharedPrefixes> shared_prefixes;
  int line = 0;
};

struct ScenarioPool {
  dispatch::Role role = dispatch::Role::kUnified;
  planner::AcceleratorSpec accelerator;
  int gpus_per_worker = 1;
  int workers = 1;
  double price_per_gpu_hour = 0;
  double dispatch_weight = 0;  // 0: its slots at the speed of a request alone
  int line = 0;
};

// What a worker waits for that is started in the run.
struct ScenarioStart {
  double image_pull_s = 30;          // scheduling of the pod and pull of its image
  double weights_bytes_per_s = 2e9;  // from storage, all GPUs of a worker together
  double engine_s = 20;              // processes, CUDA context, memory profiling, graphs
};

struct ScenarioLink {
  std::optional<double> bandwidth_bytes_per_s;  // none: as measured, or the slower side's network
  std::optional<double> latency_s;
  bool layer_wise = false;
};

struct ScenarioSlo {
  std::optional<double> ttft_s, tpot_s;
  double percentile = 95;
};

// How a service is scaled, as its ModelService would say it.
struct ScenarioScaling {
  int min_workers = 1;
  std::optional<int> max_workers;
  std::optional<double> max_cost_per_hour;
  std::optional<double> idle_to_zero_after_s;
  double scale_up_stabilization_s = 0;
  double scale_down_stabilization_s = 300;
  int priority = 0;
  // What is assumed of the load until it has been observed; none: the workload's own means.
  std::optional<double> assumed_requests_per_s, assumed_input_tokens, assumed_output_tokens;
};

// The controller in the loop.
struct ScenarioAutoscaling {
  double interval_s = 1;            // between its decisions
  double metrics_age_s = 1;         // of what it knows then
  std::map<std::string, int> gpus;  // that there are, by accelerator; others have as many as are asked for
  int line = 0;
};

// Host memory for the caches of preempted sequences.
struct ScenarioSwap {
  double bytes_per_gpu = 4e9;
  double bytes_per_s_per_gpu = 25e9;  // between a GPU and the host
};

struct ScenarioReference {
  planner::AcceleratorSpec accelerator;
  int gpus_per_worker = 1;
  int line = 0;
};

// All that a scenario says of one model.
struct ScenarioService {
  std::string name;    // of services that are several; otherwise empty
  std::string prefix;  // of its fields in messages: "services[1]."; empty when it is the only one
  int line = 0;
  ScenarioModel model;
  ScenarioLatency latency;
  ScenarioWorkload workload;
  std::vector<ScenarioPool> pools;
  ScenarioLink link;
  ScenarioStart start;
  planner::EngineSettings engine;    // host_blocks follow from `swap`
  std::optional<ScenarioSwap> swap;  // of preemption by swapping
  dispatch::DispatchSettings dispatch;
  std::optional<ScenarioSlo> slo;
  std::optional<ScenarioReference> slowdown_reference;
  ScenarioScaling scaling;  // where the scenario has autoscaling
};

struct Scenario {
  std::string source;  // the file's name, for messages
  std::uint64_t seed = 0;
  std::vector<ScenarioService> services;  // at least one
  WorkerFailures failures;
  int failures_line = 0;
  std::optional<ScenarioAutoscaling> autoscaling;
  std::vector<std::string> defaults;  // "scheduling.batching: vllm": what the file leaves open, for people
};

struct ScenarioFile {
  std::string path;  // as in the scenario
  std::string field;
  int line = 0;      // of the scenario
  std::string what;  // "a CSV file with ...": for the message when it cannot be read
};

// The files that the scenario refers to, each once.
[[nodiscard]] std::vector<ScenarioFile> files_of(const Scenario& scenario);

class PreparedScenario {
 public:
  // `texts`: the text of each of files_of(), by path. Errors (kInvalidArgument, kNotFound) name the file and line, or the
  // scenario's line and field.
  [[nodiscard]] static Result<PreparedScenario> make(Scenario scenario, const std::map<std::string, std::string>& texts);

  PreparedScenario(PreparedScenario&&) noexcept;
  PreparedScenario& operator=(PreparedScenario&&) noexcept;
  ~PreparedScenario();

  [[nodiscard]] const Scenario& scenario() const;  // its defaults completed by what the files decide
  // For one run, of as many services as the scenario has. Borrows from this.
  [[nodiscard]] ClusterOptions options(std::uint64_t seed) const;
  // Who scales the services of one run, for ClusterOptions::controller; null: nobody. Borrows from this.
  [[nodiscard]] std::unique_ptr<PolicyAutoscaler> autoscaler() const;
  // Requests of one run, of all services, at `rate_factor` times the scenario's rates. Borrows from this; one seed, one
  // sequence.
  [[nodiscard]] std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double rate_factor = 1) const;

  // Mean rate of the arrivals at factor 1: of all services, or of one.
  [[nodiscard]] double requests_per_second() const;
  [[nodiscard]] double requests_per_second(std::size_t service) const;
  [[nodiscard]] double expected_requests() const;    // about how many will arrive, for progress
  [[nodiscard]] double expected_duration_s() const;  // about how long they keep arriving
  [[nodiscard]] bool ends_by_time() const;           // at another rate as many more or fewer requests arrive
  [[nodiscard]] bool rate_is_free() const;           // source() takes other factors than 1: requests do not all come at once
  [[nodiscard]] bool random() const;                 // seeds matter
  // For people: what the predictions rest on, one line per kind of worker.
  [[nodiscard]] std::vector<std::string> bases() const;

 private:
  struct Parts;
  explicit PreparedScenario(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace windlass::sim
