// Shares the parts of operator models; see operator_models.h.
#include "planner/perf/operator_models.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "planner/catalog/efficiency.h"

namespace windlass::planner {

OperatorModels::Family& OperatorModels::family_of(const ModelShape& shape, const OperatorModelOptions& options) {
  const auto known = std::find_if(families_.begin(), families_.end(), [&](const Family& family) {
    return family.weights == options.weights && family.float8_cache == options.float8_cache && family.shape == shape;
  });
  if (known != families_.end()) return *known;
  // Only the rows that the model's operators look up: the others would cost most of the time.
  OperatorTables needed;
  for (const GemmRow& row : tables_.gemm) {
    if (row.kind == options.weights || row.kind == GemmKind::kBFloat16) needed.gemm.push_back(row);
  }
  const AttentionKey key{.head_dim = shape.head_dim, .float8_cache = options.float8_cache};
  const auto has_key = [&](const AttentionRow& row) { return row.key == key; };
  std::copy_if(tables_.context_attention.begin(), tables_.context_attention.end(), std::back_inserter(needed.context_attention),
               has_key);
  std::copy_if(tables_.generation_attention.begin(), tables_.generation_attention.end(),
               std::back_inserter(needed.generation_attention), has_key);
  needed.collectives = tables_.collectives;
  const OperatorHardware hardware = operator_hardware(spec_);
  const AcceleratorEfficiency efficiency = efficiency_of(spec_.name, hardware.flops_8bit > 0).efficiency;
  return families_.emplace_back(
      Family{shape, options.weights, options.float8_cache, OperatorTimes(hardware, efficiency, needed, executor_)});
}

Result<std::shared_ptr<const OperatorModel>> OperatorModels::make(const ModelShape& shape,
                                                                  const OperatorModelOptions& options) {
  Family& family = family_of(shape, options);
  std::shared_ptr<const OperatorModel>& like = family.by_tensor_parallel[options.tensor_parallel];
  WINDLASS_ASSIGN_OR_RETURN(OperatorModel made,
                            OperatorModel::make(shape, spec_, family.times, options, like.get(), executor_));
  auto model = std::make_shared<const OperatorModel>(std::move(made));
  if (!like) like = model;
  return model;
}

}  // namespace windlass::planner
