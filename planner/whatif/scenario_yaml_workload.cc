// A service's workload: lengths, arrivals, shared prefixes. See scenario_yaml_service.h.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/whatif/scenario_yaml_service.h"

namespace windlass::sim {
namespace {

constexpr NumberRange kRate{1e-6, 1e6};
constexpr NumberRange kSpan_s{1e-3, kYear_s};

}  // namespace

std::optional<workload::TokenDistribution> ServiceReader::read_distribution(YamlReader& parent, const char* key) {
  const YamlValue* value = parent.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->kind != YamlValue::Kind::kMap) {
    return workload::FixedTokens{static_cast<int>(parent.whole(key, 1, workload::kMaxTokens))};
  }
  static constexpr std::array kKinds = {"fixed", "uniform", "lognormal"};
  YamlReader reader(*value, parent.path_of(key), mistake_);
  workload::TokenDistribution distribution;
  switch (reader.choice("distribution", kKinds)) {
    case 0: distribution = workload::FixedTokens{static_cast<int>(reader.whole("tokens", 1, workload::kMaxTokens))}; break;
    case 1: {
      const auto low = static_cast<int>(reader.whole("min", 1, workload::kMaxTokens, 1));
      distribution = workload::UniformTokens{low, static_cast<int>(reader.whole("max", low, workload::kMaxTokens))};
      break;
    }
    default: {
      const double mean = reader.number("mean", {1, workload::kMaxTokens});
      const double cv = reader.number("cv", {0, 100});
      const auto most = static_cast<int>(reader.whole("max", 1, workload::kMaxTokens, workload::kMaxTokens));
      distribution = workload::LogNormalTokens{mean, cv, most};
    }
  }
  reader.finish();
  return distribution;
}

void ServiceReader::read_lengths(YamlReader& reader, const YamlValue& value) {
  ScenarioWorkload& workload = service_.workload;
  workload.trace_file = reader.text("trace", "the path of a CSV file with TIMESTAMP,ContextTokens,GeneratedTokens", "");
  workload.lengths_file = reader.text("lengths", "the path of a CSV file with num_prefill_tokens and num_decode_tokens", "");
  workload.input_tokens = read_distribution(reader, "inputTokens");
  workload.output_tokens = read_distribution(reader, "outputTokens");
  workload.truncate = reader.flag("truncate", false);
  std::vector<std::string> given;
  if (!workload.trace_file.empty()) given.emplace_back("trace");
  if (!workload.lengths_file.empty()) given.emplace_back("lengths");
  if (workload.input_tokens || workload.output_tokens) given.emplace_back("inputTokens and outputTokens");
  if (given.size() != 1) {
    mistake_.keep(
        value.line,
        fmt::format("{}: found {}, allowed is one of trace, lengths, and inputTokens with outputTokens", at("workload"),
                    given.empty() ? "no lengths of requests" : fmt::format("{}", fmt::join(given, " beside "))));
  } else if (workload.input_tokens.has_value() != workload.output_tokens.has_value()) {
    const char* missing = workload.input_tokens ? "outputTokens" : "inputTokens";
    mistake_.keep(value.line, fmt::format("{}: missing, allowed is a number of tokens or a map with distribution",
                                          reader.path_of(missing)));
  }
}

void ServiceReader::read_diurnal(const YamlValue& value) {
  YamlReader reader(value, at("workload.diurnal"), mistake_);
  workload::DiurnalArrivals& diurnal = service_.workload.diurnal;
  diurnal.peak_to_trough = reader.number("peakToTrough", {1, 1e6});
  note(reader, "period", "24h");
  diurnal.period_s = reader.duration_s("period", kSpan_s, diurnal.period_s);
  note(reader, "peakAt", "0s");
  diurnal.peak_at_s = reader.duration_s("peakAt", {0, kYear_s}, 0);
  if (const auto* bursts = reader.find("bursts")) {
    YamlReader fields(*bursts, reader.path_of("bursts"), mistake_);
    diurnal.burst_rate_per_s = 1 / fields.duration_s("every", kSpan_s);
    diurnal.burst_requests = fields.number("requests", {1, 1e6});
    diurnal.burst_duration_s = fields.duration_s("duration", kSpan_s);
    fields.finish();
  }
  reader.finish();
}

void ServiceReader::read_states(const YamlValue& value) {
  const char* allowed = "a list of 1 to 100 maps with requestsPerSecond and meanDwell";
  if (value.kind != YamlValue::Kind::kList || value.items.empty() || value.items.size() > 100) {
    mistake_.keep(value.line, fmt::format("{}: found {}, allowed is {}", at("workload.states"), found_text(value), allowed));
    return;
  }
  double fastest = 0;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    YamlReader reader(value.items[i], fmt::format("{}[{}]", at("workload.states"), i), mistake_);
    workload::MarkovModulatedArrivals::State state;
    state.rate_per_s = reader.number("requestsPerSecond", {0, kRate.high});
    state.mean_dwell_s = reader.duration_s("meanDwell", kSpan_s);
    reader.finish();
    fastest = std::max(fastest, state.rate_per_s);
    service_.workload.states.states.push_back(state);
  }
  if (!(fastest >= kRate.low)) {
    mistake_.keep(value.line, fmt::format("{}: found no state with arrivals, allowed is a requestsPerSecond of at "
                                          "least {} in one of them",
                                          at("workload.states"), kRate.low));
  }
}

// Fields that one kind of arrivals needs and the others refuse. Null where the kind is another.
const YamlValue* ServiceReader::field_of(YamlReader& reader, const char* key, bool wanted, const char* kind,
                                         std::string_view allowed) {
  if (wanted) return reader.require(key, allowed);
  if (const auto* found = reader.find(key)) {
    mistake_.keep(found->line, fmt::format("{}: belongs to arrivals: {}", reader.path_of(key), kind));
  }
  return nullptr;
}

void ServiceReader::read_prefixes(const YamlValue& value) {
  YamlReader reader(value, at("workload.sharedPrefixes"), mistake_);
  workload::SharedPrefixes prefixes;
  prefixes.count = static_cast<int>(reader.whole("count", 1, workload::kMaxPrefixes));
  prefixes.tokens = static_cast<int>(reader.whole("tokens", 1, workload::kMaxTokens));
  prefixes.zipf = noted_number(reader, "zipf", {0, 100}, 1);
  reader.finish();
  service_.workload.shared_prefixes = prefixes;
}

// When requests arrive.
void ServiceReader::read_arrivals(YamlReader& reader, const YamlValue& value) {
  static constexpr std::array kArrivals = {"poisson", "gamma", "trace", "diurnal", "markovModulated"};
  static constexpr std::array kScales = {"time", "rate"};
  ScenarioWorkload& workload = service_.workload;
  workload.arrivals = static_cast<ArrivalKind>(noted_choice(reader, "arrivals", kArrivals, 0));
  const bool trace_times = workload.arrivals == ArrivalKind::kTrace;
  const bool states = workload.arrivals == ArrivalKind::kMarkovModulated;
  if (trace_times && workload.trace_file.empty()) {
    mistake_.keep(value.line,
                  fmt::format("{}: found 'trace' without workload.trace, allowed is poisson, gamma, diurnal or markovModulated",
                              reader.path_of("arrivals")));
  }
  if (field_of(reader, "cv", workload.arrivals == ArrivalKind::kGamma, "gamma", "a number from 0 to 1000") != nullptr) {
    workload.cv = reader.number("cv", {0, 1000});
    if (workload.cv > 0 && workload.cv < 1e-6) reader.refuse("cv", *reader.find("cv"), "0 or a number from 1e-06 to 1000");
  }
  if (const auto* diurnal =
          field_of(reader, "diurnal", workload.arrivals == ArrivalKind::kDiurnal, "diurnal", "a map with peakToTrough")) {
    read_diurnal(*diurnal);
  }
  if (const auto* list =
          field_of(reader, "states", states, "markovModulated", "a list of maps with requestsPerSecond and meanDwell")) {
    read_states(*list);
  }
  if (const auto* found = reader.find("requestsPerSecond"); found != nullptr && states) {
    mistake_.keep(found->line,
                  fmt::format("{}: belongs to the states of arrivals: markovModulated", reader.path_of("requestsPerSecond")));
  } else if (found != nullptr) {
    workload.requests_per_second = reader.number("requestsPerSecond", kRate);
  } else if (!workload.trace_file.empty() && !states) {
    note(reader, "requestsPerSecond", "the trace's own");
  } else if (!states) {
    reader.number("requestsPerSecond", kRate);  // missing: told
  }
  if (trace_times && workload.requests_per_second) {
    workload.scale_time = noted_choice(reader, "scale", kScales, 0) == 0;
  } else if (const auto* scale = reader.find("scale")) {
    mistake_.keep(scale->line, fmt::format("{}: belongs to arrivals: trace with requestsPerSecond", reader.path_of("scale")));
  }
}

void ServiceReader::read_workload(const YamlValue& value) {
  YamlReader reader(value, at("workload"), mistake_);
  ScenarioWorkload& workload = service_.workload;
  workload.line = value.line;
  read_lengths(reader, value);
  if (const auto* prefixes = reader.find("sharedPrefixes")) read_prefixes(*prefixes);
  read_arrivals(reader, value);
  if (reader.find("duration") != nullptr) workload.duration_s = reader.duration_s("duration", kSpan_s);
  if (reader.find("requests") != nullptr) workload.requests = reader.whole("requests", 1, 1'000'000'000);
  if (!workload.duration_s && !workload.requests) {
    if (workload.arrivals == ArrivalKind::kTrace) {
      if (!for_plan_) note(reader, "duration", "the trace's own");
    } else if (!for_plan_) {
      mistake_.keep(value.line, fmt::format("{}: missing, allowed is a time such as 120s, or workload.requests in its place",
                                            reader.path_of("duration")));
    }
  }
  reader.finish();
}

}  // namespace windlass::sim
