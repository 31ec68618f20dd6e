// See aladdin_mip.h.
#include "tests/reference/papers/aladdin_mip.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/mip/mixed_integer_program.h"

namespace windlass::search {
namespace {

using mip::Term;

// Strict enough that solutions within Cbc's tolerance satisfy the constraints up to rounding.
constexpr double kTolerance = 1e-9;

class Model {
 public:
  Model(std::span<const dispatch::PackedWorker> workers, const dispatch::PackingRules& rules,
        std::span<const NewRequest> requests, double now_s)
      : workers_(workers), rules_(rules), requests_(requests), now_s_(now_s) {
    for (std::size_t i = 0; i < workers.size(); ++i) {
      used_.push_back(program_.add_variable({workers[i].requests() > 0 ? 1.0 : 0.0, 1, 1, true}));                  // y_i
      for (std::size_t j = 0; j < requests.size(); ++j) placed_.push_back(program_.add_variable({0, 1, 0, true}));  // x_ij
    }
    for (std::size_t j = 0; j < requests.size(); ++j) {
      std::vector<Term> sum;
      for (std::size_t i = 0; i < workers.size(); ++i) sum.push_back({x(i, j), 1});
      program_.add_equal(std::move(sum), 1);  // (a)
    }
    for (std::size_t i = 0; i < workers.size(); ++i) constrain(i);
    // Empty workers are interchangeable: use the first ones first.
    for (std::size_t i = 1; i < workers.size(); ++i) {
      if (workers[i].requests() == 0 && workers[i - 1].requests() == 0) {
        program_.add_at_least({{used_[i - 1], 1}, {used_[i], -1}}, 0);
      }
    }
  }

  [[nodiscard]] const mip::MixedIntegerProgram& program() const { return program_; }
  [[nodiscard]] int x(std::size_t i, std::size_t j) const { return placed_[i * requests_.size() + j]; }

 private:
  // sum of of(j) x_ij <= limit.
  template <class Of>
  void limit(std::size_t i, const Of& of, double most) {
    std::vector<Term> sum;
    for (std::size_t j = 0; j < requests_.size(); ++j) {
      if (const double value = of(requests_[j]); value != 0) sum.push_back({x(i, j), value});
    }
    // If the existing load exceeds the limit, nothing new may be added; the existing load is fixed.
    program_.add_at_most(std::move(sum), std::max(0.0, most));
  }

  void constrain(std::size_t i) {
    const dispatch::PackedWorker& worker = workers_[i];
    const dispatch::PackingModel& model = worker.model();
    for (std::size_t j = 0; j < requests_.size(); ++j) program_.add_at_most({{x(i, j), 1}, {used_[i], -1}}, 0);  // (f)
    limit(
        i, [](const NewRequest&) { return 1.0; }, model.max_requests - worker.requests());
    if (rules_.phase != dispatch::PackingPhase::kPrefill && model.context_token_s > 0) {  // (b)
      limit(
          i,
          [&](const NewRequest& r) {
            return model.context_token_s * (r.input_tokens + rules_.gamma * r.predicted_tokens) + model.decode_request_s;
          },
          rules_.theta * rules_.tpot_s - model.decode_s - model.decode_request_s * worker.requests() -
              model.context_token_s * worker.context());
    }
    if (rules_.phase != dispatch::PackingPhase::kDecode && model.prefill_token_s > 0) {  // (c), (d)
      const double max_s = std::min(rules_.ttft_s, rules_.theta * worker.saved_s(now_s_)) - model.prefill_s -
                           model.prefill_token_s * worker.waiting_prompt_tokens();
      if (std::isfinite(max_s)) {
        limit(
            i, [&](const NewRequest& r) { return model.prefill_token_s * r.input_tokens; }, max_s);
      }
    }
    if (model.kv_capacity_tokens <= 0) return;
    std::set<std::int64_t> ends = {0};
    if (rules_.phase != dispatch::PackingPhase::kPrefill) {
      for (const std::int64_t end : worker.ends_after()) ends.insert(end);
      for (const NewRequest& request : requests_) ends.insert(request.predicted_tokens);
    }
    for (const std::int64_t end : ends) {  // (e)
      limit(
          i,
          [&](const NewRequest& r) {
            const bool there = rules_.phase == dispatch::PackingPhase::kPrefill || r.predicted_tokens >= end;
            return there ? r.input_tokens + model.kv_request_tokens + static_cast<double>(end) : 0.0;
          },
          model.kv_capacity_tokens - worker.cache_after(end));
    }
  }

  std::span<const dispatch::PackedWorker> workers_;
  const dispatch::PackingRules& rules_;
  std::span<const NewRequest> requests_;
  double now_s_;
  mip::MixedIntegerProgram program_;
  std::vector<int> used_, placed_;
};

}  // namespace

Result<ExactPlacement> place_exactly(std::span<const dispatch::PackedWorker> workers, const dispatch::PackingRules& rules,
                                     std::span<const NewRequest> requests, double now_s, long max_nodes) {
  const Model model(workers, rules, requests, now_s);
  WINDLASS_ASSIGN_OR_RETURN(const auto solution, mip::solve(model.program(), max_nodes));
  if (solution.values.empty()) {
    return Error{ErrorCode::kNotFound, "no placement of the new requests on these workers satisfies the constraints"};
  }
  ExactPlacement exact;
  exact.used = static_cast<int>(std::lround(solution.objective));
  exact.proven = solution.status == mip::Status::kOptimal;
  for (std::size_t j = 0; j < requests.size(); ++j) {
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (solution.values[static_cast<std::size_t>(model.x(i, j))] > 1 - kTolerance) exact.workers.push_back(i);
    }
  }
  return exact;
}

}  // namespace windlass::search
