// Fields that every Kubernetes object has: ObjectMeta and Condition, as plain data.
//
// Only the fields that Windlass reads or writes. Times stay RFC 3339 strings as the API server sends them
// ("2026-01-31T10:00:00Z"); they sort as text in time order. Owned by the caller; usable on any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace windlass::api {

inline constexpr const char* kGroup = "windlass.dev";
inline constexpr const char* kVersion = "v1alpha1";
inline constexpr const char* kApiVersion = "windlass.dev/v1alpha1";

struct OwnerReference {
  std::string api_version;
  std::string kind;
  std::string name;
  std::string uid;
  bool controller = false;
  bool block_owner_deletion = false;

  bool operator==(const OwnerReference&) const = default;
};

struct ObjectMeta {
  std::string name;
  std::string name_space;  // empty for a cluster-scoped object
  std::string uid;
  std::string resource_version;
  std::int64_t generation = 0;
  std::string creation_timestamp;
  std::string deletion_timestamp;  // empty unless the object is being deleted
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> finalizers;
  std::vector<OwnerReference> owner_references;

  bool operator==(const ObjectMeta&) const = default;
};

enum class ConditionStatus { kTrue, kFalse, kUnknown };

struct Condition {
  std::string type;
  ConditionStatus status = ConditionStatus::kUnknown;
  std::int64_t observed_generation = 0;
  std::string last_transition_time;  // when status last changed; maintained by set_condition
  std::string reason;                // CamelCase, never empty
  std::string message;

  bool operator==(const Condition&) const = default;
};

const char* to_string(ConditionStatus status);  // "True", "False", "Unknown"

// Inserts `condition`, or replaces the one of the same type. last_transition_time becomes `now` if the status changed;
// otherwise it stays. Returns whether anything except the time changed.
bool set_condition(std::vector<Condition>& conditions, Condition condition, const std::string& now_rfc3339);

// nullptr if there is none of this type.
const Condition* find_condition(const std::vector<Condition>& conditions, const std::string& type);

}  // namespace windlass::api
