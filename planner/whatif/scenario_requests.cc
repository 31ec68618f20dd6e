// See scenario_requests.h.
#include "planner/whatif/scenario_requests.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/workload/composed_source.h"
#include "planner/workload/shared_prefixes.h"

namespace windlass::sim {
namespace {

// Limits a source: drops requests after this time and beyond this number.
class LimitedSource final : public workload::RequestSource {
 public:
  LimitedSource(std::unique_ptr<workload::RequestSource> requests, const ScenarioWorkload& workload)
      : requests_(std::move(requests)),
        end_s_(workload.duration_s.value_or(std::numeric_limits<double>::infinity())),
        left_(workload.requests.value_or(std::numeric_limits<std::int64_t>::max())) {}

  std::optional<workload::Request> next() override {
    if (left_-- <= 0) return std::nullopt;
    auto request = requests_->next();
    if (request && request->arrival_s > end_s_) request.reset();
    if (!request) left_ = 0;
    return request;
  }

 private:
  std::unique_ptr<workload::RequestSource> requests_;
  double end_s_;
  std::int64_t left_;
};

// Lengths of random requests: those of a trace or file, or the workload's distribution.
Result<workload::LengthDistribution> lengths_of(const ScenarioWorkload& workload, const std::vector<workload::TraceRow>& rows,
                                                std::string_view text, const std::optional<workload::ContextLimit>& context) {
  if (!workload.trace_file.empty()) return workload::LengthDistribution::empirical(workload::lengths_of(rows));
  if (workload.lengths_file.empty())
    return workload::LengthDistribution::independent(*workload.input_tokens, *workload.output_tokens, context);
  auto pairs = workload::parse_length_file(text, context);
  if (!pairs.ok()) return pairs.error().within(workload.lengths_file);
  return workload::LengthDistribution::empirical(std::move(pairs).value());
}

// Mean input and output tokens.
std::pair<double, double> means_of(const std::vector<workload::TraceRow>& rows) {
  double input = 0, output = 0;
  for (const workload::TraceRow& row : rows) {
    input += row.input_tokens;
    output += row.output_tokens;
  }
  return {input / static_cast<double>(rows.size()), output / static_cast<double>(rows.size())};
}

}  // namespace

std::optional<int> context_limit(const ScenarioModel& model, const planner::ModelShape& shape) {
  if (model.max_context_tokens) return model.max_context_tokens;
  if (shape.architecture == "bloom") return std::nullopt;
  return shape.max_context_tokens;
}

Result<ScenarioRequests> ScenarioRequests::make(const Scenario& scenario, const ScenarioService& service, std::string_view text,
                                                std::optional<int> context_tokens) {
  ScenarioRequests requests;
  requests.workload_ = service.workload;
  if (!service.name.empty()) requests.stream_ += "/" + service.name;
  const ScenarioWorkload& workload = requests.workload_;
  const auto here = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}{}", scenario.source, workload.line, service.prefix, what)};
  };
  std::optional<workload::ContextLimit> context;
  if (context_tokens) context = workload::ContextLimit{*context_tokens, workload.truncate};

  if (!workload.trace_file.empty()) {
    auto rows = workload::parse_azure_trace(text, context);
    if (!rows.ok()) return rows.error().within(workload.trace_file);
    requests.rows_ = std::move(rows).value();
  }
  const bool replayed = workload.arrivals == ArrivalKind::kTrace;
  if (replayed) {
    std::tie(requests.mean_input_tokens_, requests.mean_output_tokens_) = means_of(requests.rows_);
  } else {
    auto lengths = lengths_of(workload, requests.rows_, text, context);
    const bool drawn = workload.trace_file.empty() && workload.lengths_file.empty();
    if (!lengths.ok() && drawn) return here("workload.inputTokens and outputTokens: " + lengths.error().message);
    if (!lengths.ok()) return lengths.error();
    requests.lengths_ = std::move(lengths).value();
    requests.mean_input_tokens_ = requests.lengths_->mean_input_tokens();
    requests.mean_output_tokens_ = requests.lengths_->mean_output_tokens();
  }
  const auto own = workload::mean_rate_per_s(requests.rows_);
  requests.own_rate_per_s_ = own.value_or(1);
  if (!own && !workload.trace_file.empty()) {
    requests.rate_is_free_ = !replayed;
    if (replayed == workload.requests_per_second.has_value()) {
      return here(fmt::format("workload.requestsPerSecond: must be {}, because all rows of {} arrive at the same time",
                              replayed ? "left out" : "set", workload.trace_file));
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
  return workload_.arrivals != ArrivalKind::kTrace || (workload_.requests_per_second && !workload_.scale_time) ||
         workload_.shared_prefixes;
}

double ScenarioRequests::expected_requests() const {
  double requests = workload_.duration_s ? *workload_.duration_s * rate_per_s_ : std::numeric_limits<double>::infinity();
  if (workload_.requests) requests = std::min(requests, static_cast<double>(*workload_.requests));
  if (workload_.arrivals == ArrivalKind::kTrace && (workload_.scale_time || !std::isfinite(requests))) {
    requests = std::min(requests, static_cast<double>(rows_.size()));
  }
  return requests;
}

double ScenarioRequests::expected_duration_s() const {
  const double by_requests = expected_requests() / rate_per_s_;
  return workload_.duration_s ? std::min(*workload_.duration_s, by_requests) : by_requests;
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
  std::unique_ptr<workload::RequestSource> source;
  if (workload_.arrivals == ArrivalKind::kTrace) {
    source = std::make_unique<workload::TraceSource>(rows_, rows_.size(), scaling(rate_factor), seed, stream_);
  } else {
    auto process = workload::make_arrivals(arrivals(rate_factor), seed, stream_);
    assert(process.ok());  // make() has validated it at factor 1
    source = std::make_unique<workload::ComposedSource>(std::move(process).value(), *lengths_, seed, stream_);
  }
  if (workload_.shared_prefixes) {
    source = std::make_unique<workload::PrefixedSource>(std::move(source), *workload_.shared_prefixes, seed, stream_);
  }
  return std::make_unique<LimitedSource>(std::move(source), workload_);
}

}  // namespace windlass::sim
