// Operator measurements as a PerformanceProfile: tables cut to what one model asks for on one number of GPUs, so that they fit
// into an object of the API server, with the cross-validated error of each operator.
//
// Kept are the rows that interpolation asks for at the model's own products and heads (LocalRegression's neighbours, ties
// included) and those that span the measured range, so that what was covered stays covered and what was not does not become it.
// Times are rounded to six digits. Pure; deterministic by seed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/operator_table.h"
#include "planner/perf/performance_profile.h"
#include "planner/perf/profile_fit.h"

namespace windlass::planner {

// What the blocks' matrices are multiplied in. Error kInvalidArgument: a quantisation that no operator table knows.
[[nodiscard]] Result<GemmKind> gemm_kind(const ModelShape& shape);

struct OperatorFitRequest {
  const ModelShape& shape;
  const AcceleratorSpec& accelerator;
  OperatorModelOptions options;
  ValidationOptions validation;
};

// Tables larger than this, cut and printed, are refused: etcd takes objects of 1.5 MB.
inline constexpr std::size_t kMaxTableBytes = 1'000'000;

struct OperatorFit {
  PerformanceProfile profile;      // without model name and the file's
  std::vector<std::string> notes;  // for people: tables that contradict the data sheet, operators that nothing was measured of
};
// Errors kInvalidArgument: no row that this model uses, tables that stay too large, and those of OperatorModel.
[[nodiscard]] Result<OperatorFit> fit_operators(const OperatorTables& tables, const OperatorFitRequest& request);

// Vidur's samples of the model at `options.tensor_parallel` GPUs as tables. `cpu` becomes the engine's overhead.
struct VidurProfiles {
  std::vector<VidurSample> mlp, attention, all_reduce, cpu;
};
struct VidurTables {
  OperatorTables tables;
  EngineOverhead overhead;
};
// Errors kInvalidArgument: fewer than two batch sizes of CPU times. Samples of other numbers of GPUs are passed over.
[[nodiscard]] Result<VidurTables> tables_of(const VidurProfiles& profiles, const ModelShape& shape, int tensor_parallel);

}  // namespace windlass::planner
