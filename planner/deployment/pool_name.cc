// Makes and parses pool names; see pool_name.h.
#include "planner/deployment/pool_name.h"

#include <cstddef>

#include <fmt/format.h>

namespace windlass::planner {

using dispatch::Role;

std::string class_label(const std::string& accelerator, const std::string& suffix) {
  std::string name;
  for (char c : accelerator) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += upper ? static_cast<char>(c - 'A' + 'a') : plain ? c : '-';
  }
  constexpr std::size_t kLongest = 30;
  name = name.substr(0, kLongest - suffix.size());
  const std::size_t begin = name.find_first_not_of('-');
  name = begin == std::string::npos ? "pool" : name.substr(begin);
  return name + suffix;
}

std::string pool_name(const std::string& accelerator, int gpus) { return class_label(accelerator, fmt::format("-{}", gpus)); }

std::string title(const PoolId& pool) {
  return pool.role == Role::kUnified ? pool.name : fmt::format("{} ({})", pool.name, dispatch::to_string(pool.role));
}

std::string former_pool_name(const std::string& accelerator, int gpus, Role role) {
  return class_label(accelerator, fmt::format("-{}-{}", gpus, dispatch::to_string(role)));
}

PoolId pool_of_name(const std::string& name, const std::string& accelerator, int gpus) {
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    const std::string suffix = fmt::format("-{}", dispatch::to_string(role));
    if (!name.ends_with(suffix)) continue;
    return {accelerator.empty() ? name.substr(0, name.size() - suffix.size()) : pool_name(accelerator, gpus), role};
  }
  return {name, Role::kUnified};
}

}  // namespace windlass::planner
