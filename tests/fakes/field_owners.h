// Fields by path, and who owns them: what server-side apply and strategic merge patches need. Pure functions on JSON.
//
// A path's steps are field names, and for lists that Kubernetes keys (containers by name, conditions by type, ...) the item's
// key; every other list is atomic: one leaf.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace windlass::fakes {

using FieldOwners = std::map<std::string, std::set<std::string>>;  // managers by leaf path

// Every leaf of `value` by its path.
[[nodiscard]] std::map<std::string, nlohmann::json> leaves_of(const nlohmann::json& value);

struct FieldConflict {
  std::string field;    // ".spec.containers[name=worker].image"
  std::string manager;  // who owns it
};

struct ApplyOutcome {
  nlohmann::json object;
  FieldOwners owners;
  std::vector<FieldConflict> conflicts;  // not empty: nothing was applied
};

// Applies `fields` (an object without its identity) to `before` on behalf of `manager`.
[[nodiscard]] ApplyOutcome apply_fields(const nlohmann::json& before, const FieldOwners& owners, const nlohmann::json& fields,
                                        const std::string& manager, bool force);

// After another kind of write: what changed belongs to `manager` alone, what is gone to nobody.
void take_ownership(FieldOwners& owners, const nlohmann::json& before, const nlohmann::json& after, const std::string& manager);

// A strategic merge patch: as a merge patch, but keyed lists are merged by key ("$patch": "delete" removes an item).
[[nodiscard]] nlohmann::json strategic_merge(nlohmann::json target, const nlohmann::json& patch, const std::string& field = "");

}  // namespace windlass::fakes
