// Queue: a stream of the emulated device. Work runs immediately, unless it is being captured; the first error is kept.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/cuda/emulation/execution.h"

namespace windlass::worker::cuda::emulation {

class Queue {
 public:
  using Work = std::function<Result<void>()>;

  // `broken`: once it is true, nothing runs any more. Null: never.
  Queue(const Schedule& schedule, const std::atomic<bool>* broken) : schedule_(schedule), broken_(broken) {}

  void put(Work work) {
    if (captured_) {
      captured_->push_back(std::move(work));
    } else if (broken_ != nullptr && *broken_) {
      outcome_ = Error{ErrorCode::kInternal, "the emulated device is broken"};
    } else if (outcome_.ok()) {
      outcome_ = work();
    }
  }
  [[nodiscard]] const Result<void>& outcome() const { return outcome_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }

  void begin_capture() { captured_.emplace(); }
  [[nodiscard]] std::vector<Work> end_capture() {
    std::vector<Work> work = std::move(*captured_);
    captured_.reset();
    return work;
  }

 private:
  const Schedule schedule_;
  const std::atomic<bool>* const broken_;
  Result<void> outcome_;
  std::optional<std::vector<Work>> captured_;
};

}  // namespace windlass::worker::cuda::emulation
