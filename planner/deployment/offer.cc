// Describes offers; see offer.h.
#include "planner/deployment/offer.h"

namespace windlass::planner {

std::string describe(const Offer& offer) {
  Deployment deployment;
  for (const OfferedPool& pool : offer.pools) deployment.pools.push_back({pool.spec, pool.role, pool.workers});
  return describe(deployment);
}

}  // namespace windlass::planner
