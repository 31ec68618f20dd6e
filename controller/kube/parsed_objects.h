// ParsedObjects: what a reflector's objects mean, read once for each version of each object and not at every look.
//
// A cluster of ten thousand pods changes by a few of them between two looks; parsing all of them costs more than deciding does.
// Single-threaded, as the reflector is.
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
  // Makes all() what the reflector's objects say by now; `parse` (a const json& -> Value) is asked for those that changed.
  // True: something did.
  template <class Parse>
  bool update(const Reflector& reflector, Parse parse) {
    if (seen_ && generation_ == reflector.generation()) return false;
    // A list may come from a server that was set back to a backup, where a version can stand for another state.
    if (lists_ != reflector.counters().lists) held_.clear();
    seen_ = true;
    generation_ = reflector.generation();
    lists_ = reflector.counters().lists;
    // Both are in the order of their keys.
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
  // How many objects were parsed so far.
  [[nodiscard]] std::uint64_t parsed() const { return parsed_; }

 private:
  std::map<std::string, Held> held_;
  std::uint64_t generation_ = 0;
  std::uint64_t lists_ = 0;
  std::uint64_t parsed_ = 0;
  bool seen_ = false;
};

}  // namespace windlass::kube
