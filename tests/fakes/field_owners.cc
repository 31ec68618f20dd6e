// Field ownership for FakeApiServer: listing leaves, finding conflicts, merging.
#include "tests/fakes/field_owners.h"

#include <algorithm>
#include <optional>

namespace windlass::fakes {
namespace {

using nlohmann::json;

constexpr char kSeparator = '\x1f';

// The merge key of a list's items, by the name of the list's field; "" for a set of plain values.
std::optional<std::string> list_key(const std::string& field) {
  static const std::map<std::string, std::string> kKeys{
      {"containers", "name"},     {"initContainers", "name"},    {"volumes", "name"},    {"env", "name"},
      {"ports", "containerPort"}, {"volumeMounts", "mountPath"}, {"conditions", "type"}, {"accelerators", "class"},
      {"ownerReferences", "uid"}, {"imagePullSecrets", "name"},  {"finalizers", ""}};
  auto it = kKeys.find(field);
  return it == kKeys.end() ? std::nullopt : std::optional(it->second);
}

std::string item_key(const json& item, const std::string& key) {
  if (key.empty()) return item.dump();
  auto it = item.is_object() ? item.find(key) : item.end();
  return item.is_object() && it != item.end() ? it->dump() : "";
}

bool keyed(const json& list, const std::string& key) {
  return !list.empty() && std::all_of(list.begin(), list.end(), [&](const json& item) { return !item_key(item, key).empty(); });
}

void collect(const json& value, const std::string& path, const std::string& field, std::map<std::string, json>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, child] : value.items()) collect(child, path + kSeparator + "." + name, name, out);
    return;
  }
  if (value.is_array()) {
    auto key = list_key(field);
    if (key && keyed(value, *key)) {
      for (const json& item : value) collect(item, path + kSeparator + "[" + *key + "=" + item_key(item, *key) + "]", "", out);
      return;
    }
  }
  out[path] = value;
}

std::vector<std::string> steps_of(const std::string& path) {
  std::vector<std::string> steps;
  std::size_t begin = 1;
  while (begin <= path.size() && !path.empty()) {
    std::size_t end = std::min(path.find(kSeparator, begin), path.size());
    steps.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return steps;
}

struct ItemStep {
  std::string key, value;
};
ItemStep item_step(const std::string& step) {
  std::size_t equals = step.find('=');
  return {step.substr(1, equals - 1), step.substr(equals + 1, step.size() - equals - 2)};
}

json* child_at(json& at, const std::string& step, bool make) {
  if (step.front() == '.') {
    std::string name = step.substr(1);
    if (!at.is_object()) {
      if (!make) return nullptr;
      at = json::object();
    }
    auto it = at.find(name);
    if (it != at.end()) return &*it;
    return make ? &(at[name] = json()) : nullptr;
  }
  ItemStep wanted = item_step(step);
  if (!at.is_array()) {
    if (!make) return nullptr;
    at = json::array();
  }
  for (json& item : at) {
    if (item_key(item, wanted.key) == wanted.value) return &item;
  }
  if (!make) return nullptr;
  at.push_back(wanted.key.empty() ? json::parse(wanted.value) : json{{wanted.key, json::parse(wanted.value)}});
  return &at.back();
}

const json* lookup(const json& root, const std::string& path) {
  json* at = const_cast<json*>(&root);  // child_at changes nothing unless it is allowed to create
  for (const std::string& step : steps_of(path)) {
    at = child_at(*at, step, false);
    if (at == nullptr) return nullptr;
  }
  return at;
}

void set_at(json& root, const std::string& path, const json& value) {
  json* at = &root;
  for (const std::string& step : steps_of(path)) at = child_at(*at, step, true);
  *at = value;
}

// Removes the leaf and every parent that becomes empty.
bool remove_at(json& at, const std::vector<std::string>& steps, std::size_t index) {
  if (index == steps.size()) return true;
  json* child = child_at(at, steps[index], false);
  if (child == nullptr) return false;
  if (!remove_at(*child, steps, index + 1)) return false;
  if (steps[index].front() == '.') {
    at.erase(steps[index].substr(1));
  } else {
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (&at[i] == child) {
        at.erase(at.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    }
  }
  return at.empty() && index > 1;  // the top-level fields (spec, status, metadata) stay
}

bool is_item_key(const std::vector<std::string>& steps) {
  if (steps.size() < 2 || steps[steps.size() - 2].front() != '[') return false;
  return steps.back() == "." + item_step(steps[steps.size() - 2]).key;
}

std::string shown(const std::string& path) {
  std::string out;
  for (const std::string& step : steps_of(path)) out += step;
  return out;
}

}  // namespace

std::map<std::string, json> leaves_of(const json& value) {
  std::map<std::string, json> out;
  if (value.is_object() && !value.empty()) collect(value, "", "", out);
  return out;
}

ApplyOutcome apply_fields(const json& before, const FieldOwners& owners, const json& fields, const std::string& manager,
                          bool force) {
  ApplyOutcome outcome{before, owners, {}};
  std::map<std::string, json> leaves = leaves_of(fields);
  for (const auto& [path, value] : leaves) {
    const json* held = lookup(before, path);
    auto owned = owners.find(path);
    if (held == nullptr || *held == value || owned == owners.end()) continue;
    for (const std::string& other : owned->second) {
      if (other != manager && !force) outcome.conflicts.push_back({shown(path), other});
    }
  }
  if (!outcome.conflicts.empty()) return outcome;
  std::vector<std::vector<std::string>> dropped;
  for (auto& [path, managers] : outcome.owners) {
    if (leaves.count(path) == 0 && managers.erase(manager) > 0 && managers.empty()) dropped.push_back(steps_of(path));
  }
  // Remove an item's key last: without it, the item's other fields cannot be found.
  std::stable_partition(dropped.begin(), dropped.end(), [](const auto& steps) { return !is_item_key(steps); });
  for (const auto& steps : dropped) remove_at(outcome.object, steps, 0);
  std::erase_if(outcome.owners, [](const auto& entry) { return entry.second.empty(); });
  for (const auto& [path, value] : leaves) {
    const json* held = lookup(outcome.object, path);
    auto& managers = outcome.owners[path];
    if (held != nullptr && *held != value) managers.clear();  // forced: taken from the other managers
    managers.insert(manager);
    set_at(outcome.object, path, value);
  }
  return outcome;
}

void take_ownership(FieldOwners& owners, const json& before, const json& after, const std::string& manager) {
  std::map<std::string, json> old_leaves = leaves_of(before);
  std::map<std::string, json> new_leaves = leaves_of(after);
  for (const auto& [path, value] : old_leaves) {
    if (new_leaves.count(path) == 0) owners.erase(path);
  }
  for (const auto& [path, value] : new_leaves) {
    auto it = old_leaves.find(path);
    if (it == old_leaves.end() || it->second != value) owners[path] = {manager};
  }
}

json strategic_merge(json target, const json& patch, const std::string& field) {
  if (patch.is_object()) {
    if (!target.is_object()) target = json::object();
    for (const auto& [name, value] : patch.items()) {
      if (name.starts_with("$")) continue;
      if (value.is_null()) {
        target.erase(name);
      } else {
        target[name] = strategic_merge(target.contains(name) ? target[name] : json(), value, name);
      }
    }
    return target;
  }
  auto key = list_key(field);
  if (!patch.is_array() || !target.is_array() || !key || !keyed(patch, *key)) return patch;
  for (const json& item : patch) {
    std::string wanted = item_key(item, *key);
    auto at = std::find_if(target.begin(), target.end(), [&](const json& held) { return item_key(held, *key) == wanted; });
    bool remove = item.is_object() && item.value("$patch", "") == "delete";
    if (at == target.end()) {
      if (!remove) target.push_back(item);
    } else if (remove) {
      target.erase(at);
    } else {
      *at = strategic_merge(*at, item, "");
    }
  }
  return target;
}

}  // namespace windlass::fakes
