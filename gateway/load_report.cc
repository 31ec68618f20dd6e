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

std::map<std::string, std::map<std::string, int>> over_share(const Router& router) {
  struct Held {
    int in_flight = 0, share = 0;
  };
  std::map<std::pair<std::string, std::string>, Held> held;  // a chain whose worker moved to another address appears twice
  for (const auto& load : router.chain_loads()) {
    Held& of_chain = held[{load.model, load.chain}];
    of_chain.in_flight += load.in_flight;
    of_chain.share += load.draining ? 0 : load.capacity;
  }
  std::map<std::string, std::map<std::string, int>> over;
  for (const auto& [name, of_chain] : held) {
    if (of_chain.in_flight > of_chain.share) over[name.first][name.second] = of_chain.in_flight;
  }
  return over;
}

std::string over_share_report(const Router& router, std::size_t max_bytes) {
  const nlohmann::json over = over_share(router);
  std::string report = over.is_null() ? "{}" : over.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return report.size() <= max_bytes ? report : R"("many")";
}

}  // namespace windlass::gateway
