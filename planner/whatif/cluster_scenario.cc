// See cluster_scenario.h.
#include "planner/whatif/cluster_scenario.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/deployment/network_parts.h"

namespace windlass::hetero {
namespace {

// Describes the memory that a part of the network has for the model.
std::string room_text(const GpuCluster& cluster, const std::vector<int>& part, double needed_bytes) {
  const double there = memory_bytes(cluster, part);
  return fmt::format(
      "{} {} {:.0f} GB{}", names_text(cluster, part), part.size() == 1 ? "has" : "have", there / 1e9,
      there >= needed_bytes ? "" : fmt::format(", {:.0f} GB too little", std::max(1.0, (needed_bytes - there) / 1e9)));
}

}  // namespace

Result<search::Question> question_of(ClusterScenario scenario, const std::map<std::string, std::string>& texts,
                                     Executor* executor) {
  const std::string source = scenario.plan.scenario.source;
  const int line = scenario.line;
  const std::string model = scenario.plan.scenario.services.front().model.title();
  WINDLASS_RETURN_IF_ERROR(validate(scenario.cluster));
  WINDLASS_ASSIGN_OR_RETURN(auto made, search::question_without_kinds(std::move(scenario.plan), texts, executor));
  made.keep_notes([](const std::string& note) { return note.starts_with("cluster.") || note.starts_with("latency:"); });
  search::Problem& problem = made.problem();
  const auto cluster = std::make_shared<const GpuCluster>(std::move(scenario.cluster));
  problem.cluster = cluster;

  const double weight_bytes = planner::weight_bytes(problem.shape);
  const double request_bytes = planner::kv_bytes_per_token(problem.shape) *
                               (problem.requests->mean_input_tokens() + problem.requests->mean_output_tokens());
  const double needed_bytes = weight_bytes + request_bytes;
  const std::vector<std::vector<int>> parts = network_parts(*cluster);
  std::string rooms;
  bool fits = false;
  for (const std::vector<int>& part : parts) {
    rooms += (rooms.empty() ? "" : "; ") + room_text(*cluster, part, needed_bytes);
    fits = fits || memory_bytes(*cluster, part) >= needed_bytes;
  }
  if (!fits) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}:{}: cluster: must have connected nodes with at least {:.0f} GB for {} (weights {:.0f} "
                             "GB, a mean request's KV cache {:.2g} GB); got {}",
                             source, line, needed_bytes / 1e9, model, weight_bytes / 1e9, request_bytes / 1e9, rooms)};
  }
  if (parts.size() > 1) {
    made.note(
        fmt::format("cluster.links: the network has {} separate parts, and a copy of the model ({:.0f} GB) must fit in one: {}",
                    parts.size(), needed_bytes / 1e9, rooms));
  }
  return made;
}

}  // namespace windlass::hetero
