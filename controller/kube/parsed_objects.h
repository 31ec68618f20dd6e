// ParsedObjects caches the parsed form of a reflector's objects, so that each version of an object is parsed once.
//
// A cluster of ten thousand pods changes by a few pods between two steps, and parsing all of them would cost more than the
// decision itself. Single-threaded, like the reflector.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "controller/kube/reflector.h"

namespace windlass::kube {

template <class Value>
class ParsedObjects {
 public:
  // Brings all() up to date with the reflector. `parse` (const json& -> Value) is called for changed objects only. Returns
  // whether anything changed.
  template <class Parse>
  bool update(const Reflector& reflector, Parse parse) {
    if (seen_ && generation_ == reflector.generation()) return false;
    // A server restored from a backup may reuse a version for a different state, so a new list clears the cache.
    if (lists_ != reflector.counters().lists) held_.clear();
    seen_ = true;
    generation_ = reflector.generation();
    lists_ = reflector.counters().lists;
    // Both maps are sorted by key.
    auto mine = held_.begin();
    for (const auto& [key, object] : reflector.objects()) {
      while (mine != held_.end() && mine->first < key) mine = held_.erase(mine);
      std::string version = version_key(object);
      if (mine == held_.end() || mine->first != key) {
        mine = held_.emplace_hint(mine, key, Held{std::move(version), parse(object)});
        ++parsed_;
      } else if (version.empty() || mine->second.version != version) {
        mine->second = Held{std::move(version), parse(object)};
        ++parsed_;
      }
      ++mine;
    }
    held_.erase(mine, held_.end());
    return true;
  }

  struct Held {
    std::string version;
    Value value;
  };
  // By the reflector's keys.
  [[nodiscard]] const std::map<std::string, Held>& all() const { return held_; }
  [[nodiscard]] const Value* find(const std::string& name_space, const std::string& name) const {
    const auto found = held_.find(name_space + "/" + name);
    return found == held_.end() ? nullptr : &found->second.value;
  }
  // Number of parse calls so far.
  [[nodiscard]] std::uint64_t parsed() const { return parsed_; }

 private:
  std::map<std::string, Held> held_;
  std::uint64_t generation_ = 0;
  std::uint64_t lists_ = 0;
  std::uint64_t parsed_ = 0;
  bool seen_ = false;
};

}  // namespace windlass::kube
