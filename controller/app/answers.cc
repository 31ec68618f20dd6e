// See answers.h.
#include "controller/app/answers.h"

#include <random>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "metrics/host/clock.h"
#include "planner/whatif/split_advice.h"

namespace windlass::controller {
namespace {

// Limit of simulated iterations per strategy: at most about ten seconds of one core, and the same answer on any machine.
constexpr std::int64_t kMaxIterations = 20'000'000;

}  // namespace

bool answer_split(SplitQuestions& questions, const SideThread::Stop& stop) {
  const auto question = questions.next();
  if (!question) return false;
  search::Effort effort;
  effort.stop = stop;
  effort.max_iterations = kMaxIterations;
  const auto advice = search::split_advice(question->service, question->classes, effort);
  if (!advice.ok()) return true;  // shutting down
  const planner::ServiceId& id = question->service.id;
  spdlog::info("{}/{}: split phases: {}", id.name_space, id.name,
               advice->holds ? advice->strategy + " (" + advice->why + ")" : advice->why);
  questions.answer(*question, *advice);
  return true;
}

bool answer_probe(ProbeQuestions& questions, kube::HttpTransport& transport, const SideThread::Stop& stop) {
  const auto question = questions.next();
  if (!question) return false;
  auto measured = probe_worker(
      transport, [] { return now().monotonic_s; }, *question, std::random_device{}(), stop);
  const std::string& name_space = question->configuration.name_space;
  if (measured.ok()) {
    for (const planner::MeasuredIteration& one : *measured) {
      const std::string what = one.batch > 0 ? fmt::format("an iteration of {} requests", one.batch)
                                             : fmt::format("a prompt of {} tokens", one.prompt_tokens);
      spdlog::info("{}/{}: {} takes {:.3g} ms", name_space, question->worker, what, one.seconds * 1e3);
    }
    questions.answer(*question, std::move(*measured));
  } else {
    if (measured.error().code != ErrorCode::kCancelled) {
      spdlog::info("{}/{}: not measured before its first requests: {}", name_space, question->worker, measured.error().message);
    }
    questions.answer(*question, {});
  }
  return true;
}

}  // namespace windlass::controller
