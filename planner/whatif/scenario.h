// Scenario: the input of `windlass simulate` as plain data, and its conversion to a simulation.
//
// Three steps, so that the planner sees text and no paths: parse_scenario() (scenario_yaml.h) reads and checks the YAML;
// files_of() names the files it refers to, which the caller reads; PreparedScenario::make() parses those, builds latency
// models, and returns options and request sources for any number of runs. docs/simulate.md lists the fields. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/executor.h"
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
  std::string name;                          // in the catalog; or:
  std::string config_file;                   // a Hugging Face config.json; or neither: its fields were in the scenario
  std::optional<planner::ModelShape> shape;  // not from a file, which make() reads
  std::optional<int> max_context_tokens;     // replaces the model's own
  int line = 0;

  [[nodiscard]] std::string title() const {
    if (!name.empty()) return name;
    return config_file.empty() ? "model.config" : config_file;
  }
};

// For operators, `file` is a folder with planner::kOperatorFiles.
struct ScenarioLatency {
  LatencySource source = LatencySource::kLinear;
  std::string file;                                                         // empty: none
  std::map<std::string, std::string> files;                                 // instead of `file`, by accelerator
  std::string capacities_file;                                              // DistServe's max_num_tokens.csv; empty: none
  std::string model;                                                        // name in the file
  planner::ProfileReading reading = planner::ProfileReading::kBatchTokens;  // for profile
  planner::LinearForm form = planner::LinearForm::kAladdin;                 // for linear with a file
  std::optional<double> kv_capacity_tokens;                                 // per worker; replaces what its memory leaves
  int pipeline_parallel = 1;                                                // stages per worker; the other GPUs are tensor
                                                                            // parallel
  planner::EngineType engine = planner::EngineType::kWindlass;              // adds its CPU time, where a source has none
  std::optional<planner::EngineOverhead> cpu;                               // the same for operators and roofline, stated
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
  bool truncate = false;  // cut requests longer than the context instead of refusing them
  ArrivalKind arrivals = ArrivalKind::kPoisson;
  double cv = 1;                              // coefficient of variation of gamma's gaps
  workload::DiurnalArrivals diurnal;          // its mean rate is requests_per_second
  workload::MarkovModulatedArrivals states;   // with their own rates
  bool scale_time = true;                     // a trace is scaled to requests_per_second by changing its pace; false: by
                                              // dropping or copying requests
  std::optional<double> requests_per_second;  // none: the rate of the trace or of the states
  std::optional<double> duration_s;           // of arrivals; none: until the trace ends or `requests` have arrived
  std::optional<std::int64_t> requests;       // upper bound
  std::optional<workload::SharedPrefixes> shared_prefixes;
  int line = 0;
};

struct ScenarioPool {
  dispatch::Role role = dispatch::Role::kUnified;
  planner::AcceleratorSpec accelerator;
  int gpus_per_worker = 1;
  int workers = 1;
  double price_per_gpu_hour = 0;
  double dispatch_weight = 0;  // 0: its slots times the speed of a single request
  int line = 0;
};

// Delays of a worker started during the run.
struct ScenarioStart {
  double image_pull_s = 30;          // scheduling of the pod and image pull
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

// Scaling of a service, as its ModelService would state it.
struct ScenarioScaling {
  int min_workers = 1;
  std::optional<int> max_workers;
  std::optional<double> max_cost_per_hour;
  std::optional<double> idle_to_zero_after_s;
  double scale_up_stabilization_s = 0;
  double scale_down_stabilization_s = 300;
  int priority = 0;
  // Load assumed until it has been observed; none: the workload's own means.
  std::optional<double> assumed_requests_per_s, assumed_input_tokens, assumed_output_tokens;
};

// The controller in the loop.
struct ScenarioAutoscaling {
  double interval_s = 1;            // between its decisions
  double metrics_age_s = 1;         // age of the readings at each decision
  std::map<std::string, int> gpus;  // existing GPUs by accelerator; unlimited for others
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

// Everything about one model.
struct ScenarioService {
  std::string name;    // empty if the scenario has only one service
  std::string prefix;  // prefix of its fields in messages: "services[1]."; empty if it is the only one
  int line = 0;
  ScenarioModel model;
  ScenarioLatency latency;
  ScenarioWorkload workload;
  std::vector<ScenarioPool> pools;
  ScenarioLink link;
  ScenarioStart start;
  planner::EngineSettings engine;    // host_blocks is computed from `swap`
  std::optional<ScenarioSwap> swap;  // for preemption by swapping
  dispatch::DispatchSettings dispatch;
  std::optional<ScenarioSlo> slo;
  std::optional<ScenarioReference> slowdown_reference;
  ScenarioScaling scaling;  // if the scenario has autoscaling
};

struct Scenario {
  std::string source;  // the file's name, for messages
  std::uint64_t seed = 0;
  std::vector<ScenarioService> services;  // at least one
  WorkerFailures failures;
  int failures_line = 0;
  std::optional<ScenarioAutoscaling> autoscaling;
  std::vector<std::string> defaults;  // values used where the file leaves a field open, for people: "scheduling.batching: vllm"
};

struct ScenarioFile {
  std::string path;  // as written in the scenario
  std::string field;
  int line = 0;      // line in the scenario
  std::string what;  // "a CSV file with ...": for the message when it cannot be read
};

// The files that the scenario refers to, each once.
[[nodiscard]] std::vector<ScenarioFile> files_of(const Scenario& scenario);

class PreparedScenario {
 public:
  // `texts`: the content of each of files_of(), by path. Errors (kInvalidArgument, kNotFound) name the file and line, or the
  // scenario's line and field. `executor`: for reading operator tables and building models from them, or null.
  [[nodiscard]] static Result<PreparedScenario> make(Scenario scenario, const std::map<std::string, std::string>& texts,
                                                     Executor* executor = nullptr);

  PreparedScenario(PreparedScenario&&) noexcept;
  PreparedScenario& operator=(PreparedScenario&&) noexcept;
  ~PreparedScenario();

  [[nodiscard]] const Scenario& scenario() const;  // with the defaults that the files decide filled in
  // For one run, with the scenario's services; `end` is of the workers' times. Borrows from this.
  [[nodiscard]] ClusterOptions options(std::uint64_t seed, planner::End end = planner::End::kExpected) const;
  // The autoscaler of one run's services, for ClusterOptions::controller; null if there is none. Borrows from this.
  [[nodiscard]] std::unique_ptr<PolicyAutoscaler> autoscaler(planner::End end = planner::End::kExpected) const;
  // What the times of a service's workers are based on: of all its pools, what is known least.
  [[nodiscard]] planner::Provenance provenance(std::size_t service) const;
  // The requests of one run, of all services, at `rate_factor` times the scenario's rates. Borrows from this; one seed gives
  // one sequence.
  [[nodiscard]] std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double rate_factor = 1) const;

  // Mean arrival rate at factor 1: of all services, or of one.
  [[nodiscard]] double requests_per_second() const;
  [[nodiscard]] double requests_per_second(std::size_t service) const;
  [[nodiscard]] double expected_requests() const;    // approximate number of requests, for progress
  [[nodiscard]] double expected_duration_s() const;  // approximate duration of the arrivals
  [[nodiscard]] bool ends_by_time() const;           // whether the number of requests changes with the rate
  [[nodiscard]] bool rate_is_free() const;           // whether source() accepts factors other than 1, which it does unless all
                                                     // requests arrive at the same time
  [[nodiscard]] bool random() const;                 // whether the seed matters
  // For people: the basis of the predictions, one line per kind of worker.
  [[nodiscard]] std::vector<std::string> bases() const;

 private:
  struct Parts;
  explicit PreparedScenario(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace windlass::sim
