// Turns operator measurements into a PerformanceProfile that is small enough for an object of the API server. It keeps only
// what one model needs on one number of GPUs, and adds the cross-validated error of each operator.
//
// It keeps the rows used by interpolation at the model's own products and heads (LocalRegression's neighbours, including ties)
// and the rows that span the measured range, so that coverage stays the same. Times are rounded to six digits. Pure;
// deterministic by seed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/operator_table.h"
#include "planner/perf/performance_profile.h"
#include "planner/perf/profile_fit.h"

namespace windlass::planner {

// The type in which the blocks' matrices are multiplied. Error kInvalidArgument: a quantisation that no operator table covers.
[[nodiscard]] Result<GemmKind> gemm_kind(const ModelShape& shape);

struct OperatorFitRequest {
  const ModelShape& shape;
  const AcceleratorSpec& accelerator;
  OperatorModelOptions options;
  ValidationOptions validation;
};

// Larger tables, after reduction and printing, are refused: etcd's limit for an object is 1.5 MB.
inline constexpr std::size_t kMaxTableBytes = 1'000'000;

struct OperatorFit {
  PerformanceProfile profile;      // without the model name and the file's name
  std::vector<std::string> notes;  // for people: tables that contradict the data sheet, operators without measurements
};
// Errors kInvalidArgument: no row that this model uses, tables that stay too large, and those of OperatorModel.
[[nodiscard]] Result<OperatorFit> fit_operators(const OperatorTables& tables, const OperatorFitRequest& request);

// Launch of an all-reduce by the CPU. Vidur adds it to its samples, which have the kernel's time alone
// (nccl_cpu_launch_overhead_ms).
inline constexpr double kVidurLaunchSeconds = 20e-6;

// Vidur's samples for the model at `options.tensor_parallel` GPUs, as tables. `cpu` becomes the engine's overhead, Ray's
// messages between its processes included. Each all-reduce takes kVidurLaunchSeconds more.
struct VidurProfiles {
  std::vector<VidurSample> mlp, attention, all_reduce, cpu;
};
struct VidurTables {
  OperatorTables tables;
  EngineOverhead overhead;
};
// Errors kInvalidArgument: CPU times for fewer than two batch sizes. Samples for other numbers of GPUs are ignored.
[[nodiscard]] Result<VidurTables> tables_of(const VidurProfiles& profiles, const ModelShape& shape, int tensor_parallel);

}  // namespace windlass::planner
