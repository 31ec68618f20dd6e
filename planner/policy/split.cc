// See split.h.
#include "planner/policy/split.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/perf/linear_model.h"
#include "planner/policy/trouble.h"
#include "planner/sizing/phases.h"

namespace windlass::planner {
namespace {

// Most prompts in one prefill worker, however short they are.
constexpr int kMaxPrompts = 64;

double rate_of(const PhaseFit& fit) { return fit.slots > 0 && fit.times.service_s > 0 ? fit.slots / fit.times.service_s : 0; }

PhaseFit fit_phase(const Service& service, const LatencyModel& model, const Lengths& lengths, dispatch::Role role) {
  if (role == dispatch::Role::kPrefill) return fit_prefill(model, lengths, kMaxPrompts);
  return fit_decode(model, objective_of(service), lengths, kMaxBatch);
}

}  // namespace

bool runs_split(const Service& service, const PolicyMemory& memory) {
  if (!memory.configuration.empty()) return memory.prefill_share.has_value();
  int whole = 0, parts = 0;
  for (const Worker& worker : service.workers) {
    if (holds_gpus(worker)) ++(worker.role == dispatch::Role::kUnified ? whole : parts);
  }
  return parts > whole;
}

int max_concurrency_of_phase(const Service& service, const AcceleratorSpec& spec, int gpus, dispatch::Role role) {
  const LinearModel line(linear_coefficients(*service.shape, spec, gpus, service.engine));
  const Lengths assumed{service.workload.input_tokens, service.workload.output_tokens};
  if (role != dispatch::Role::kPrefill) return std::max(1, fit_phase(service, line, assumed, role).slots);
  const double room = line.kv_capacity_tokens() / (assumed.input_tokens + kKvBlockTokens);
  return static_cast<int>(std::clamp(std::floor(room), 1.0, static_cast<double>(kMaxPrompts)));
}

double phase_rate_per_s(const Service& service, const LatencyModel& model, const Lengths& lengths, dispatch::Role role) {
  return rate_of(fit_phase(service, model, lengths, role));
}

std::optional<Offer> split_by_closed_forms(const ConfigurationInput& input) {
  const Service& service = *input.service;
  const ModelShape& shape = *service.shape;
  const Lengths lengths{service.workload.input_tokens, service.workload.output_tokens};
  OfferedPool decode, prefill;
  double decode_price = std::numeric_limits<double>::infinity(), prefill_price = decode_price;
  const auto keep_cheapest = [](OfferedPool& best, double& best_price, const WorkerSpec& spec, dispatch::Role role,
                                double requests_per_s, double price_per_hour) {
    if (!(requests_per_s > 0) || price_per_hour / requests_per_s >= best_price) return;
    best_price = price_per_hour / requests_per_s;
    best = OfferedPool{spec, role, 1, 1, kMaxUtilisation * requests_per_s, requests_per_s};
  };
  for (const AllowedAccelerator& allowed : allowed_of(service, *input.snapshot)) {
    const AcceleratorState* state = find_accelerator(*input.snapshot, allowed.accelerator);
    if (state == nullptr || !(peak_flops_for(state->spec, shape.dtype) > 0)) continue;
    const AcceleratorSpec& spec = state->spec;
    int most = std::min(spec.gpus_per_node, available_to_worker(service, *input.capacities, spec.name));
    most = std::min({most, service.max_gpus_per_worker.value_or(most), allowed.max_gpus.value_or(most)});
    for (const int gpus : tensor_parallel_degrees(shape, most)) {
      if (gpus > 1 && !(spec.intra_link_bandwidth_bytes_per_s > 0)) continue;
      const LinearModel model(believed_coefficients(shape, spec, gpus, service.engine, service.estimates));
      const WorkerSpec worker{spec.name, gpus};
      const PhaseFit prompts = fit_phase(service, model, lengths, dispatch::Role::kPrefill);
      const double price = gpus * spec.price_per_hour;
      if (prompts.times.prefill_s <= service.slo.ttft_s) {
        keep_cheapest(prefill, prefill_price, worker, dispatch::Role::kPrefill, rate_of(prompts), price);
      }
      keep_cheapest(decode, decode_price, worker, dispatch::Role::kDecode,
                    rate_of(fit_phase(service, model, lengths, dispatch::Role::kDecode)), price);
    }
  }
  if (decode.workers == 0 || prefill.workers == 0) return std::nullopt;
  Offer offer;
  offer.strategy = "closed forms";
  offer.pools = {decode, prefill};
  offer.why = "not simulated yet";
  return offer;
}

}  // namespace windlass::planner
