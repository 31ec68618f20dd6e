// See worker_chooser.h.
#include "planner/sim/worker_chooser.h"

#include <algorithm>
#include <cassert>

#include "planner/sim/packing_model.h"

namespace windlass::sim {

WorkerChooser::WorkerChooser(std::optional<dispatch::PolicyKind> policy, std::uint64_t seed, const std::string& stream,
                             const dispatch::PolicyRules& rules) {
  if (!policy) return;
  policy_ = dispatch::make_policy(*policy, Rng(seed, stream), rules);
  keeps_back_ = dispatch::keeps_requests_back(*policy);
  tracker_ = policy_->tracker();
  const bool huawei = *policy == dispatch::PolicyKind::kHuawei || *policy == dispatch::PolicyKind::kMemoryBased;
  if (huawei) form_ = planner::LinearForm::kHuawei;
}

const dispatch::PackingModel* WorkerChooser::packing_of(const ServingWorker& worker) {
  if (tracker_ == nullptr) return nullptr;
  auto& known = packing_[worker.pool];
  if (known == nullptr) {
    const planner::EngineSettings& engine = worker.pool->spec.engine;
    const auto tokens = static_cast<double>(worker.kv_blocks() * engine.block_tokens);
    const int most = engine.max_sequences * static_cast<int>(worker.lanes.size());
    known = std::make_unique<dispatch::PackingModel>(
        packing_model(*worker.pool->model, tokens, engine.block_tokens, most, form_).model);
  }
  return known.get();
}

void WorkerChooser::reset(const ServingWorkers& workers, const std::vector<Candidate>& candidates) {
  candidates_.clear();
  states_.clear();
  for (const Candidate& candidate : candidates) {
    assert(candidates_.empty() || candidates_.back() < candidate.worker);
    candidates_.push_back(candidate.worker);
    if (!policy_) continue;
    // Rate of a slot: one request alone on the worker, one token after another.
    const double rate =
        1 / workers[static_cast<std::size_t>(candidate.worker)]->pool->model->iteration_s(planner::decode_batch(1, 1024));
    states_.push_back(dispatch::ChainState{rate, candidate.slots, candidate.in_flight, false,
                                           static_cast<std::uint64_t>(candidate.worker),
                                           packing_of(*workers[static_cast<std::size_t>(candidate.worker)]),
                                           workers[static_cast<std::size_t>(candidate.worker)]->pool->dispatch_weight});
  }
  if (policy_) policy_->reset(states_);
}

void WorkerChooser::changed(int worker, int by) {
  if (!policy_) return;
  const auto index = index_of(worker);
  if (!index) return;
  states_[*index].in_flight += by;
  policy_->update(*index, states_[*index]);
}

std::optional<std::size_t> WorkerChooser::index_of(int worker) const {
  const auto at = std::lower_bound(candidates_.begin(), candidates_.end(), worker);
  if (at == candidates_.end() || *at != worker) return std::nullopt;
  return static_cast<std::size_t>(at - candidates_.begin());
}

void WorkerChooser::placed(int worker, const dispatch::RequestLengths& request) {
  if (tracker_ == nullptr) return;
  if (const auto index = index_of(worker)) tracker_->placed(*index, request);
}

void WorkerChooser::first_token(std::uint64_t id, double now_s) {
  if (tracker_ != nullptr) tracker_->first_token(id, now_s);
}

void WorkerChooser::iterated(int worker) {
  if (tracker_ == nullptr) return;
  if (const auto index = index_of(worker)) tracker_->iterated(*index);
}

void WorkerChooser::ended(std::uint64_t id, int output_tokens) {
  if (tracker_ != nullptr) tracker_->ended(id, output_tokens);
}

int two_choice(const ServingWorkers& workers, const std::vector<int>& candidates, const SequenceSpec& request, bool heavy,
               Rng& rng) {
  std::vector<int> roomy, all;
  for (const int candidate : candidates) {
    const ServingWorker& worker = *workers[static_cast<std::size_t>(candidate)];
    if (!worker.can_hold(request.prompt_tokens, request.output_tokens)) continue;
    all.push_back(candidate);
    const int page = worker.pool->spec.engine.block_tokens;
    const std::int64_t predicted =
        request.predicted_output_tokens > 0 ? request.predicted_output_tokens : request.output_tokens;
    if (worker.free_blocks() * page >= request.prompt_tokens + predicted) roomy.push_back(candidate);
  }
  const std::vector<int>& among = roomy.empty() ? all : roomy;
  if (among.empty()) return -1;
  if (among.size() == 1) return among.front();
  const auto last = static_cast<std::int64_t>(among.size()) - 1;
  const auto first = static_cast<std::size_t>(rng.integer(0, last));
  auto second = static_cast<std::size_t>(rng.integer(0, last - 1));
  if (second >= first) ++second;
  const auto at = [&](std::size_t index) -> const ServingWorker& { return *workers[static_cast<std::size_t>(among[index])]; };
  // Includes this request.
  const auto ratio = [](const ServingWorker& worker) {
    return (worker.heavy_decodes + 1.0) / std::max(1, worker.decodes - worker.heavy_decodes);
  };
  const ServingWorker &a = at(first), &b = at(second);
  if (heavy && ratio(a) != ratio(b)) return ratio(a) < ratio(b) ? a.id : b.id;
  return b.decodes < a.decodes ? b.id : a.id;
}

}  // namespace windlass::sim
