// PerformanceProfile is a fitted latency model for one model, accelerator and number of GPUs per worker, as plain data. It
// holds what was measured, the fit, and the error of the fit on measurements that it had not seen. Files and the custom
// resource (crds/performanceprofiles.yaml) have the same form.
//
// profile_yaml.h reads and writes it; profile_fit.h and profile_operators.h create it from measurements. Predictions depend
// only on the values in the file and on the shape and data sheet supplied by the caller. Pure.
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

// Medians of the runs with one prompt size, batch size and number of output tokens.
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

// The model shape that operator tables were reduced to. Models of other shapes need products and heads that are missing.
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
  std::string part;  // "prefill", "decode"; for operators "gemm", "contextAttention", "generationAttention", "allReduce"
  std::int64_t samples = 0;  // each predicted by a fit on the other folds
  double mape = 0;           // mean of |predicted - measured| / measured
  double median_ape = 0;
  double max_ape = 0;
  std::optional<double> unseen_mape;  // the same if the sample's whole shape (prompt size, batch size) was held out

  bool operator==(const FitError&) const = default;
};

struct FitSource {
  std::string file;           // as given by the user
  std::string format;         // "SplitwiseCSV", "OperatorTables", "VidurProfiles", "BenchmarkResults"
  std::int64_t rows = 0;      // used
  std::int64_t left_out = 0;  // not used: contradictory, or not needed for this model

  bool operator==(const FitSource&) const = default;
};

struct PerformanceProfile {
  std::string model;
  std::string accelerator;
  int gpus_per_worker = 1;
  int pipeline_parallel = 1;                 // part of the GPUs; the rest is tensor parallel
  std::optional<double> kv_capacity_tokens;  // of a worker; none: whatever fits in its memory
  FitSource source;
  std::variant<FittedLines, MeasuredCells, MeasuredOperators> fit;
  std::optional<MeasuredTransfer> transfer;  // of keys and values to such a worker; none: not measured
  int folds = 0;
  std::vector<FitError> errors;

  [[nodiscard]] int tensor_parallel() const { return gpus_per_worker / pipeline_parallel; }
};

// "Linear", "Profile", "Operators": spec.fit.type.
[[nodiscard]] const char* fit_type(const PerformanceProfile& profile);

// Makes a model from the fit. `kv_capacity_tokens` is what fits in the worker's memory, for fits without a better value.
// Errors kInvalidArgument: operator tables reduced to another shape than `shape`, cells that are not a single batch, and those
// of the models themselves. REQUIRES: valid shape and spec.
[[nodiscard]] Result<std::shared_ptr<const IterationModel>> iteration_model(const PerformanceProfile& profile,
                                                                            const ModelShape& shape,
                                                                            const AcceleratorSpec& accelerator,
                                                                            double kv_capacity_tokens);

}  // namespace windlass::planner
