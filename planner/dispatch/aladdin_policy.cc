// Sends each request to the fullest worker that keeps all constraints; see aladdin_policy.h.
#include "planner/dispatch/aladdin_policy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "planner/dispatch/rebalance.h"

namespace windlass::dispatch {

namespace {

PackingModel model_of(const ChainState& chain) {
  PackingModel model;
  model.max_requests = chain.capacity;
  if (chain.packing == nullptr) return model;
  model = *chain.packing;
  model.max_requests = std::min(model.max_requests, chain.capacity);
  return model;
}

}  // namespace

void AladdinPolicy::reset(std::span<const ChainState> chains) {
  std::map<std::uint64_t, std::size_t> known;  // worker by key
  for (std::size_t worker = 0; worker < keys_.size(); ++worker) {
    if (workers_.worker(worker).requests() > 0) known.emplace(keys_[worker], worker);
  }
  const BestFit old = std::exchange(workers_, BestFit(workers_.rules()));
  std::vector<std::size_t> now_at(old.workers(), 0);
  keys_.clear();
  for (std::size_t k = 0; k < chains.size(); ++k) {
    const ChainState& chain = chains[k];
    keys_.push_back(chain.key);
    const auto found = known.find(chain.key);
    if (found == known.end()) {
      workers_.add_worker(model_of(chain));
    } else {
      now_at[found->second] = workers_.add_worker(old.worker(found->second));
      known.erase(found);
    }
    update(k, chain);
  }
  for (const auto& [key, worker] : known) {
    now_at[worker] = workers_.add_worker(old.worker(worker));
    workers_.set_open(now_at[worker], false);
    keys_.push_back(key);
  }
  for (auto& [id, placed] : placed_) placed.worker = now_at[placed.worker];
  choice_.reset();
}

void AladdinPolicy::update(std::size_t index, const ChainState& state) {
  workers_.set_open(index, state.has_free_slot());
  workers_.set_model(index, model_of(state));
}

int AladdinPolicy::input_of(const RequestLengths& request) const {
  if (request.input_tokens > 0) return request.input_tokens;
  return std::max(1, static_cast<int>(std::lround(std::min(1e9, history_.mean_input_tokens()))));
}

int AladdinPolicy::prediction_for(const RequestLengths& request) const {
  return request.output_tokens > 0 ? request.output_tokens : history_.predict(input_of(request));
}

std::optional<std::size_t> AladdinPolicy::choose_for(const RequestLengths& request, double now_s) {
  const int input = input_of(request), predicted = prediction_for(request);
  choice_.reset();
  asked_s_ = now_s;
  const auto best = workers_.find(input, predicted, now_s);
  if (!best || !workers_.rules().rebalances) return best;
  const std::size_t chosen = dispatch::rebalanced(workers_, *best, input, predicted, now_s);
  if (chosen != *best) choice_ = Choice{request.id, *best, chosen};
  return chosen;
}

void AladdinPolicy::placed(std::size_t chain, const RequestLengths& request) {
  const Placed at{chain, next_handle_++, input_of(request)};
  const auto choice = std::exchange(choice_, std::nullopt);
  if (!placed_.emplace(request.id, at).second) return;
  const int predicted = prediction_for(request);
  workers_.add(chain, at.handle, at.input_tokens, predicted, asked_s_);
  if (!choice || choice->id != request.id || choice->chosen != chain) return;
  workers_.moved(choice->best_fit, chain, at.handle, predicted);
  ++rebalanced_;
}

void AladdinPolicy::first_token(std::uint64_t id, double now_s) {
  const auto at = placed_.find(id);
  if (at != placed_.end()) workers_.begin_decode(at->second.worker, at->second.handle, now_s);
}

void AladdinPolicy::predict_overdue(std::size_t worker) {
  while (const auto overdue = workers_.worker(worker).overdue()) {
    workers_.predict_again(worker, overdue->request, history_.predict(overdue->input_tokens, overdue->made));
  }
}

void AladdinPolicy::iterated(std::size_t chain) {
  workers_.iterated(chain);
  predict_overdue(chain);
}

void AladdinPolicy::tokens_made(std::uint64_t id, int count) {
  const auto at = placed_.find(id);
  if (at == placed_.end()) return;
  workers_.tokens_made(at->second.worker, at->second.handle, count);
  predict_overdue(at->second.worker);
}

void AladdinPolicy::ended(std::uint64_t id, int output_tokens) {
  const auto at = placed_.find(id);
  if (at == placed_.end()) return;
  workers_.remove(at->second.worker, at->second.handle, output_tokens);
  if (output_tokens > 0) history_.observe(at->second.input_tokens, output_tokens);
  placed_.erase(at);
}

}  // namespace windlass::dispatch
