// Reads the sections about a service's workload: lengths, arrivals and shared prefixes. See scenario_sections.h.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/whatif/scenario_sections.h"

namespace windlass::sim {
namespace {

using Workload = ScenarioWorkload;
using Diurnal = workload::DiurnalArrivals;
using State = workload::MarkovModulatedArrivals::State;
using Prefixes = workload::SharedPrefixes;

constexpr NumberRange kRate{1e-6, 1e6};
constexpr NumberRange kSpan_s{1e-3, kYear_s};
constexpr std::array kDistributions = {"fixed", "uniform", "lognormal"};
constexpr std::array kArrivals = {"poisson", "gamma", "trace", "diurnal", "markovModulated"};
constexpr std::array kScales = {"time", "rate"};

// Tokens of a request: a number, or a map with distribution.
struct Tokens {
  [[nodiscard]] workload::TokenDistribution read(YamlReader& parent, const char* key) const {
    const auto tokens = [](YamlReader& of, const char* field, std::int64_t low, std::optional<std::int64_t> otherwise = {}) {
      return static_cast<int>(of.whole(field, low, workload::kMaxTokens, otherwise));
    };
    const YamlValue& value = *parent.find(key);
    if (value.kind != YamlValue::Kind::kMap) return workload::FixedTokens{tokens(parent, key, 1)};
    YamlReader reader = parent.inside(key, value);
    workload::TokenDistribution distribution;
    switch (reader.choice("distribution", kDistributions)) {
      case 0: distribution = workload::FixedTokens{tokens(reader, "tokens", 1)}; break;
      case 1: {
        const int low = tokens(reader, "min", 1, 1);
        distribution = workload::UniformTokens{low, tokens(reader, "max", low)};
        break;
      }
      default: {
        const double mean = reader.number("mean", {1, workload::kMaxTokens});
        const double cv = reader.number("cv", {0, 100});
        distribution = workload::LogNormalTokens{mean, cv, tokens(reader, "max", 1, workload::kMaxTokens)};
      }
    }
    reader.finish();
    return distribution;
  }
};

auto tokens_of_request(const char* key, std::optional<workload::TokenDistribution> Workload::*member) {
  return yaml::Field<Workload, std::optional<workload::TokenDistribution>, Tokens>{key, member, {}};
}

void check_lengths(YamlReader& reader, Workload& workload) {
  std::vector<std::string> given;
  if (!workload.trace_file.empty()) given.emplace_back("trace");
  if (!workload.lengths_file.empty()) given.emplace_back("lengths");
  if (workload.input_tokens || workload.output_tokens) given.emplace_back("inputTokens and outputTokens");
  if (given.size() != 1) {
    reader.wrong(fmt::format("must have one of trace, lengths, or inputTokens with outputTokens (got {})",
                             given.empty() ? "none" : fmt::format("{}", fmt::join(given, " and "))));
  } else if (workload.input_tokens.has_value() != workload.output_tokens.has_value()) {
    reader.wrong(workload.input_tokens ? "outputTokens" : "inputTokens",
                 "must be a number of tokens or a map with distribution (got nothing)");
  }
}

void check_trace(YamlReader& reader, Workload& workload) {
  if (workload.arrivals != ArrivalKind::kTrace || !workload.trace_file.empty()) return;
  reader.wrong("arrivals", "must be poisson, gamma, diurnal or markovModulated without workload.trace (got 'trace')");
}

void check_cv(YamlReader& reader, Workload& workload) {
  if (workload.cv > 0 && workload.cv < 1e-6) reader.refuse("cv", "0 or a number from 1e-06 to 1000");
}

void check_states(YamlReader& reader, workload::MarkovModulatedArrivals& arrivals) {
  const YamlValue* list = reader.find("states");
  const auto& states = arrivals.states;
  if (list == nullptr || std::any_of(states.begin(), states.end(), [](auto& each) { return each.rate_per_s >= kRate.low; }))
    return;
  reader.wrong_at(list->line, "states",
                  fmt::format("must have a state with requestsPerSecond of at least {} (got none)", kRate.low));
}

template <ArrivalKind kind>
bool arrive_as(const Workload& workload) {
  return workload.arrivals == kind;
}

void read_rate(YamlReader& reader, Workload& workload, Reading& reading) {
  const auto rate = number("requestsPerSecond", &Workload::requests_per_second, kRate);
  if (arrive_as<ArrivalKind::kMarkovModulated>(workload)) return rate.refuse(reader, "the states of arrivals: markovModulated");
  (workload.trace_file.empty() ? rate.required() : rate.noted("the trace's own")).read(reader, workload, reading);
}

void read_scale(YamlReader& reader, Workload& workload) {
  if (!arrive_as<ArrivalKind::kTrace>(workload) || !workload.requests_per_second) {
    return reader.belongs("scale", "arrivals: trace with requestsPerSecond");
  }
  reader.note("scale", kScales[0]);
  workload.scale_time = reader.choice("scale", kScales, 0) == 0;
}

void check_end(YamlReader& reader, Workload& workload, Reading& reading) {
  if (workload.duration_s || workload.requests || reading.for_plan()) return;
  if (arrive_as<ArrivalKind::kTrace>(workload)) return reader.note("duration", "the trace's own");
  reader.wrong("duration", "must be a time such as 120s, unless workload.requests is set (got nothing)");
}

auto diurnal_fields() {
  return map(number("peakToTrough", &Diurnal::peak_to_trough, {1, 1e6}).required(),
             duration("period", &Diurnal::period_s, kSpan_s).noted("24h"),
             duration("peakAt", &Diurnal::peak_at_s, {0, kYear_s}).noted(),
             section("bursts", map(hook([](YamlReader& reader, Diurnal& diurnal) {
                                     diurnal.burst_rate_per_s = 1 / reader.duration_s("every", kSpan_s);
                                   }),
                                   number("requests", &Diurnal::burst_requests, {1, 1e6}).required(),
                                   duration("duration", &Diurnal::burst_duration_s, kSpan_s).required())));
}

auto arrival_fields() {
  const auto state = map(number("requestsPerSecond", &State::rate_per_s, {0, kRate.high}).required(),
                         duration("meanDwell", &State::mean_dwell_s, kSpan_s).required());
  return map(choice("arrivals", &Workload::arrivals, kArrivals).noted(), hook(check_trace),
             only("arrivals: gamma", arrive_as<ArrivalKind::kGamma>, number("cv", &Workload::cv, {0, 1000}).required(),
                  hook(check_cv)),
             only("arrivals: diurnal", arrive_as<ArrivalKind::kDiurnal>,
                  section("diurnal", &Workload::diurnal, diurnal_fields()).required("a map with peakToTrough")),
             only("arrivals: markovModulated", arrive_as<ArrivalKind::kMarkovModulated>,
                  part(&Workload::states,
                       list("states", &workload::MarkovModulatedArrivals::states, 100,
                            "maps with requestsPerSecond and meanDwell", state)
                           .required(),
                       hook(check_states))),
             hook(read_rate), hook(read_scale));
}

auto workload_fields() {
  const auto prefixes = map(whole("count", &Prefixes::count, 1, workload::kMaxPrefixes).required(),
                            whole("tokens", &Prefixes::tokens, 1, workload::kMaxTokens).required(),
                            preset(&Prefixes::zipf, 1.0), number("zipf", &Prefixes::zipf, {0, 100}).noted());
  return map(text("trace", &Workload::trace_file, "the path of a CSV file with TIMESTAMP,ContextTokens,GeneratedTokens"),
             text("lengths", &Workload::lengths_file, "the path of a CSV file with num_prefill_tokens and num_decode_tokens"),
             tokens_of_request("inputTokens", &Workload::input_tokens),
             tokens_of_request("outputTokens", &Workload::output_tokens), flag("truncate", &Workload::truncate),
             hook(check_lengths), section("sharedPrefixes", &Workload::shared_prefixes, prefixes), arrival_fields(),
             duration("duration", &Workload::duration_s, kSpan_s), whole("requests", &Workload::requests, 1, 1'000'000'000),
             hook(check_end));
}

}  // namespace

void read_workload(YamlReader& parent, Reading& reading) {
  static const auto kWorkload = section("workload", &ScenarioService::workload, workload_fields())
                                    .required("a map with trace, lengths or inputTokens and outputTokens");
  kWorkload.read(parent, *reading.service, reading);
}

}  // namespace windlass::sim
