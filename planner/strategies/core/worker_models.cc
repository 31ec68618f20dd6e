// See worker_models.h.
#include "planner/strategies/core/worker_models.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "planner/perf/scaled_model.h"

namespace windlass::search {
namespace {

using Model = std::shared_ptr<const planner::IterationModel>;

// Modifies another model's times.
class Changed : public planner::IterationModel {
 public:
  explicit Changed(Model of) : of_(std::move(of)) {}

  [[nodiscard]] double kv_capacity_tokens() const override { return of_->kv_capacity_tokens(); }
  [[nodiscard]] int pipeline_stages() const override { return of_->pipeline_stages(); }

 protected:
  [[nodiscard]] const planner::IterationModel& of() const { return *of_; }

 private:
  Model of_;
};

class Capped final : public Changed {
 public:
  Capped(Model of, const PowerCap& cap) : Changed(std::move(of)), cap_(cap) {}

  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override {
    return of().iteration_s(batch) * slowdown(batch);
  }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch& batch) const override {
    return slowdown(batch) == 1 ? of().coverage(batch) : planner::Coverage::kModelled;
  }

 private:
  [[nodiscard]] double slowdown(const planner::Batch& batch) const {
    return batch.prefill_sequences > 0 ? cap_.prompt_slowdown : cap_.token_slowdown;
  }

  PowerCap cap_;
};

// Padding is computed like tokens, but nothing attends to it.
class Padded final : public Changed {
 public:
  Padded(Model of, int chunk_tokens) : Changed(std::move(of)), chunk_tokens_(chunk_tokens) {}

  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override { return of().iteration_s(padded(batch)); }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch& batch) const override { return of().coverage(padded(batch)); }

 private:
  [[nodiscard]] planner::Batch padded(planner::Batch batch) const {
    if (batch.prefill_sequences > 0) batch.prefill_tokens = std::max<double>(batch.prefill_tokens, chunk_tokens_);
    return batch;
  }

  int chunk_tokens_;
};

class Slowed final : public Changed {
 public:
  Slowed(Model of, double slowdown) : Changed(std::move(of)), slowdown_(slowdown) {}

  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override { return slowdown_ * of().iteration_s(batch); }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch& batch) const override { return of().coverage(batch); }

 private:
  double slowdown_;
};

class Instant final : public planner::IterationModel {
 public:
  [[nodiscard]] double iteration_s(const planner::Batch&) const override { return 0; }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kMeasured; }
  [[nodiscard]] double kv_capacity_tokens() const override { return 1e15; }
};

}  // namespace

const WorkerKind* find_kind(const Problem& problem, const WorkerSpec& spec) {
  const auto found = std::find_if(problem.kinds.begin(), problem.kinds.end(), [&](const WorkerKind& kind) {
    return kind.tensor_parallel == spec.tensor_parallel && kind.pipeline_stages == spec.pipeline_stages &&
           problem.spec(kind).name == spec.accelerator;
  });
  return found == problem.kinds.end() ? nullptr : &*found;
}

const WorkerKind& kind_of(const Problem& problem, const WorkerSpec& spec) {
  const WorkerKind* kind = find_kind(problem, spec);
  assert(kind != nullptr);
  return *kind;
}

Model model_of(const Problem& problem, const WorkerSpec& spec) {
  const WorkerKind& kind = kind_of(problem, spec);
  Model model = planner::at_end(kind.model, kind.errors, problem.times);
  if (spec.power_share < 1) model = std::make_shared<Capped>(std::move(model), problem.power_cap);
  if (spec.engine.pads_chunks) model = std::make_shared<Padded>(std::move(model), spec.engine.max_batch_tokens);
  if (spec.length_predictor) model = std::make_shared<Slowed>(std::move(model), problem.predictor_slowdown);
  return model;
}

WorkerSpec add_instant_kind(Problem& problem) {
  WorkerKind instant;
  instant.accelerator = static_cast<int>(problem.accelerators.size());
  instant.model = std::make_shared<Instant>();
  instant.kv_capacity_tokens = instant.model->kv_capacity_tokens();
  problem.accelerators.emplace_back().spec.name = "instant";
  problem.kinds.push_back(std::move(instant));
  return problem.pool(static_cast<int>(problem.kinds.size()) - 1).spec;
}

}  // namespace windlass::search
