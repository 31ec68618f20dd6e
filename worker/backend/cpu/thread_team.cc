// Waits with std::atomic::wait: a short spin, then the kernel.
#include "worker/backend/cpu/thread_team.h"

#include <cassert>
#include <utility>

namespace windlass::worker::cpu {

ThreadTeam::ThreadTeam(int threads, std::vector<int> processors) : processors_(std::move(processors)) {
  assert(threads >= 1);
  assert(processors_.empty() || processors_.size() == static_cast<std::size_t>(threads));
  try {
    for (int member = 1; member < threads; ++member) {
      threads_.emplace_back([this, member] { serve(member); });
    }
  } catch (...) {
    end();  // the threads already started would wait for work for ever
    throw;
  }
}

ThreadTeam::~ThreadTeam() { end(); }

void ThreadTeam::end() {
  ended_ = true;
  pieces_.fetch_add(1, std::memory_order_release);
  pieces_.notify_all();
}

StaysOn ThreadTeam::enter() const { return StaysOn(processor_of(0)); }

std::optional<int> ThreadTeam::processor_of(int member) const {
  if (processors_.empty()) return std::nullopt;
  return processors_[static_cast<std::size_t>(member)];
}

void ThreadTeam::share(const Piece& piece) {
  assert(working_.load() == 0);
  piece_ = piece;
  next_.store(0, std::memory_order_relaxed);
  working_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  pieces_.fetch_add(1, std::memory_order_release);
  pieces_.notify_all();
  take_parts(0);
  // Every thread joins every call, even if nothing is left for it, so no thread can take a part of the next call by mistake.
  for (std::uint32_t left = working_.load(std::memory_order_acquire); left > 0;
       left = working_.load(std::memory_order_acquire)) {
    working_.wait(left, std::memory_order_acquire);
  }
}

void ThreadTeam::take_parts(int member) noexcept {
  for (std::int64_t part = next_.fetch_add(1, std::memory_order_relaxed); part < piece_.parts;
       part = next_.fetch_add(1, std::memory_order_relaxed)) {
    piece_.call(piece_.what, part, member);
  }
}

void ThreadTeam::serve(int member) noexcept {
  // If the system refuses, e.g. after a change of the container's cpuset, the thread runs elsewhere.
  const StaysOn here(processor_of(member));
  for (std::uint32_t seen = 0;; ++seen) {
    pieces_.wait(seen, std::memory_order_acquire);
    if (ended_) return;
    take_parts(member);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

}  // namespace windlass::worker::cpu
