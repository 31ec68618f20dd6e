// See load_report.h.
#include "gateway/load_report.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::gateway {

std::string load_report(const Router& router, std::size_t max_bytes) {
  std::map<std::string, std::pair<int, int>> loads;
  for (const auto& load : router.chain_loads()) loads[load.model].first += load.in_flight;
  for (const auto& [model, length] : router.queue_lengths()) loads[model].second += length;
  std::vector<std::tuple<int, int, std::string>> order;
  for (const auto& [model, load] : loads) {
    if (load.first + load.second > 0) order.emplace_back(-load.second, -load.first, model);
  }
  std::sort(order.begin(), order.end());
  std::string report = "{";
  for (const auto& [queued, in_flight, model] : order) {
    const std::string name = nlohmann::json(model).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    const std::string entry = fmt::format("{}{}:[{},{}]", report.size() > 1 ? "," : "", name, -in_flight, -queued);
    if (report.size() + entry.size() + 1 > max_bytes) break;
    report += entry;
  }
  return report + "}";
}

}  // namespace windlass::gateway
