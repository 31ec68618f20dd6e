// See pool_name.h.
#include "planner/deployment/pool_name.h"

#include <cstddef>

#include <fmt/format.h>

namespace windlass::planner {

std::string pool_name(const std::string& accelerator, int gpus, dispatch::Role role) {
  std::string suffix = fmt::format("-{}", gpus);
  if (role != dispatch::Role::kUnified) suffix += fmt::format("-{}", dispatch::to_string(role));
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

}  // namespace windlass::planner
