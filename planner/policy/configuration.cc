// See configuration.h.
#include "planner/policy/configuration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/perf/linear_model.h"
#include "planner/policy/tuning.h"
#include "planner/sizing/phases.h"
#include "planner/sizing/replicated.h"
#include "planner/sizing/tpot_tail.h"

namespace windlass::planner {
namespace {

// Slots the pool's workers had before; none if there were none or they no longer fit.
PoolSlots slots_before(const PolicyMemory& memory, const PoolId& pool, int most) {
  for (const PoolSlots& before : memory.slots) {
    if (before.pool_id() == pool && before.slots >= 1 && before.slots <= most) return before;
  }
  return {};
}

// Slots change only if the model's value moves by more than the band: one slot more or less hardly matters, and each change
// makes gateways redistribute slots. While requests wait, every slot matters.
int settled_slots(const ConfigurationInput& input, const PoolId& pool, int slots, int most) {
  const int before = slots_before(*input.memory, pool, most).slots;
  if (before < 1) return slots;
  const double up = input.requests_wait ? 1 : kSlotsUp;
  return slots >= kSlotsDown * before && slots <= up * before ? before : slots;
}

// Slots between two bounds: at least what the upper bound of TPOT allows, at most what its mean allows. Between them, one more
// slot is tried at a time while requests wait and the current slots are in use. Measuring at one more slot tightens the bound
// there.
int explored_slots(const ConfigurationInput& input, const WorkerEstimate& known, const PoolId& pool, int mean, int bound,
                   int most) {
  const PoolSlots last = slots_before(*input.memory, pool, most);
  const int before = last.slots;
  // Keep explored slots as long as the mean meets the objective.
  const int slots = std::clamp(before, std::min(mean, bound), mean);
  const bool in_use = known.estimate.largest_batch >= kSlotsInUse * before;
  const bool seen = !last.changed_s || input.snapshot->now_s - *last.changed_s >= kExploreEveryS;
  return input.requests_wait && in_use && seen && before >= slots ? std::min(before + 1, mean) : slots;
}

// Two significant digits: a smaller correction does not create a new routing table.
double stepped(double value) {
  if (!(value > 0)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

// Aladdin's linear model, fitted to ours at contexts of one to two thousand tokens.
dispatch::PackingModel packing_of(const LatencyModel& model, int max_requests) {
  constexpr double kShort = 1024, kLong = 2048;
  const double prefill_token_s = (model.prefill_s(kLong) - model.prefill_s(kShort)) / (kLong - kShort);
  const double one_s = model.decode_s(1, kShort);
  const double context_token_s = (model.decode_s(1, kLong) - one_s) / (kLong - kShort);
  const double request_s = model.decode_s(2, kShort) - one_s - context_token_s * kShort;
  dispatch::PackingModel packing;
  packing.prefill_token_s = stepped(prefill_token_s);
  packing.prefill_s = stepped(model.prefill_s(kShort) - prefill_token_s * kShort);
  packing.context_token_s = stepped(context_token_s);
  packing.decode_request_s = stepped(request_s);
  packing.decode_s = stepped(one_s - context_token_s * kShort - request_s);
  packing.kv_capacity_tokens = std::floor(std::max(0.0, model.kv_capacity_tokens()));
  packing.kv_request_tokens = kKvBlockTokens;
  packing.max_requests = max_requests;
  return packing;
}

// Sets slots and times for the lengths believed now.
void fit_to_lengths(Configuration& configuration, const ConfigurationInput& input, const LatencyModel& model,
                    const WorkerEstimate* known, const LatencyModel& bound, double slots_ratio) {
  const int most = std::max(1, configuration.pool.each.max_concurrency);
  const auto raised = [&](int slots) { return static_cast<int>(std::lround(slots * slots_ratio)); };
  const BatchChoice choice = largest_batch(model, objective_of(*input.service), input.believed);
  int slots = std::min(most, raised(choice.batch));
  if (known != nullptr && slots > 1) {
    const BatchChoice surely = largest_batch(bound, objective_of(*input.service), input.believed);
    slots = explored_slots(input, *known, configuration.pool.id(), slots, std::max(1, raised(surely.batch)), most);
  }
  configuration.keeps_objective = choice.batch > 0;
  if (choice.batch == 0) {
    // Even a single request misses the objective. Not batching would only add waiting, so relax the objective by the excess.
    // This way slots do not jump at the point where it is just met.
    const auto loosened = [](double objective_s, double alone_s) {
      const double broken_by_s = std::max(0.0, alone_s - objective_s);
      return std::min(objective_s + kBatchedSlope * broken_by_s, std::max(objective_s, kBatchedSlack * alone_s));
    };
    Objective nearest = objective_of(*input.service);
    nearest.ttft_s = loosened(nearest.ttft_s, choice.times.ttft_s);
    nearest.tpot_s = loosened(nearest.tpot_s, choice.times.tpot_s / kTpotMargin);
    slots = std::min(most, largest_batch(model, nearest, input.believed).batch);
  }
  configuration.pool.each.slots = settled_slots(input, configuration.pool.id(), std::max(1, slots), most);
  const double batch = std::max(1.0, configuration.pool.each.slots / slots_ratio);
  configuration.times = worker_times(model, batch, input.believed);
  if (known != nullptr && configuration.times.decode_s > 0) {
    const WorkerTimes bounded = worker_times(bound, batch, input.believed);
    configuration.uncertainty = bounded.decode_s / configuration.times.decode_s - 1;
  }
  configuration.rate_within_tpot_per_s =
      rate_within_tpot(model, objective_of(*input.service), input.believed, configuration.pool.each.slots);
  configuration.pool.each.service_rate_per_s = 1 / configuration.times.service_s;
  configuration.pool.each.kv_cache_tokens = static_cast<std::int64_t>(std::max(0.0, model.kv_capacity_tokens()));
  configuration.pool.each.packing = packing_of(model, most);
}

// The same for workers of one phase.
void fit_to_phase(Configuration& configuration, const ConfigurationInput& input, const LatencyModel& model) {
  Pool& pool = configuration.pool;
  const int most = std::max(1, pool.each.max_concurrency);
  const PhaseFit fit = pool.role == dispatch::Role::kPrefill
                           ? fit_prefill(model, input.believed, most)
                           : fit_decode(model, objective_of(*input.service), input.believed, most);
  configuration.times = fit.times;
  pool.each.slots = settled_slots(input, pool.id(), std::max(1, fit.slots), most);
  // Same rate with one slot more or less.
  if (fit.slots > 0) configuration.times.service_s *= static_cast<double>(pool.each.slots) / fit.slots;
  pool.each.service_rate_per_s = configuration.times.service_s > 0 ? 1 / configuration.times.service_s : 0;
  pool.each.kv_cache_tokens = static_cast<std::int64_t>(std::max(0.0, model.kv_capacity_tokens()));
  pool.each.packing = packing_of(model, most);
}

}  // namespace

Objective objective_of(const Service& service) {
  return Objective{service.slo.ttft_s, service.slo.tpot_s, service.slo.percentile};
}

Configuration make_configuration(const ConfigurationInput& input, const AcceleratorSpec& spec, const GpuSplit& split, int batch,
                                 std::string pool, dispatch::Role role, double slots_ratio) {
  Configuration configuration;
  configuration.pool.name = std::move(pool);
  configuration.pool.role = role;
  configuration.pool.spec.accelerator = spec.name;
  configuration.pool.spec.tensor_parallel = split.tensor_parallel;
  configuration.pool.spec.pipeline_stages = split.stages;
  configuration.pool.each.max_concurrency = batch;
  configuration.price_per_hour = split.gpus() * spec.price_per_hour;
  const LinearCoefficients sheet = linear_coefficients(*input.service->shape, spec, split, input.service->engine);
  const WorkerEstimate* known = find_estimate(input.service->estimates, spec.name, split);
  const IterationEstimate nothing;
  const IterationEstimate& estimate = known != nullptr ? known->estimate : nothing;
  const LinearModel model(estimated(sheet, estimate));
  if (role == dispatch::Role::kUnified) {
    fit_to_lengths(configuration, input, model, known, UpperBoundModel(sheet, estimate), slots_ratio);
  } else {
    fit_to_phase(configuration, input, model);
  }
  const double context = input.believed.input_tokens + kContextGrowth * input.believed.output_tokens;
  const WorkerLoad load{role == dispatch::Role::kPrefill ? 0 : static_cast<double>(configuration.pool.each.slots), context,
                        role == dispatch::Role::kDecode ? 0 : input.believed.input_tokens};
  configuration.errors =
      believed_errors(*input.service->shape, spec, split, input.service->engine, sheet, input.service->estimates, load);
  return configuration;
}

Configuration at_end(const Service& service, const AcceleratorSpec& spec, const Lengths& lengths, const Configuration& expected,
                     double longer, double longer_ttft) {
  Configuration end = expected;
  end.times.ttft_s *= longer_ttft;
  for (double* time : {&end.times.prefill_s, &end.times.decode_s, &end.times.tpot_s, &end.times.service_s}) *time *= longer;
  end.pool.each.service_rate_per_s /= longer;
  end.rate_within_tpot_per_s /= longer;
  if (expected.pool.role == dispatch::Role::kUnified && expected.rate_within_tpot_per_s > 0) {
    // Times that are longer by a factor at a rate are the expected times at a shorter objective and that multiple of the rate.
    const LinearModel model(
        believed_coefficients(*service.shape, spec, expected.pool.spec.split(), service.engine, service.estimates));
    Objective objective = objective_of(service);
    objective.tpot_s /= longer;
    end.rate_within_tpot_per_s = rate_within_tpot(model, objective, lengths, expected.pool.each.slots) / longer;
  }
  return end;
}

bool may_use(const Service& service, const std::string& accelerator) {
  return accelerator.empty() || service.accelerators.empty() ||
         std::any_of(service.accelerators.begin(), service.accelerators.end(),
                     [&](const AllowedAccelerator& one) { return one.accelerator == accelerator; });
}

std::vector<AllowedAccelerator> allowed_of(const Service& service, const Snapshot& snapshot) {
  if (!service.accelerators.empty()) return service.accelerators;
  std::vector<AllowedAccelerator> all;
  for (const AcceleratorState& state : snapshot.accelerators) all.push_back(AllowedAccelerator{state.spec.name, std::nullopt});
  return all;
}

double requests_per_s(const Configuration& configuration) {
  const double full = configuration.pool.each.slots * configuration.pool.each.service_rate_per_s;
  const double closed = configuration.rate_within_tpot_per_s > 0 ? std::min(full, configuration.rate_within_tpot_per_s) : full;
  return closed * configuration.capacity_ratio;
}

double effective_service_s(const Configuration& configuration) {
  return configuration.times.service_s * configuration.load_share / configuration.capacity_ratio;
}

int max_concurrency_of(const Service& service, double kv_capacity_tokens) {
  const int context = service.max_context_tokens > 0 ? service.max_context_tokens : service.shape->max_context_tokens;
  return batch_in_memory(kv_capacity_tokens, Lengths{service.workload.input_tokens, service.workload.output_tokens},
                         service.reserves_context ? context : 0);
}

std::string figure(double value) { return fmt::format("{:.6g}", value); }

Configuration describe_running(const ConfigurationInput& input, const Worker& worker) {
  const Service& service = *input.service;
  const AcceleratorState* state = find_accelerator(*input.snapshot, worker.accelerator);
  const GpuSplit split = worker.split();
  const bool known = state != nullptr && service.shape && worker.gpus >= 1 &&
                     peak_flops_for(state->spec, service.shape->dtype) > 0 &&
                     (split.tensor_parallel == 1 || state->spec.intra_link_bandwidth_bytes_per_s > 0);
  if (known)
    return make_configuration(input, state->spec, split, std::max(1, worker.max_concurrency), worker.pool, worker.role);
  // Its class or the model's shape is unknown: keep the slots it has; JFFC uses it last.
  Configuration configuration;
  configuration.pool.name = worker.pool;
  configuration.pool.role = worker.role;
  configuration.pool.spec.accelerator = worker.accelerator;
  configuration.pool.spec.tensor_parallel = split.tensor_parallel;
  configuration.pool.spec.pipeline_stages = split.stages;
  configuration.pool.each.max_concurrency = std::max(1, worker.max_concurrency);
  configuration.pool.each.slots = configuration.pool.each.max_concurrency;
  for (const PoolSlots& given : input.memory->slots) {
    if (given.pool_id() == worker.pool_id())
      configuration.pool.each.slots = std::clamp(given.slots, 1, configuration.pool.each.max_concurrency);
  }
  if (state != nullptr) configuration.price_per_hour = worker.gpus * state->spec.price_per_hour;
  return configuration;
}

}  // namespace windlass::planner
