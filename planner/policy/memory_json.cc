// The fields of PolicyMemory: what the policy remembers, and the forecaster's plain state within it.
#include <cstdint>
#include <utility>
#include <variant>

#include "planner/policy/json_fields.h"

namespace windlass::planner {
namespace {

using nlohmann::json;
using workload::BestForecastState;
using workload::ChangePointState;
using workload::Cusum;
using workload::EwmaState;
using workload::ForecastError;
using workload::ForecasterState;
using workload::ForecastMethod;
using workload::HoltWintersState;
using workload::kForecastMethods;
using workload::PendingForecast;
using workload::RateSample;
using workload::SeasonBin;

Json fields_of_rate(const RateSample& sample) {
  return Json{{"timeS", number(sample.time_s)}, {"ratePerS", number(sample.rate_per_s)}};
}

RateSample read_rate(JsonReader& parent, const json& value, const std::string& path) {
  JsonReader reader(value, path);
  const RateSample sample{reader.number("timeS"), reader.number("ratePerS")};
  parent.take(reader.finish());
  return sample;
}

std::int64_t read_count(JsonReader& reader, const char* key) { return reader.integer(key, 0, INT64_MAX); }

// ---- the methods' states

void write(Json& object, const EwmaState& state) {
  object["levelPerS"] = number(state.level_per_s);
  object["samples"] = state.samples;
}

void read(JsonReader& reader, EwmaState& state) {
  state.level_per_s = reader.number("levelPerS");
  state.samples = read_count(reader, "samples");
}

void write(Json& object, const HoltWintersState& state) {
  object["levelPerS"] = number(state.level_per_s);
  object["trendPerSPerS"] = number(state.trend_per_s_per_s);
  object["samples"] = state.samples;
  const bool no_season = state.season.empty() && state.season_s == 0 && state.season_begin_s == 0 && state.seen_bins == 0 &&
                         state.season_mean_per_s == 0 && !state.seasonal;
  if (no_season) return;
  Json season = Json::array();
  for (const SeasonBin& bin : state.season)
    season.push_back(Json{{"ratePerS", number(bin.rate_per_s)}, {"samples", bin.samples}});
  object["season"] =
      Json{{"bins", std::move(season)},         {"meanPerS", number(state.season_mean_per_s)}, {"seenBins", state.seen_bins},
           {"lengthS", number(state.season_s)}, {"beginS", number(state.season_begin_s)},      {"counts", state.seasonal}};
}

void read(JsonReader& reader, HoltWintersState& state) {
  state.level_per_s = reader.number("levelPerS");
  state.trend_per_s_per_s = reader.number("trendPerSPerS");
  state.samples = read_count(reader, "samples");
  const json* season = reader.find("season");
  if (season == nullptr) return;
  JsonReader inner(*season, reader.path_of("season"));
  inner.list("bins", [&](const json& bin, const std::string& path) {
    JsonReader one(bin, path);
    state.season.push_back(SeasonBin{one.number("ratePerS"), read_count(one, "samples")});
    inner.take(one.finish());
  });
  state.season_mean_per_s = inner.number("meanPerS");
  state.seen_bins = read_count(inner, "seenBins");
  state.season_s = inner.number("lengthS");
  state.season_begin_s = inner.number("beginS");
  state.seasonal = inner.boolean("counts");
  reader.take(inner.finish());
}

Json fields_of_side(const Cusum& side) {
  return Json{{"sum", number(side.sum)},
              {"ratesPerS", number(side.rates_per_s)},
              {"roots", number(side.roots)},
              {"samples", side.samples}};
}

Cusum read_side(JsonReader& parent, const char* key) {
  JsonReader reader(parent.require(key), parent.path_of(key));
  Cusum side{reader.number("sum"), reader.number("ratesPerS"), reader.number("roots"), read_count(reader, "samples")};
  parent.take(reader.finish());
  return side;
}

void write(Json& object, const ChangePointState& state) {
  object["levelPerS"] = number(state.level_per_s);
  object["root"] = number(state.root);
  object["samples"] = state.samples;
  object["variance"] = number(state.variance);
  object["deviations"] = state.deviations;
  object["up"] = fields_of_side(state.up);
  object["down"] = fields_of_side(state.down);
  object["changes"] = state.changes;
}

void read(JsonReader& reader, ChangePointState& state) {
  state.level_per_s = reader.number("levelPerS");
  state.root = reader.number("root");
  state.samples = read_count(reader, "samples");
  state.variance = reader.number("variance");
  state.deviations = read_count(reader, "deviations");
  state.up = read_side(reader, "up");
  state.down = read_side(reader, "down");
  state.changes = read_count(reader, "changes");
}

Json fields_of_error(const ForecastError& error) {
  return Json{{"meanAbsolutePerS", number(error.mean_absolute_per_s)}, {"forecasts", error.forecasts}};
}

ForecastError read_error(JsonReader& parent, const char* key) {
  JsonReader reader(parent.require(key), parent.path_of(key));
  const ForecastError error{reader.number("meanAbsolutePerS"), read_count(reader, "forecasts")};
  parent.take(reader.finish());
  return error;
}

// A mistake leaves the first method and is kept by the reader.
ForecastMethod read_method(JsonReader& reader, const char* key) {
  const std::string text = reader.string(key);
  for (ForecastMethod method : kForecastMethods) {
    if (text == to_string(method)) return method;
  }
  reader.fail(key, text, "one of EWMA, HoltWinters, ChangePoint");
  return ForecastMethod::kEwma;
}

Json fields_of_pending(const PendingForecast& pending) {
  Json means = Json::array();
  for (double mean : pending.means_per_s) means.push_back(number(mean));
  return Json{{"issuedS", number(pending.issued_s)},
              {"dueS", number(pending.due_s)},
              {"meansPerS", std::move(means)},
              {"given", to_string(pending.given)},
              {"requests", number(pending.requests)}};
}

PendingForecast read_pending(JsonReader& parent, const json& value, const std::string& path) {
  JsonReader reader(value, path);
  PendingForecast pending;
  pending.issued_s = reader.number("issuedS");
  pending.due_s = reader.number("dueS");
  std::size_t method = 0;
  reader.list("meansPerS", [&](const json& mean, const std::string&) {
    if (method < pending.means_per_s.size() && mean.is_number()) pending.means_per_s[method++] = mean.get<double>();
  });
  const json& means = reader.require("meansPerS");
  if (method != pending.means_per_s.size() || means.size() != method) {
    reader.fail("meansPerS", means, "a list of one number for each method");
  }
  pending.given = read_method(reader, "given");
  pending.requests = reader.number("requests");
  parent.take(reader.finish());
  return pending;
}

}  // namespace

Json fields_of(const BestForecastState& state) {
  Json object = Json::object();
  for (ForecastMethod method : kForecastMethods) {
    const auto at = static_cast<std::size_t>(method);
    const ForecasterState& forecaster = state.methods[at];
    Json entry = Json::object();
    if (forecaster.last) entry["last"] = fields_of_rate(*forecaster.last);
    std::visit([&](const auto& known) { write(entry, known); }, forecaster.method);
    entry["error"] = fields_of_error(state.errors[at]);
    object[to_string(method)] = std::move(entry);
  }
  object["given"] = fields_of_error(state.given);
  Json pending = Json::array();
  for (const PendingForecast& forecast : state.pending) pending.push_back(fields_of_pending(forecast));
  object["pending"] = std::move(pending);
  put(object, "scoredS", state.scored_s);
  object["best"] = to_string(state.best);
  object["switches"] = state.switches;
  return object;
}

Result<BestForecastState> read_forecast_state(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  BestForecastState state;
  for (ForecastMethod method : kForecastMethods) {
    const auto at = static_cast<std::size_t>(method);
    JsonReader entry(reader.require(to_string(method)), reader.path_of(to_string(method)));
    if (const json* last = entry.find("last"); last != nullptr) {
      state.methods[at].last = read_rate(entry, *last, entry.path_of("last"));
    }
    std::visit([&](auto& known) { read(entry, known); }, state.methods[at].method);
    state.errors[at] = read_error(entry, "error");
    reader.take(entry.finish());
  }
  state.given = read_error(reader, "given");
  reader.list("pending", [&](const json& forecast, const std::string& forecast_path) {
    state.pending.push_back(read_pending(reader, forecast, forecast_path));
  });
  state.scored_s = optional_number(reader, "scoredS");
  state.best = read_method(reader, "best");
  state.switches = read_count(reader, "switches");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return state;
}

namespace {

Json fields_of_recommendations(const std::vector<Recommendation>& entries) {
  Json list = Json::array();
  for (const Recommendation& entry : entries) list.push_back(Json{{"atS", number(entry.at_s)}, {"workers", entry.workers}});
  return list;
}

void read_recommendations(JsonReader& reader, const char* key, std::vector<Recommendation>& entries) {
  reader.list(key, [&](const json& entry, const std::string& path) {
    JsonReader recommendation(entry, path);
    entries.push_back(Recommendation{recommendation.number("atS"), recommendation.int32("workers", 0)});
    reader.take(recommendation.finish());
  });
}

}  // namespace

Json fields_of(const PolicyMemory& memory) {
  Json object = Json::object();
  put(object, "historySinceS", memory.history_since_s);
  object["recommendations"] = fields_of_recommendations(memory.recommendations);
  put(object, "desired", memory.desired);
  if (!memory.wanted.empty()) object["wanted"] = fields_of_recommendations(memory.wanted);
  if (memory.shortfall) {
    object["shortfall"] = Json{{"atS", number(memory.shortfall->at_s)},
                               {"requestsPerS", number(memory.shortfall->requests_per_s)},
                               {"workers", memory.shortfall->workers},
                               {"missed", number(memory.shortfall->missed)}};
  }
  if (memory.last_change) {
    object["lastChange"] =
        Json{{"atS", number(memory.last_change->at_s)}, {"direction", to_string(memory.last_change->direction)}};
  }
  put(object, "panicUntilS", memory.panic_until_s);
  put(object, "queueSinceS", memory.queue_since_s);
  put(object, "queueUntilS", memory.queue_until_s);
  put(object, "prefillShare", memory.prefill_share);
  if (!memory.slots.empty()) {
    Json slots = Json::array();
    for (const PoolSlots& entry : memory.slots) {
      slots.push_back(Json{{"pool", entry.pool}, {"slots", entry.slots}});
      put(slots.back(), "held", entry.held);
      put(slots.back(), "changedS", entry.changed_s);
    }
    object["slots"] = std::move(slots);
  }
  if (!memory.configuration.empty()) object["configuration"] = memory.configuration;
  put(object, "configurationSinceS", memory.configuration_since_s);
  put(object, "counted", memory.counted);
  if (!memory.arrivals.empty()) {
    Json arrivals = Json::array();
    for (const RateSample& sample : memory.arrivals) arrivals.push_back(fields_of_rate(sample));
    object["arrivals"] = std::move(arrivals);
  }
  if (memory.burstiness != 1) object["burstiness"] = number(memory.burstiness);
  if (memory.bursts_per_s != 0) object["burstsPerS"] = number(memory.bursts_per_s);
  if (memory.forecast) object["forecast"] = fields_of(*memory.forecast);
  return object;
}

Result<PolicyMemory> read_memory(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  PolicyMemory memory;
  memory.history_since_s = optional_number(reader, "historySinceS");
  read_recommendations(reader, "recommendations", memory.recommendations);
  memory.desired = optional_int(reader, "desired", 0);
  if (reader.find("wanted") != nullptr) read_recommendations(reader, "wanted", memory.wanted);
  if (const json* shortfall = reader.find("shortfall"); shortfall != nullptr) {
    JsonReader inner(*shortfall, reader.path_of("shortfall"));
    memory.shortfall =
        Shortfall{inner.number("atS"), inner.number("requestsPerS"), inner.int32("workers", 0), inner.number("missed")};
    reader.take(inner.finish());
  }
  if (const json* change = reader.find("lastChange"); change != nullptr) {
    JsonReader inner(*change, reader.path_of("lastChange"));
    memory.last_change = Change{inner.number("atS"), read_enum(inner, "direction", {Direction::kUp, Direction::kDown})};
    reader.take(inner.finish());
  }
  memory.panic_until_s = optional_number(reader, "panicUntilS");
  memory.queue_since_s = optional_number(reader, "queueSinceS");
  memory.queue_until_s = optional_number(reader, "queueUntilS");
  memory.prefill_share = optional_number(reader, "prefillShare");
  if (reader.find("slots") != nullptr) {
    reader.list("slots", [&](const json& entry, const std::string& entry_path) {
      JsonReader inner(entry, entry_path);
      memory.slots.push_back(PoolSlots{inner.string("pool"), inner.int32("slots", 1), optional_int(inner, "held", 0),
                                       optional_number(inner, "changedS")});
      reader.take(inner.finish());
    });
  }
  if (reader.find("configuration") != nullptr) memory.configuration = reader.string("configuration");
  memory.configuration_since_s = optional_number(reader, "configurationSinceS");
  memory.counted = optional_reading(reader, "counted");
  if (reader.find("arrivals") != nullptr) {
    reader.list("arrivals", [&](const json& sample, const std::string& sample_path) {
      memory.arrivals.push_back(read_rate(reader, sample, sample_path));
    });
  }
  if (reader.find("burstiness") != nullptr) {
    memory.burstiness = reader.number("burstiness");
    if (!(memory.burstiness >= 1 && memory.burstiness <= 1e6)) {
      reader.fail("burstiness", json_number(memory.burstiness), "from 1 to 1e6");
    }
  }
  if (reader.find("burstsPerS") != nullptr) {
    memory.bursts_per_s = reader.number("burstsPerS");
    if (!(memory.bursts_per_s >= 0)) reader.fail("burstsPerS", json_number(memory.bursts_per_s), "0 or more");
  }
  if (reader.find("forecast") != nullptr) {
    memory.forecast = child<BestForecastState>(reader, "forecast", read_forecast_state);
  }
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return memory;
}

}  // namespace windlass::planner
