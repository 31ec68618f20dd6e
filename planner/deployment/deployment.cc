// See deployment.h.
#include "planner/deployment/deployment.h"

#include <fmt/format.h>

#include "planner/deployment/pool_name.h"

namespace windlass::planner {

int gpus_of(const Deployment& deployment) {
  int gpus = 0;
  for (const Pool& pool : deployment.pools) gpus += pool.workers * pool.spec.gpus();
  return gpus;
}

std::string worker_text(const WorkerSpec& spec) {
  const std::string name = pool_name(spec.accelerator, spec.gpus());
  return spec.pipeline_stages == 1 ? name : fmt::format("{} (PP {})", name, spec.pipeline_stages);
}

std::string describe(const Deployment& deployment) {
  std::string text;
  for (const Pool& pool : deployment.pools) {
    if (!text.empty()) text += " + ";
    if (pool.role != dispatch::Role::kUnified) text += fmt::format("{} ", dispatch::to_string(pool.role));
    text += fmt::format("{} x {}", pool.workers, worker_text(pool.spec));
    if (pool.spec.power_share != 1) text += fmt::format(" (at {:.0f} % of its power)", 100 * pool.spec.power_share);
  }
  return text;
}

}  // namespace windlass::planner
