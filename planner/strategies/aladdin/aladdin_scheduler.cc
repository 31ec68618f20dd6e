// See aladdin_scheduler.h.
#include "planner/strategies/aladdin/aladdin_scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace windlass::search {

AladdinScheduler::AladdinScheduler(const dispatch::PackingModel& model, const dispatch::PackingRules& rules,
                                   std::size_t workers, std::size_t groups)
    : model_(model), groups_(std::max<std::size_t>(1, groups), Group(rules)) {
  for (std::size_t worker = 0; worker < workers; ++worker) {
    Group& group = groups_[worker % groups_.size()];
    group.fit.add_worker(model_);
    group.errors.emplace_back();
  }
}

void AladdinScheduler::place(Group& group, std::size_t number, std::span<const NewRequest> requests, double now_s,
                             Batch& batch) {
  std::vector<Movable> movable;
  for (const std::size_t index : batch.requests) {
    const NewRequest& request = requests[index];
    auto worker = group.fit.find(request.input_tokens, request.predicted_tokens, now_s);
    if (!worker) {
      worker = group.fit.add_worker(model_);
      group.errors.emplace_back();
    }
    batch.placed.push_back({number, *worker, group.next_handle++, request.predicted_tokens});
    group.fit.add(*worker, batch.placed.back().handle, request.input_tokens, request.predicted_tokens);
    movable.push_back({*worker, request.predicted_tokens});
  }
  const auto request_of = [&](std::size_t i) -> const NewRequest& { return requests[batch.requests[i]]; };
  const ErrorLine line{model_.context_token_s, model_.decode_request_s};
  const Rebalanced balanced = rebalance(
      line, std::move(group.errors), movable,
      [&](std::size_t i, std::size_t to) {
        const NewRequest& request = request_of(i);
        const dispatch::PackedWorker& worker = group.fit.worker(to);
        // Do not open workers only to even out errors.
        return worker.requests() > 0 && worker.fits(request.input_tokens, request.predicted_tokens, now_s);
      },
      [&](std::size_t i, std::size_t to) {
        Placed& placed = batch.placed[i];
        group.fit.remove(placed.worker, placed.handle);
        group.fit.add(to, placed.handle, request_of(i).input_tokens, request_of(i).predicted_tokens);
        placed.worker = to;
      });
  batch.moves = balanced.moves;
  group.errors.assign(group.fit.workers(), {});  // errors restart with the next heartbeat
}

std::vector<std::size_t> AladdinScheduler::heartbeat(std::span<const NewRequest> requests, double now_s, Executor& executor) {
  std::vector<Batch> batches(groups_.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    batches[next_group_].requests.push_back(i);
    next_group_ = (next_group_ + 1) % groups_.size();
  }
  executor.run(groups_.size(), [&](std::size_t g) { place(groups_[g], g, requests, now_s, batches[g]); });
  std::vector<std::size_t> workers(requests.size());
  for (const Batch& batch : batches) {
    moves_ += batch.moves;
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      const Placed& placed = batch.placed[i];
      placed_.emplace(requests[batch.requests[i]].id, placed);
      workers[batch.requests[i]] = placed.worker * groups_.size() + placed.group;
    }
  }
  return workers;
}

void AladdinScheduler::first_token(std::uint64_t id, double now_s) {
  const Placed& placed = placed_.at(id);
  groups_[placed.group].fit.begin_decode(placed.worker, placed.handle, now_s);
}

void AladdinScheduler::iterated(std::size_t worker) { groups_[worker % groups_.size()].fit.iterated(worker / groups_.size()); }

void AladdinScheduler::predict_again(std::uint64_t id, int predicted_tokens) {
  Placed& placed = placed_.at(id);
  Group& group = groups_[placed.group];
  group.fit.predict_again(placed.worker, placed.handle, predicted_tokens);
  group.errors[placed.worker].went_on(predicted_tokens);
  placed.predicted_tokens = predicted_tokens;
}

void AladdinScheduler::ended(std::uint64_t id, int output_tokens) {
  const auto at = placed_.find(id);
  assert(at != placed_.end());
  const Placed& placed = at->second;
  Group& group = groups_[placed.group];
  group.fit.remove(placed.worker, placed.handle);
  if (output_tokens < placed.predicted_tokens) {
    group.errors[placed.worker].ended_early(output_tokens, placed.predicted_tokens);
  }
  placed_.erase(at);
}

std::size_t AladdinScheduler::workers() const {
  std::size_t most = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].fit.workers() > 0) most = std::max(most, (groups_[g].fit.workers() - 1) * groups_.size() + g + 1);
  }
  return most;
}

bool AladdinScheduler::has_worker(std::size_t index) const {
  return index / groups_.size() < groups_[index % groups_.size()].fit.workers();
}

std::size_t AladdinScheduler::busy_workers() const {
  std::size_t busy = 0;
  for (const Group& group : groups_) {
    for (std::size_t worker = 0; worker < group.fit.workers(); ++worker) busy += group.fit.worker(worker).requests() > 0;
  }
  return busy;
}

const dispatch::PackedWorker& AladdinScheduler::worker(std::size_t index) const {
  return groups_[index % groups_.size()].fit.worker(index / groups_.size());
}

}  // namespace windlass::search
