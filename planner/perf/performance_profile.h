// PerformanceProfile: a fitted latency model of one (model, accelerator, GPUs per worker) as plain data, the way it stands in
// files and in the custom resource of that name (crds/performanceprofiles.yaml): what was measured, the fit, and its error on
// measurements that the fit had not seen.
//
// profile_yaml.h reads and writes it, profile_fit.h and profile_operators.h make it from measurements. The values that a file
// holds are all that a prediction depends on, besides the shape and the data sheet that the caller gives. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/operator_table.h"
#include "planner/perf/profile_table.h"
#include "planner/perf/transfer_times.h"

namespace windlass::planner {

struct FittedLines {
  LinearForm form = LinearForm::kHuawei;
  LinearPhase prefill;
  LinearPhase decode;

  bool operator==(const FittedLines&) const = default;
};

// The runs of one prompt size, batch size and number of output tokens, as their medians.
struct MeasuredCell {
  double prompt_tokens = 0;
  double batch_size = 0;
  double output_tokens = 0;
  double prompt_s = 0;
  double token_s = 0;
  double end_to_end_s = 0;  // 0: not measured
  std::int64_t runs = 1;

  bool operator==(const MeasuredCell&) const = default;
};

struct MeasuredCells {
  ProfileReading reading = ProfileReading::kBatchShape;
  std::vector<MeasuredCell> cells;

  bool operator==(const MeasuredCells&) const = default;
};

// What operator tables were cut to. A model of another shape asks for products and heads that are not in them.
struct OperatorShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocab = 0;

  bool operator==(const OperatorShape&) const = default;
};

[[nodiscard]] OperatorShape operator_shape(const ModelShape& shape);

struct MeasuredOperators {
  OperatorShape shape;
  GemmKind weights = GemmKind::kBFloat16;
  EngineOverhead overhead;
  OperatorTables tables;
};

struct FitError {
  std::string part;          // "prefill", "decode"; of operators "gemm", "contextAttention", "generationAttention", "allReduce"
  std::int64_t samples = 0;  // each predicted by a fit on the other folds
  double mape = 0;           // mean of |predicted - measured| / measured
  double median_ape = 0;
  double max_ape = 0;
  std::optional<double> unseen_mape;  // the same where a sample's whole shape (prompt size, batch size) was left out

  bool operator==(const FitError&) const = default;
};

struct FitSource {
  std::string file;           // as given
  std::string format;         // "SplitwiseCSV", "OperatorTables", "VidurProfiles", "BenchmarkResults"
  std::int64_t rows = 0;      // that were used
  std::int64_t left_out = 0;  // that contradict themselves, or that this model does not need

  bool operator==(const FitSource&) const = default;
};

struct PerformanceProfile {
  std::string model;
  std::string accelerator;
  int gpus_per_worker = 1;
  int pipeline_parallel = 1;                 // of these, the rest is tensor parallel
  std::optional<double> kv_capacity_tokens;  // of a worker; none: what its memory leaves
  FitSource source;
  std::variant<FittedLines, MeasuredCells, MeasuredOperators> fit;
  std::optional<MeasuredTransfer> transfer;  // of keys and values to such a worker; none: not measured
  int folds = 0;
  std::vector<FitError> errors;

  [[nodiscard]] int tensor_parallel() const { return gpus_per_worker / pipeline_parallel; }
};

// "Linear", "Profile", "Operators": spec.fit.type.
[[nodiscard]] const char* fit_type(const PerformanceProfile& profile);

// The fit as a model. `kv_capacity_tokens` is what the worker's memory leaves, for fits that do not know better.
// Errors kInvalidArgument: operator tables that were cut to another shape than `shape`, cells that are no single batch, and
// those of the models themselves. REQUIRES: valid shape and spec.
[[nodiscard]] Result<std::shared_ptr<const IterationModel>> iteration_model(const PerformanceProfile& profile,
                                                                            const ModelShape& shape,
                                                                            const AcceleratorSpec& accelerator,
                                                                            double kv_capacity_tokens);

}  // namespace windlass::planner
