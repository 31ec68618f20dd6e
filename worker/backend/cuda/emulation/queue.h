// Queue: a stream of the emulated device. Work runs as it is put there, unless it is being captured; the first error stays.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/cuda/emulation/execution.h"

namespace windlass::worker::cuda::emulation {

class Queue {
 public:
  using Work = std::function<Result<void>()>;

  explicit Queue(const Schedule& schedule) : schedule_(schedule) {}

  void put(Work work) {
    if (captured_) {
      captured_->push_back(std::move(work));
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
  Result<void> outcome_;
  std::optional<std::vector<Work>> captured_;
};

}  // namespace windlass::worker::cuda::emulation
