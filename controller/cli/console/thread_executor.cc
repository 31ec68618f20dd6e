// Runs tasks on threads; see thread_executor.h.
#include "controller/cli/console/thread_executor.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace windlass::cli {

ThreadExecutor::ThreadExecutor(int threads)
    : threads_(threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {}

void ThreadExecutor::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::jthread> others;
  const std::size_t wanted = std::min(static_cast<std::size_t>(threads_), count);
  for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(work);
  work();
}

}  // namespace windlass::cli
