// See answers.h.
#include "controller/app/answers.h"

#include <random>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "metrics/host/clock.h"
#include "planner/whatif/offer_search.h"

namespace windlass::controller {
bool answer_offers(OfferQuestions& questions, const SideThread::Stop& stop) {
  const auto question = questions.next();
  if (!question) return false;
  search::Effort effort;
  effort.stop = stop;
  const auto offers = search::search_offers(*question, effort);
  if (!offers.ok()) return true;  // shutting down
  const planner::ServiceId& id = question->service.id;
  if (offers->confirmed.empty()) {
    spdlog::info("{}/{}: {}", id.name_space, id.name, offers->why);
  } else {
    const planner::Offer& best = offers->confirmed.front();
    spdlog::info("{}/{}: {} offers {} for {:.4g} per hour at {:.4g} requests/s", id.name_space, id.name, best.strategy,
                 describe(best), best.cost_per_hour, best.requests_per_s);
  }
  questions.answer(*question, *offers);
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
