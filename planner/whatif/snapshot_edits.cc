// Parses edits one by one, and applies each with the rule of its key; see snapshot_edits.h.
#include "planner/whatif/snapshot_edits.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_reader.h"
#include "planner/policy/demand_view.h"

namespace windlass::planner {
namespace {

constexpr double kMaxRate_per_s = 1e9;
constexpr double kMaxTokens = 1e6;
constexpr double kMaxPrice = 1e6;
constexpr double kMaxCost = 1e9;
constexpr double kMaxObjective_s = 3600;
constexpr int kMaxCount = 100'000;
constexpr double kLongAgo_s = 7 * 86400.0;  // longer than every window of the policy

constexpr std::array kServiceKeys = {"rate",           "inputTokens", "outputTokens", "slo.ttft",      "slo.tpot",
                                     "slo.percentile", "minWorkers",  "maxWorkers",   "maxCostPerHour"};
constexpr std::array kClassKeys = {"price", "gpus"};

// One edit as written: "chat:price.h100=2" has the service "chat", the key "price", the class "h100" and the value "2".
struct Written {
  std::string all_keys;  // "chat:price.h100"
  std::string service, key, of_class, value;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

Error wrong(const std::string& key, std::string_view rule, std::string_view got) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: must be {} (got '{}')", key, rule, shown_text(got))};
}

std::optional<double> number_in(std::string_view text) {
  YamlValue value;
  value.kind = YamlValue::Kind::kText;
  value.text = text;
  return plain_number(value);
}

Result<Written> parsed(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view keys = trimmed(text.substr(0, equals));
  if (equals == std::string_view::npos || keys.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("must be KEY=VALUE, such as rate=2x (got '{}')", shown_text(trimmed(text)))};
  }
  Written made{std::string(keys), "", std::string(keys), "", std::string(trimmed(text.substr(equals + 1)))};
  if (const std::size_t colon = made.key.find(':'); colon != std::string::npos) {
    made.service = made.key.substr(0, colon);
    made.key = made.key.substr(colon + 1);
  }
  for (const char* key : kClassKeys) {
    const std::string begin = fmt::format("{}.", key);
    if (made.key.starts_with(begin)) {
      made.of_class = made.key.substr(begin.size());
      made.key = key;
      return made;
    }
    if (made.key == key) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must name a class: {}.CLASS (got none)", made.all_keys, key)};
    }
  }
  const bool known = std::find(kServiceKeys.begin(), kServiceKeys.end(), made.key) != kServiceKeys.end();
  if (known) return made;
  return wrong(
      made.all_keys,
      fmt::format("one of {}, price.CLASS, gpus.CLASS, with NAME: before those of one service", fmt::join(kServiceKeys, ", ")),
      made.key);
}

// "2.5", or "2x" for twice the value before.
Result<double> amount(const Written& edit, double before, double low, double high) {
  const bool factor = edit.value.ends_with('x');
  const auto number = number_in(std::string_view(edit.value).substr(0, edit.value.size() - factor));
  const double value = number.value_or(-1) * (factor ? before : 1);
  if (number && *number >= 0 && low <= value && value <= high) return value;
  const std::string got = factor && number ? fmt::format("{}, {:g} times {:g}", edit.value, *number, before) : edit.value;
  return wrong(edit.all_keys, fmt::format("a number from {:g} to {:g}, or a factor such as 2x that leads there", low, high),
               got);
}

Result<int> whole(const Written& edit, int low) {
  const auto number = number_in(edit.value);
  if (number && low <= *number && *number <= kMaxCount && *number == std::floor(*number)) return static_cast<int>(*number);
  return wrong(edit.all_keys, fmt::format("a whole number from {} to {}", low, kMaxCount), edit.value);
}

Result<double> objective_s(const Written& edit) {
  const auto seconds = duration_seconds(edit.value);
  if (seconds && *seconds > 0 && *seconds <= kMaxObjective_s) return *seconds;
  return wrong(edit.all_keys, "a duration above 0, at most 1h, such as 300ms", edit.value);
}

std::string title(const Service& service) { return service.id.name_space + "/" + service.id.name; }

// What the policy remembers of the time before would hold back its answer to the edit.
void settle(Service& service, double now_s) {
  PolicyMemory& memory = service.memory;
  memory.history_since_s = std::min(memory.history_since_s.value_or(now_s), now_s - kLongAgo_s);
  memory.recommendations.clear();
  memory.wanted.clear();
  memory.desired.reset();
  memory.last_change.reset();
  memory.earlier_up_s.reset();
  memory.panic_until_s.reset();
  memory.counted.reset();
  memory.arrivals.clear();
  memory.forecast.reset();
}

// Edits one service. The texts are the value before and after.
class ServiceEdit {
 public:
  ServiceEdit(const Written& edit, Service& service, double now_s) : edit_(edit), service_(service), now_s_(now_s) {}

  Result<SnapshotEdit> apply() {
    if (edit_.key == "rate")
      return observed(service_.workload.requests_per_s, service_.demand.arrivals_per_s, 0, kMaxRate_per_s);
    if (edit_.key == "inputTokens")
      return observed(service_.workload.input_tokens, service_.demand.input_tokens, 1, kMaxTokens);
    if (edit_.key == "outputTokens")
      return observed(service_.workload.output_tokens, service_.demand.output_tokens, 1, kMaxTokens);
    if (edit_.key == "slo.ttft") return objective(service_.slo.ttft_s);
    if (edit_.key == "slo.tpot") return objective(service_.slo.tpot_s);
    if (edit_.key == "slo.percentile") return percentile();
    if (edit_.key == "maxCostPerHour") return max_cost();
    return workers();
  }

 private:
  SnapshotEdit changed(std::string from, std::string to) const {
    return {title(service_), edit_.key, std::move(from), std::move(to)};
  }

  // The spec's assumption, and what was observed in its place.
  Result<SnapshotEdit> observed(double& assumed, std::optional<Reading>& reading, double low, double high) {
    const bool seen = is_usable(reading, now_s_);
    const double before = seen ? reading->value : assumed;
    WINDLASS_ASSIGN_OR_RETURN(const double after, amount(edit_, before, low, high));
    assumed = after;
    if (seen) {
      reading = Reading{after, now_s_};
      settle(service_, now_s_);
    }
    return changed(fmt::format("{:g}", before), fmt::format("{:g}", after));
  }

  Result<SnapshotEdit> objective(double& seconds) {
    WINDLASS_ASSIGN_OR_RETURN(const double after, objective_s(edit_));
    return changed(duration_text(std::exchange(seconds, after)), duration_text(after));
  }

  Result<SnapshotEdit> percentile() {
    const auto number = number_in(edit_.value);
    if (!number || !(*number > 0 && *number < 100)) return wrong(edit_.all_keys, "a number above 0 and below 100", edit_.value);
    return changed(fmt::format("{:g}", std::exchange(service_.slo.percentile, *number)), fmt::format("{:g}", *number));
  }

  Result<SnapshotEdit> max_cost() {
    std::optional<double>& limit = service_.scaling.max_cost_per_hour;
    std::optional<double> after;
    if (edit_.value != "none") {
      after = number_in(edit_.value);
      if (!after || !(*after > 0 && *after <= kMaxCost))
        return wrong(edit_.all_keys, fmt::format("a number above 0, at most {:g}, or none", kMaxCost), edit_.value);
    }
    const auto shown = [](const std::optional<double>& cost) { return cost ? fmt::format("{:g}", *cost) : "none"; };
    return changed(shown(std::exchange(limit, after)), shown(after));
  }

  Result<SnapshotEdit> workers() {
    Scaling& scaling = service_.scaling;
    if (edit_.key == "minWorkers") {
      WINDLASS_ASSIGN_OR_RETURN(const int after, whole(edit_, 0));
      return changed(std::to_string(std::exchange(scaling.min_workers, after)), std::to_string(after));
    }
    std::optional<int> after;
    if (edit_.value != "none") {
      WINDLASS_ASSIGN_OR_RETURN(after, whole(edit_, 1));
    }
    const auto shown = [](const std::optional<int>& count) { return count ? std::to_string(*count) : "none"; };
    return changed(shown(std::exchange(scaling.max_workers, after)), shown(after));
  }

  const Written& edit_;
  Service& service_;
  double now_s_;
};

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

// The class with this name, or the only one with this part in its name.
Result<AcceleratorState*> class_of(const Written& edit, std::vector<AcceleratorState>& accelerators) {
  std::vector<AcceleratorState*> found;
  std::vector<std::string> names, all;
  for (AcceleratorState& state : accelerators) {
    if (state.spec.name == edit.of_class) return &state;
    all.push_back(state.spec.name);
    if (edit.of_class.empty() || lower(state.spec.name).find(lower(edit.of_class)) == std::string::npos) continue;
    found.push_back(&state);
    names.push_back(state.spec.name);
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    return wrong(edit.all_keys, fmt::format("the name of one class; {} have that part", fmt::join(names, ", ")), edit.of_class);
  }
  return wrong(edit.all_keys, fmt::format("the name, or a part of the name, of one of {}", fmt::join(all, ", ")),
               edit.of_class);
}

int available_gpus(const AcceleratorState& state) {
  if (state.mode == CapacityMode::kElastic && state.max_gpus) return *state.max_gpus;
  const int free = std::max(0, state.allocatable_gpus - state.used_by_others);
  return state.max_gpus ? std::min(free, *state.max_gpus) : free;
}

Result<SnapshotEdit> edit_class(const Written& edit, Snapshot& snapshot) {
  if (!edit.service.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must not name a service, because {} belongs to a class (got '{}')", edit.all_keys, edit.key,
                             shown_text(edit.service))};
  }
  WINDLASS_ASSIGN_OR_RETURN(AcceleratorState * state, class_of(edit, snapshot.accelerators));
  if (edit.key == "price") {
    double& price = state->spec.price_per_hour;
    WINDLASS_ASSIGN_OR_RETURN(const double after, amount(edit, price, 0, kMaxPrice));
    return SnapshotEdit{state->spec.name, edit.key, fmt::format("{:g}", std::exchange(price, after)),
                        fmt::format("{:g}", after)};
  }
  const int before = available_gpus(*state);
  WINDLASS_ASSIGN_OR_RETURN(const int after, whole(edit, 0));
  if (state->mode == CapacityMode::kObserved) state->allocatable_gpus = state->used_by_others + after;
  if (state->mode == CapacityMode::kElastic || state->max_gpus) state->max_gpus = after;
  return SnapshotEdit{state->spec.name, edit.key, std::to_string(before), std::to_string(after)};
}

Result<std::vector<SnapshotEdit>> edit_services(const Written& edit, Snapshot& snapshot) {
  std::vector<SnapshotEdit> made;
  std::vector<std::string> names;
  for (Service& service : snapshot.services) {
    names.push_back(title(service));
    if (!edit.service.empty() && edit.service != service.id.name && edit.service != title(service)) continue;
    WINDLASS_ASSIGN_OR_RETURN(auto one, ServiceEdit(edit, service, snapshot.now_s).apply());
    made.push_back(std::move(one));
  }
  if (made.empty()) return wrong(edit.all_keys, fmt::format("a key of one of {}", fmt::join(names, ", ")), edit.service);
  return made;
}

Result<void> check_limits(const Snapshot& snapshot) {
  for (const Service& service : snapshot.services) {
    const auto& scaling = service.scaling;
    if (!scaling.max_workers || scaling.min_workers <= *scaling.max_workers) continue;
    return Error{ErrorCode::kInvalidArgument, fmt::format("minWorkers: must be at most maxWorkers of {}, {} (got {})",
                                                          title(service), *scaling.max_workers, scaling.min_workers)};
  }
  return {};
}

}  // namespace

Result<EditedSnapshot> edited(Snapshot snapshot, std::string_view text) {
  EditedSnapshot made{std::move(snapshot), {}};
  std::set<std::pair<std::string, std::string>> changed;  // what and key
  bool limits = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    WINDLASS_ASSIGN_OR_RETURN(const Written edit, parsed(text.substr(begin, end - begin)));
    begin = end + 1;
    std::vector<SnapshotEdit> edits;
    if (edit.key == "price" || edit.key == "gpus") {
      WINDLASS_ASSIGN_OR_RETURN(auto one, edit_class(edit, made.snapshot));
      edits.push_back(std::move(one));
    } else {
      WINDLASS_ASSIGN_OR_RETURN(edits, edit_services(edit, made.snapshot));
    }
    limits = limits || edit.key == "minWorkers" || edit.key == "maxWorkers";
    for (SnapshotEdit& one : edits) {
      if (!changed.emplace(one.of, one.key).second) {
        return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must change each value once (got {} of {} a second time)",
                                                              edit.all_keys, one.key, one.of)};
      }
      made.edits.push_back(std::move(one));
    }
  }
  if (limits) WINDLASS_RETURN_IF_ERROR(check_limits(made.snapshot));
  return made;
}

}  // namespace windlass::planner
