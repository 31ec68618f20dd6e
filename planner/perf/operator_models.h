// OperatorModels builds the operator models of one accelerator's workers. Models of one shape share what they have in common:
// the interpolation of the measured rows that the shape needs, and, on the same number of tensor parallel GPUs, the tabulated
// times, which stages and the engine's overhead do not change. So a search over worker kinds pays for each only once.
//
// Gives the same models as OperatorModel::make(). Use from one thread at a time. Pure.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <utility>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/perf/operator_model.h"

namespace windlass::planner {

class OperatorModels {
 public:
  // `executor`: for the work of building, null: the caller's thread; borrowed. Without tables, operators follow the roofline.
  explicit OperatorModels(AcceleratorSpec spec, OperatorTables tables, Executor* executor = nullptr)
      : spec_(std::move(spec)), tables_(std::move(tables)), executor_(executor) {}

  // Errors: those of OperatorModel::make().
  [[nodiscard]] Result<std::shared_ptr<const OperatorModel>> make(const ModelShape& shape, const OperatorModelOptions& options);
  [[nodiscard]] const AcceleratorSpec& spec() const { return spec_; }

 private:
  // Models that use the same rows.
  struct Family {
    ModelShape shape;
    GemmKind weights;
    bool float8_cache;
    OperatorTimes times;
    std::map<int, std::shared_ptr<const OperatorModel>> by_tensor_parallel = {};
  };
  Family& family_of(const ModelShape& shape, const OperatorModelOptions& options);

  AcceleratorSpec spec_;
  OperatorTables tables_;
  Executor* executor_;
  std::list<Family> families_;
};

}  // namespace windlass::planner
