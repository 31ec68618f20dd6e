// Tracks which manager owns each field of an object, as server-side apply and strategic merge patches need it. Pure functions
// on JSON.
//
// A path consists of field names and, for lists that Kubernetes keys (containers by name, conditions by type, ...), the item's
// key. Every other list is atomic: one leaf.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace windlass::fakes {

using FieldOwners = std::map<std::string, std::set<std::string>>;  // managers by leaf path

// Every leaf of `value`, by path.
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

// Updates the owners after any other kind of write: `manager` alone owns the changed fields, nobody the removed ones.
void take_ownership(FieldOwners& owners, const nlohmann::json& before, const nlohmann::json& after, const std::string& manager);

// A strategic merge patch: like a merge patch, but merges keyed lists by key ("$patch": "delete" removes an item).
[[nodiscard]] nlohmann::json strategic_merge(nlohmann::json target, const nlohmann::json& patch, const std::string& field = "");

}  // namespace windlass::fakes
