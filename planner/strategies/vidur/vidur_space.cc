// See vidur_space.h.
#include "planner/strategies/vidur/vidur_space.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "planner/strategies/core/fewest_workers.h"

namespace windlass::search {
namespace {

Error wrong(const char* field, const std::string& found, const char* allowed) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("vidur: {}: must be {} (got {})", field, allowed, found)};
}

}  // namespace

Result<void> validate(const VidurOptions& options) {
  const VidurSpace& space = options.space;
  const auto whole = [](const char* field, const std::vector<int>& values) -> Result<void> {
    if (values.empty()) return wrong(field, "none", "at least one number");
    for (const int value : values) {
      if (value < 1) return wrong(field, std::to_string(value), "numbers of at least 1");
    }
    return {};
  };
  if (space.batchings.empty()) return wrong("batchings", "none", "at least one");
  WINDLASS_RETURN_IF_ERROR(whole("batch sizes", space.batch_sizes));
  WINDLASS_RETURN_IF_ERROR(whole("chunk tokens", space.chunk_tokens));
  WINDLASS_RETURN_IF_ERROR(whole("whole prompt tokens", {space.whole_prompt_tokens}));
  const auto positive = [](const char* field, double value) -> Result<void> {
    if (value > 0 && std::isfinite(value)) return {};
    return wrong(field, fmt::format("{}", value), "a number above 0");
  };
  WINDLASS_RETURN_IF_ERROR(positive("scheduling delay", options.scheduling_delay_s));
  WINDLASS_RETURN_IF_ERROR(positive("arrivals", options.arrivals_s));
  WINDLASS_RETURN_IF_ERROR(positive("tolerance", options.tolerance));
  return {};
}

std::string describe(const Problem& problem, const VidurPoint& point) {
  const WorkerKind& kind = problem.kinds[static_cast<std::size_t>(point.kind)];
  const std::string chunk =
      planner::chunks_prompts(point.engine.batching) ? fmt::format(" {}", point.engine.max_batch_tokens) : std::string();
  return fmt::format("{}, TP {}, PP {}, {}{}, batch {}", problem.spec(kind).name, kind.tensor_parallel, kind.pipeline_stages,
                     planner::to_string(point.engine.batching), chunk, point.engine.max_sequences * kind.pipeline_stages);
}

std::vector<VidurPoint> vidur_points(const Problem& problem, const VidurSpace& space, const LengthMoments& lengths) {
  std::vector<VidurPoint> points;
  std::vector<planner::Batching> batchings = space.batchings;
  std::erase_if(batchings, [&](planner::Batching each) { return !problem.engines.holds(each); });
  if (batchings.empty()) batchings = problem.engines.batchings;
  for (int k = 0; k < static_cast<int>(problem.kinds.size()); ++k) {
    const WorkerKind& kind = problem.kinds[static_cast<std::size_t>(k)];
    const int room = max_workers(problem, k);
    const double lane_tokens = kind.kv_capacity_tokens / kind.pipeline_stages;
    for (const planner::Batching batching : batchings) {
      for (const int tokens :
           planner::chunks_prompts(batching) ? space.chunk_tokens : std::vector<int>{space.whole_prompt_tokens}) {
        for (const int batch : space.batch_sizes) {
          VidurPoint point;
          point.kind = k;
          point.engine = problem.engine;
          point.engine.batching = batching;
          point.engine.max_batch_tokens = tokens;
          point.engine.max_sequences = std::max(1, batch / kind.pipeline_stages);
          if (!problem.engines.holds(point.engine)) continue;
          if (room < 1) {
            point.passed_over = "no room for one worker";
          } else if (lane_tokens < lengths.longest_tokens) {
            point.passed_over = fmt::format("a stage's KV cache holds {:.0f} tokens, but the longest request has {}",
                                            lane_tokens, lengths.longest_tokens);
          } else {
            point.steady_requests_per_s = steady_state(kind, point.engine, lengths).requests_per_s;
            if (!(point.steady_requests_per_s > 0)) point.passed_over = "its KV cache holds no request";
          }
          points.push_back(std::move(point));
        }
      }
    }
  }
  return points;
}

std::vector<int> pareto_front(const VidurFound& found, double VidurPoint::*latency_s) {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(found.points.size()); ++i) {
    if (found.points[static_cast<std::size_t>(i)].requests_per_s > 0) order.push_back(i);
  }
  const auto key = [&](int i) {
    const VidurPoint& point = found.points[static_cast<std::size_t>(i)];
    return std::tuple(point.*latency_s, -point.per_worth, i);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  std::vector<int> front;
  double most = 0;
  for (const int i : order) {
    const double per_worth = found.points[static_cast<std::size_t>(i)].per_worth;
    if (per_worth <= most) continue;
    most = per_worth;
    front.push_back(i);
  }
  return front;
}

}  // namespace windlass::search
