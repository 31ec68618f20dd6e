// How gateways share a model's slots: fractions that follow the queues, and whole slots from fractions. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace windlass::controller {

// What a gateway has of one model.
struct GatewayLoad {
  int in_flight = 0;
  int queued = 0;

  bool operator==(const GatewayLoad&) const = default;
};

// One model's fractions by gateway. They begin equal, and move only while some gateway has a queue: toward each one's part of
// all requests (a quarter of the slots stays evenly spread, so that an idle gateway can take a burst), by at most kStep of the
// whole every kPeriodS. Between two gateways with equal queues nothing moves.
class ShareBalance {
 public:
  static constexpr double kPeriodS = 2;
  static constexpr double kStep = 0.1;
  static constexpr double kEvenPart = 0.25;
  static constexpr double kDeadBand = 0.03;  // differences that are not worth a new table

  // Fractions for these gateways, in the order of their ids; they add up to 1. `slots`: of all the model's chains. `loads`: of
  // gateways that are missing there nothing is known, and they count as idle.
  [[nodiscard]] std::vector<double> move(const std::vector<std::string>& gateways,
                                         const std::map<std::string, GatewayLoad>& loads, int slots, double now_s);

 private:
  std::map<std::string, double> fractions_;
  double moved_s_ = 0;
};

// Whole slots of each chain for each gateway: [chain][gateway]. Each chain's add up to its capacity; every gateway gets one
// where the capacity allows; what a fraction leaves over goes to whom it owes most over the chains so far, so that the sums
// over all chains follow the fractions too. REQUIRES: fractions are not negative and add up to 1.
[[nodiscard]] std::vector<std::vector<int>> whole_slots(const std::vector<int>& capacities,
                                                        const std::vector<double>& fractions);

}  // namespace windlass::controller
