// Implements one_answer.h.
#include "tests/bench/offers/one_answer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/policy/make_plan.h"
#include "planner/sizing/worker_count.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/offer_book.h"
#include "planner/whatif/question.h"

namespace windlass::bench {
namespace {

constexpr double kNow = 1000;

std::vector<std::string> pools_of(const planner::ServicePlan& plan) {
  std::vector<std::string> pools;
  for (const planner::Pool& pool : plan.pools) {
    if (pool.workers > 0)
      pools.push_back(fmt::format("{} x {} ({})", pool.workers, planner::worker_text(pool.spec), to_string(pool.role)));
  }
  std::sort(pools.begin(), pools.end());
  return pools;
}

// The workers of a plan as a controller sees them a moment later: they have started and do not serve yet.
void carry_out(const planner::ServicePlan& plan, double now_s, planner::Service& service) {
  service.workers.clear();
  for (const planner::Pool& pool : plan.pools) {
    for (int slot = 0; slot < pool.workers; ++slot) {
      planner::Worker worker;
      worker.name = fmt::format("{}-{}-{}", pool.name, to_string(pool.role), slot);
      worker.pool = pool.name;
      worker.role = pool.role;
      worker.slot = slot;
      worker.accelerator = pool.spec.accelerator;
      worker.gpus = pool.spec.gpus();
      worker.created_s = now_s;
      worker.max_concurrency = pool.each.max_concurrency;
      service.workers.push_back(std::move(worker));
    }
  }
  service.memory = plan.memory;
  service.last_desired = plan.desired_workers();
}

std::optional<double> attainment_of(const planner::Snapshot& snapshot, const planner::ServicePlan& plan) {
  const auto question = search::question_of(snapshot.services.front(), snapshot.accelerators);
  if (!question.ok()) return std::nullopt;
  const search::Problem& problem = question->problem();
  search::Deployment deployment;
  for (const planner::Pool& pool : plan.pools) {
    if (pool.workers < 1) continue;
    search::Pool simulated{pool.spec, pool.role, pool.workers};
    if (simulated.spec.engine == planner::EngineSettings{}) simulated.spec.engine = problem.engine;
    deployment.pools.push_back(std::move(simulated));
  }
  // As the gateways would do; a strategy that chooses no policy is judged with JSQ.
  dispatch::PolicySettings& policy = deployment.dispatch;
  if (plan.dispatch.policy != dispatch::kDefaultPolicy) policy = plan.dispatch;
  const double rate = problem.requests_per_s / planner::kDesignHeadroom;
  const auto run = search::try_out(problem, deployment, {rate, 2 * problem.requests_per_trial, problem.seed + 17});
  return run.ok() ? std::optional(run->attainment) : std::nullopt;
}

}  // namespace

planner::Snapshot random_service(std::uint64_t seed) {
  constexpr std::array kModels = {"llama3-8b", "llama3-70b", "mistral-7b", "qwen2.5-7b", "llama2-13b", "mixtral-8x7b"};
  Rng rng(seed, "one answer");
  const auto among = [&](const auto& values) {
    return values[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(values.size()) - 1))];
  };
  planner::Snapshot snapshot;
  snapshot.now_s = kNow;
  for (const std::string& name : planner::accelerator_names()) {
    planner::AcceleratorState state;
    state.spec = planner::accelerator_by_name(name).value();
    state.mode = planner::CapacityMode::kElastic;
    state.max_gpus = 4096;
    snapshot.accelerators.push_back(std::move(state));
  }
  planner::Service service;
  const std::string name = fmt::format("service-{}", seed);
  service.id = {"default", name, name};
  service.served_name = name;
  const char* const model = among(kModels);
  service.shape = planner::model_shape_by_name(model).value();
  service.max_context_tokens = 8192;
  service.workload.requests_per_s = std::pow(10.0, rng.uniform(-0.3, 1.7));
  service.workload.input_tokens = std::round(std::pow(10.0, rng.uniform(1.7, 3.5)));
  service.workload.output_tokens = std::round(std::pow(10.0, rng.uniform(1, 2.8)));
  service.slo.ttft_s = among(std::array{0.3, 0.5, 1.0, 2.0, 5.0});
  service.slo.tpot_s = among(std::array{0.03, 0.05, 0.08, 0.15});
  service.scaling.strategy = among(std::array{planner::Family::kAuto, planner::Family::kAuto, planner::Family::kReplicated,
                                              planner::Family::kDisaggregated});
  service.scaling.min_workers = 1;
  snapshot.services.push_back(std::move(service));
  return snapshot;
}

OneAnswer one_answer(const planner::Snapshot& snapshot) {
  const planner::Service& service = snapshot.services.front();
  OneAnswer answer;
  answer.service = fmt::format("{}/{}", service.id.name_space, service.id.name);
  answer.asked = service.slo.percentile / 100;
  const planner::Plan closed = planner::make_plan(snapshot);
  answer.closed_cost_per_hour = closed.services.front().predicted.cost_per_hour;

  planner::Snapshot previewed = snapshot;
  search::OfferBook book;
  static_cast<void>(search::attach_all_offers(book, previewed, search::Effort{}));
  const planner::Plan preview = planner::make_plan(previewed);
  answer.preview = pools_of(preview.services.front());
  answer.preview_cost_per_hour = preview.services.front().predicted.cost_per_hour;
  answer.answers = preview.services.front().strategies;
  answer.confirmed = preview.services.front().memory.offer.has_value();

  planner::Snapshot live = snapshot;
  carry_out(closed.services.front(), kNow, live.services.front());
  live.now_s += 2;
  live.services.front().offers = previewed.services.front().offers;
  const planner::Plan heard = planner::make_plan(live);
  answer.controller = pools_of(heard.services.front());
  answer.controller_cost_per_hour = heard.services.front().predicted.cost_per_hour;

  if (const auto question = search::question_of(service, snapshot.accelerators); question.ok()) {
    search::Effort effort;
    effort.max_iterations = search::max_iterations(1);
    const auto plan = (*search::strategy_by_name("auto"))->plan(question->problem(), effort);
    if (plan.ok() && plan->holds) answer.auto_cost_per_hour = plan->cost_per_hour;
  }
  if (!answer.preview.empty()) answer.attainment = attainment_of(snapshot, preview.services.front());
  return answer;
}

}  // namespace windlass::bench
