// See scenario_requests.h.
#include "planner/sim/scenario_requests.h"

#include <cassert>

#include <fmt/format.h>

#include "planner/workload/composed_source.h"

namespace windlass::sim {
namespace {

constexpr const char* kStream = "requests";

}  // namespace

Result<ScenarioRequests> ScenarioRequests::make(const Scenario& scenario, std::string_view text,
                                                std::optional<int> context_tokens) {
  ScenarioRequests requests;
  requests.workload_ = scenario.workload;
  const ScenarioWorkload& workload = requests.workload_;
  const auto here = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", scenario.source, workload.line, what)};
  };
  std::optional<workload::ContextLimit> context;
  if (context_tokens) context = workload::ContextLimit{*context_tokens, workload.truncate};

  if (!workload.trace_file.empty()) {
    auto rows = workload::parse_azure_trace(text, context);
    if (!rows.ok()) return rows.error().within(workload.trace_file);
    requests.rows_ = std::move(rows).value();
  }
  const bool replayed = workload.arrivals == ArrivalKind::kTrace;
  if (!replayed) {
    if (!workload.trace_file.empty()) {
      WINDLASS_ASSIGN_OR_RETURN(requests.lengths_,
                                workload::LengthDistribution::empirical(workload::lengths_of(requests.rows_)));
    } else if (!workload.lengths_file.empty()) {
      auto pairs = workload::parse_length_file(text, context);
      if (!pairs.ok()) return pairs.error().within(workload.lengths_file);
      WINDLASS_ASSIGN_OR_RETURN(requests.lengths_, workload::LengthDistribution::empirical(std::move(pairs).value()));
    } else {
      auto lengths = workload::LengthDistribution::independent(*workload.input_tokens, *workload.output_tokens, context);
      if (!lengths.ok()) return here("workload.inputTokens and outputTokens: " + lengths.error().message);
      requests.lengths_ = std::move(lengths).value();
    }
  }

  const auto own = workload::mean_rate_per_s(requests.rows_);
  requests.own_rate_per_s_ = own.value_or(1);
  if (!own && !workload.trace_file.empty()) {
    requests.rate_is_free_ = !replayed;
    if (replayed == workload.requests_per_second.has_value()) {
      return here(
          fmt::format("workload.requestsPerSecond: {} has no rate of its own, as all its rows come at once; allowed is {}",
                      workload.trace_file, replayed ? "to leave it out" : "a number"));
    }
  }
  requests.base_rate_per_s_ = workload.requests_per_second.value_or(requests.own_rate_per_s_);
  requests.rate_per_s_ = requests.base_rate_per_s_;
  if (replayed) {
    const auto scaled = requests.scaling(1).validate();
    if (!scaled.ok()) return here("workload.requestsPerSecond: " + scaled.error().message);
  } else {
    const auto rate = workload::mean_rate_per_s(requests.arrivals(1));
    if (!rate.ok()) return here("workload: " + rate.error().message);
    requests.rate_per_s_ = *rate;
  }
  return requests;
}

bool ScenarioRequests::random() const {
  return workload_.arrivals != ArrivalKind::kTrace || (workload_.requests_per_second && !workload_.scale_time);
}

workload::TraceScaling ScenarioRequests::scaling(double rate_factor) const {
  workload::TraceScaling scaling;
  const double wanted = rate_factor * base_rate_per_s_ / own_rate_per_s_;
  (workload_.scale_time ? scaling.speed : scaling.rate) = wanted;
  return scaling;
}

workload::ArrivalSpec ScenarioRequests::arrivals(double rate_factor) const {
  const double rate_per_s = base_rate_per_s_ * rate_factor;
  switch (workload_.arrivals) {
    case ArrivalKind::kTrace:  // replayed with its lengths
    case ArrivalKind::kPoisson: return workload::PoissonArrivals{rate_per_s};
    case ArrivalKind::kGamma: return workload::GammaArrivals{rate_per_s, workload_.cv};
    case ArrivalKind::kDiurnal: {
      workload::DiurnalArrivals diurnal = workload_.diurnal;
      diurnal.mean_rate_per_s = rate_per_s;
      diurnal.burst_rate_per_s *= rate_factor;
      return diurnal;
    }
    case ArrivalKind::kMarkovModulated: {
      workload::MarkovModulatedArrivals states = workload_.states;
      for (auto& state : states.states) state.rate_per_s *= rate_factor;
      return states;
    }
  }
  return workload::PoissonArrivals{rate_per_s};
}

std::unique_ptr<workload::RequestSource> ScenarioRequests::source(std::uint64_t seed, double rate_factor) const {
  assert(rate_factor == 1 || rate_is_free_);
  if (workload_.arrivals == ArrivalKind::kTrace) {
    return std::make_unique<workload::TraceSource>(rows_, rows_.size(), scaling(rate_factor), seed, kStream);
  }
  auto process = workload::make_arrivals(arrivals(rate_factor), seed, kStream);
  assert(process.ok());  // make() asked the same of factor 1
  return std::make_unique<workload::ComposedSource>(std::move(process).value(), *lengths_, seed, kStream);
}

}  // namespace windlass::sim
