// See split_thread.h.
#include "controller/app/split_thread.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "planner/search/split_advice.h"

namespace windlass::controller {
namespace {

// Simulated iterations for each strategy: some ten seconds of one core at the most, and the same answer on any machine.
constexpr std::int64_t kMostIterations = 20'000'000;

}  // namespace

SplitThread::SplitThread(SplitQuestions& questions, std::function<void()> on_answer)
    : questions_(questions), on_answer_(std::move(on_answer)), thread_([this] { run(); }) {}

SplitThread::~SplitThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void SplitThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    asked_ = true;
  }
  woken_.notify_one();
}

void SplitThread::run() {
  search::Effort effort;
  effort.stop = [this] { return stopping_.load(); };
  effort.most_iterations = kMostIterations;
  while (!stopping_) {
    const auto question = questions_.next();
    if (!question) {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return asked_ || stopping_; });
      asked_ = false;
      continue;
    }
    const auto advice = search::split_advice(question->service, question->classes, effort);
    if (!advice.ok()) continue;  // we end
    const planner::ServiceId& id = question->service.id;
    spdlog::info("{}/{}: split phases: {}", id.name_space, id.name,
                 advice->holds ? advice->strategy + " (" + advice->why + ")" : advice->why);
    questions_.answer(*question, *advice);
    on_answer_();
  }
}

}  // namespace windlass::controller
