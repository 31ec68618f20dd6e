// Finds the fullest worker that a request fits; see best_fit.h.
#include "planner/dispatch/best_fit.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace windlass::dispatch {

std::size_t BestFit::block_of(std::uint32_t worker) const {
  // The last block whose first worker is not after this one.
  const auto comes_after = [&](std::uint32_t of, const Block& block) { return before(of, block.workers.front()); };
  const auto next = std::upper_bound(blocks_.begin(), blocks_.end(), worker, comes_after);
  return next == blocks_.begin() ? 0 : static_cast<std::size_t>(next - blocks_.begin()) - 1;
}

void BestFit::measure(Block& block) const {
  block.most = slots_[block.workers.front()].rooms;
  for (const std::uint32_t worker : block.workers) block.most.widen(slots_[worker].rooms);
}

void BestFit::enter(std::uint32_t worker) {
  if (!slots_[worker].open) return;
  if (blocks_.empty()) blocks_.emplace_back();
  const std::size_t at = blocks_.front().workers.empty() ? 0 : block_of(worker);
  Block& block = blocks_[at];
  const auto place = std::upper_bound(block.workers.begin(), block.workers.end(), worker,
                                      [&](std::uint32_t a, std::uint32_t b) { return before(a, b); });
  block.workers.insert(place, worker);
  if (block.workers.size() < 2 * kBlock) {
    measure(block);
    return;
  }
  Block second;
  second.workers.assign(block.workers.begin() + kBlock, block.workers.end());
  block.workers.resize(kBlock);
  measure(block);
  measure(second);
  blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(second));
}

void BestFit::leave(std::uint32_t worker) {
  if (!slots_[worker].open) return;
  const std::size_t at = block_of(worker);
  Block& block = blocks_[at];
  const auto place = std::lower_bound(block.workers.begin(), block.workers.end(), worker,
                                      [&](std::uint32_t a, std::uint32_t b) { return before(a, b); });
  assert(place != block.workers.end() && *place == worker);
  block.workers.erase(place);
  if (block.workers.empty()) {
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  } else {
    measure(block);
  }
}

template <class Change>
void BestFit::change(std::size_t worker, const Change& what) {
  Slot& slot = slots_[worker];
  const auto number = static_cast<std::uint32_t>(worker);
  const double before_norm = slot.norm;
  what(slot.worker);
  slot.rooms = slot.worker.rooms();
  if (slot.worker.norm() == before_norm) {
    if (slot.open) measure(blocks_[block_of(number)]);
    return;
  }
  leave(number);
  slot.norm = slot.worker.norm();
  enter(number);
}

std::size_t BestFit::add_worker(PackedWorker worker) {
  slots_.push_back({std::move(worker), {}, 0, true});
  Slot& slot = slots_.back();
  slot.rooms = slot.worker.rooms();
  slot.norm = slot.worker.norm();
  enter(static_cast<std::uint32_t>(slots_.size() - 1));
  return slots_.size() - 1;
}

void BestFit::set_open(std::size_t worker, bool open) {
  if (slots_[worker].open == open) return;
  const auto number = static_cast<std::uint32_t>(worker);
  if (!open) leave(number);
  slots_[worker].open = open;
  if (open) enter(number);
}

std::optional<std::size_t> BestFit::find(int input_tokens, int predicted_tokens, double now_s) const {
  const double weight = input_tokens + rules_.gamma * predicted_tokens, theta_now_s = rules_.theta * now_s;
  const std::size_t horizon = PackedWorker::horizon_of(predicted_tokens);
  for (const Block& block : blocks_) {
    if (!block.most.may_take(input_tokens, weight, horizon, theta_now_s)) continue;
    for (const std::uint32_t worker : block.workers) {
      const Slot& slot = slots_[worker];
      if (!slot.rooms.may_take(input_tokens, weight, horizon, theta_now_s)) continue;
      if (slot.worker.fits(input_tokens, predicted_tokens, now_s)) return worker;
    }
  }
  return std::nullopt;
}

void BestFit::add(std::size_t worker, Handle request, int input_tokens, int predicted_tokens, double now_s) {
  change(worker, [&](PackedWorker& at) { at.add(request, input_tokens, predicted_tokens, now_s); });
}

void BestFit::begin_decode(std::size_t worker, Handle request, double now_s) {
  change(worker, [&](PackedWorker& at) { at.begin_decode(request, now_s); });
}

void BestFit::iterated(std::size_t worker) {
  change(worker, [](PackedWorker& at) { at.iterated(); });
}

void BestFit::tokens_made(std::size_t worker, Handle request, int count) {
  change(worker, [&](PackedWorker& at) { at.tokens_made(request, count); });
}

void BestFit::predict_again(std::size_t worker, Handle request, int predicted_tokens) {
  change(worker, [&](PackedWorker& at) { at.predict_again(request, predicted_tokens); });
}

void BestFit::remove(std::size_t worker, Handle request, int output_tokens) {
  change(worker, [&](PackedWorker& at) { at.remove(request, output_tokens); });
}

void BestFit::moved(std::size_t from, std::size_t to, Handle request, int predicted_tokens) {
  slots_[from].worker.gave(predicted_tokens);
  slots_[to].worker.took(request);
}

void BestFit::set_model(std::size_t worker, const PackingModel& model) {
  if (slots_[worker].worker.model() == model) return;
  change(worker, [&](PackedWorker& at) { at.set_model(model); });
}

}  // namespace windlass::dispatch
