// Lists the JSON fields of PolicyMemory, including the forecaster's plain state. See json_fields.h.
#include <array>
#include <variant>

#include "planner/policy/json_fields.h"

namespace windlass::workload {

constexpr auto json_values(JsonType<ForecastMethod>) { return kForecastMethods; }

constexpr auto json_fields(JsonType<RateSample>) {
  return json_object(field("timeS", &RateSample::time_s), field("ratePerS", &RateSample::rate_per_s));
}

constexpr auto json_fields(JsonType<EwmaState>) {
  return json_object(field("levelPerS", &EwmaState::level_per_s), field("samples", &EwmaState::samples, 0));
}

constexpr auto json_fields(JsonType<SeasonBin>) {
  return json_object(field("ratePerS", &SeasonBin::rate_per_s), field("samples", &SeasonBin::samples, 0));
}

constexpr auto json_fields(JsonType<HoltWintersState>) {
  using T = HoltWintersState;
  constexpr auto kSeason =
      json_object(field("bins", &T::season), field("meanPerS", &T::season_mean_per_s), field("seenBins", &T::seen_bins, 0),
                  field("lengthS", &T::season_s), field("beginS", &T::season_begin_s), field("counts", &T::seasonal));
  return json_object(field("levelPerS", &T::level_per_s), field("trendPerSPerS", &T::trend_per_s_per_s),
                     field("samples", &T::samples, 0),
                     hook(
                         [kSeason](auto& json, const T& state) {
                           const bool no_season = state.season.empty() && state.season_s == 0 && state.season_begin_s == 0 &&
                                                  state.seen_bins == 0 && state.season_mean_per_s == 0 && !state.seasonal;
                           if (!no_season) kSeason.write(json["season"], state);
                         },
                         [kSeason](JsonReader& reader, T& state) {
                           const nlohmann::json* season = reader.find("season");
                           if (season == nullptr) return;
                           JsonReader inner(*season, reader.path_of("season"));
                           kSeason.read(inner, state);
                           reader.take(inner.finish());
                         }));
}

constexpr auto json_fields(JsonType<Cusum>) {
  return json_object(field("sum", &Cusum::sum), field("ratesPerS", &Cusum::rates_per_s), field("roots", &Cusum::roots),
                     field("samples", &Cusum::samples, 0));
}

constexpr auto json_fields(JsonType<ChangePointState>) {
  using T = ChangePointState;
  return json_object(field("levelPerS", &T::level_per_s), field("root", &T::root), field("samples", &T::samples, 0),
                     field("variance", &T::variance), field("deviations", &T::deviations, 0), field("up", &T::up),
                     field("down", &T::down), field("changes", &T::changes, 0));
}

constexpr auto json_fields(JsonType<ForecastError>) {
  return json_object(field("meanAbsolutePerS", &ForecastError::mean_absolute_per_s),
                     field("forecasts", &ForecastError::forecasts, 0));
}

constexpr auto json_fields(JsonType<PendingForecast>) {
  using T = PendingForecast;
  return json_object(field("issuedS", &T::issued_s), field("dueS", &T::due_s),
                     hook([](auto& json, const T& pending) { write_value(json["meansPerS"], pending.means_per_s); },
                          [](JsonReader& reader, T& pending) {
                            std::size_t method = 0;
                            reader.list("meansPerS", [&](const nlohmann::json& mean, const std::string&) {
                              if (method < pending.means_per_s.size() && mean.is_number()) {
                                pending.means_per_s[method++] = mean.get<double>();
                              }
                            });
                            const nlohmann::json& means = reader.require("meansPerS");
                            if (method != pending.means_per_s.size() || means.size() != method) {
                              reader.fail("meansPerS", means, "a list with one number per method");
                            }
                          }),
                     field("given", &T::given), field("requests", &T::requests));
}

constexpr auto json_fields(JsonType<BestForecastState>) {
  using T = BestForecastState;
  const auto write_methods = [](auto& json, const T& state) {
    for (const ForecastMethod method : kForecastMethods) {
      const auto at = static_cast<std::size_t>(method);
      auto& entry = json[to_string(method)];
      if (state.methods[at].last) write_value(entry["last"], *state.methods[at].last);
      std::visit([&](const auto& known) { write_fields(entry, known); }, state.methods[at].method);
      write_value(entry["error"], state.errors[at]);
    }
  };
  const auto read_methods = [](JsonReader& reader, T& state) {
    for (const ForecastMethod method : kForecastMethods) {
      const auto at = static_cast<std::size_t>(method);
      JsonReader entry(reader.require(to_string(method)), reader.path_of(to_string(method)));
      if (entry.find("last") != nullptr) read_value(entry, "last", state.methods[at].last);
      std::visit([&](auto& known) { read_fields(entry, known); }, state.methods[at].method);
      read_value(entry, "error", state.errors[at]);
      reader.take(entry.finish());
    }
  };
  return json_object(hook(write_methods, read_methods), field("given", &T::given), field("pending", &T::pending),
                     field("scoredS", &T::scored_s), field("best", &T::best), field("switches", &T::switches, 0));
}

}  // namespace windlass::workload

namespace windlass::planner {

constexpr JsonLimit kBurstiness{[](double value) { return value >= 1 && value <= 1e6; }, "from 1 to 1e6"};
constexpr JsonLimit kZeroOrMore{[](double value) { return value >= 0; }, "at least 0"};

constexpr auto json_values(JsonType<Direction>) { return std::array{Direction::kUp, Direction::kDown}; }

constexpr auto json_fields(JsonType<Recommendation>) {
  return json_object(field("atS", &Recommendation::at_s), field("workers", &Recommendation::workers, 0));
}

constexpr auto json_fields(JsonType<Shortfall>) {
  return json_object(field("atS", &Shortfall::at_s), field("requestsPerS", &Shortfall::requests_per_s),
                     field("workers", &Shortfall::workers, 0), field("missed", &Shortfall::missed));
}

constexpr auto json_fields(JsonType<Change>) {
  return json_object(field("atS", &Change::at_s), field("direction", &Change::direction));
}

constexpr auto json_fields(JsonType<PoolSlots>) {
  return json_object(field("pool", &PoolSlots::pool), field("slots", &PoolSlots::slots, 1), field("held", &PoolSlots::held, 0),
                     field("changedS", &PoolSlots::changed_s), rare("role", &PoolSlots::role), once_read([](PoolSlots& slots) {
                       const PoolId id = pool_of_name(slots.pool);
                       slots.pool = id.name;
                       if (slots.role == dispatch::Role::kUnified) slots.role = id.role;
                     }));
}

constexpr auto json_fields(JsonType<SideShare>) {
  return json_object(field("pool", &SideShare::pool), rare("role", &SideShare::role),
                     field("share", &SideShare::share).within(kZeroOrMore), field("lower", &SideShare::lower));
}

constexpr auto json_fields(JsonType<PastRoleChange>) {
  return json_object(field("atS", &PastRoleChange::at_s), field("message", &PastRoleChange::message));
}

constexpr auto json_fields(JsonType<WorkloadShift>) {
  return json_object(field("atS", &WorkloadShift::at_s), field("from", &WorkloadShift::from), field("to", &WorkloadShift::to));
}

constexpr auto json_fields(JsonType<PolicyMemory>) {
  using T = PolicyMemory;
  return json_object(field("historySinceS", &T::history_since_s), field("recommendations", &T::recommendations),
                     field("desired", &T::desired, 0), rare("wanted", &T::wanted), field("shortfall", &T::shortfall),
                     field("lastChange", &T::last_change), rare("earlierUpS", &T::earlier_up_s),
                     field("panicUntilS", &T::panic_until_s), field("queueSinceS", &T::queue_since_s),
                     field("queueUntilS", &T::queue_until_s), field("prefillShare", &T::prefill_share),
                     rare("sides", &T::sides), rare("roleChange", &T::role_change), field("offer", &T::offer),
                     field("busiest", &T::busiest), field("asked", &T::asked), rare("shift", &T::shift),
                     rare("slots", &T::slots), rare("configuration", &T::configuration),
                     field("configurationSinceS", &T::configuration_since_s), field("counted", &T::counted),
                     rare("arrivals", &T::arrivals), rare("burstiness", &T::burstiness).within(kBurstiness),
                     rare("burstsPerS", &T::bursts_per_s).within(kZeroOrMore), field("forecast", &T::forecast),
                     once_read([](T& memory) { memory.configuration = pool_of_name(memory.configuration).name; }));
}

}  // namespace windlass::planner

namespace windlass {

template void write_fields(planner::Json&, const planner::Offer&);
template void write_fields(planner::Json&, const planner::PolicyMemory&);
template Result<planner::Offer> read_json(const nlohmann::json&, const std::string&);
template Result<planner::PolicyMemory> read_json(const nlohmann::json&, const std::string&);

}  // namespace windlass
