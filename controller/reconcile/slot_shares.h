// Divides a model's slots (requests that may run at the same time) among gateways. First it computes each gateway's fraction,
// which follows the lengths of the gateways' queues; then it turns fractions into whole slots. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace windlass::controller {

// A gateway's load of one model.
struct GatewayLoad {
  int in_flight = 0;
  int queued = 0;

  bool operator==(const GatewayLoad&) const = default;
};

// One model's fractions by gateway. They start equal and move only while some gateway has a queue. Then they move toward each
// gateway's share of all requests, by at most kStep of the total every kPeriodS. A quarter of the slots stays evenly spread, so
// that an idle gateway can take a burst.
class ShareBalance {
 public:
  static constexpr double kPeriodS = 2;
  static constexpr double kStep = 0.1;
  static constexpr double kEvenPart = 0.25;
  static constexpr double kDeadBand = 0.03;  // smaller differences are not worth a new table

  // Fractions of these gateways, ordered by id; they add up to 1. `slots`: total over the model's chains. `loads`: gateways
  // without an entry count as idle.
  [[nodiscard]] std::vector<double> move(const std::vector<std::string>& gateways,
                                         const std::map<std::string, GatewayLoad>& loads, int slots, double now_s);

 private:
  std::map<std::string, double> fractions_;
  double moved_s_ = 0;
};

// Whole slots as [chain][gateway]. Each chain's slots add up to its capacity, and every gateway gets at least one if the
// capacity allows. Remainders go to the gateways that are owed most over the chains so far, so that the sums over all chains
// follow the fractions too. REQUIRES: fractions are not negative and add up to 1.
[[nodiscard]] std::vector<std::vector<int>> whole_slots(const std::vector<int>& capacities,
                                                        const std::vector<double>& fractions);

}  // namespace windlass::controller
