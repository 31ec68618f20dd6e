// Conditions, and the enumerator names of all kinds.
#include "controller/api/meta.h"

#include <algorithm>

#include "controller/api/enum_names.h"

namespace windlass::api {
namespace {

template <class Enum>
const char* name_of(Enum value) {
  return kEnumNames<Enum>[static_cast<std::size_t>(value)];
}

}  // namespace

bool set_condition(std::vector<Condition>& conditions, Condition condition, const std::string& now_rfc3339) {
  const auto place =
      std::find_if(conditions.begin(), conditions.end(), [&](const Condition& other) { return other.type == condition.type; });
  if (place == conditions.end()) {
    condition.last_transition_time = now_rfc3339;
    conditions.push_back(std::move(condition));
    return true;
  }
  const bool keep_time = place->status == condition.status && !place->last_transition_time.empty();
  const std::string before = place->last_transition_time;
  condition.last_transition_time = before;
  const bool changed = !(*place == condition);
  if (!keep_time) condition.last_transition_time = now_rfc3339;
  *place = std::move(condition);
  return changed;
}

const Condition* find_condition(const std::vector<Condition>& conditions, const std::string& type) {
  for (const Condition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

const char* to_string(ConditionStatus value) { return name_of(value); }
const char* to_string(Probe value) { return name_of(value); }
const char* to_string(Strategy value) { return name_of(value); }
const char* to_string(ScalingMode value) { return name_of(value); }
const char* to_string(PoolRole value) { return name_of(value); }
const char* to_string(Dtype value) { return name_of(value); }
const char* to_string(CapacityMode value) { return name_of(value); }

}  // namespace windlass::api
