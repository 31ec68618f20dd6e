// Offer: a deployment that a strategy found for a service and that the simulator confirmed, as the policy weighs it. Searching
// takes seconds, so it happens next to the control loop; offers are data of a Snapshot. Plain data. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/deployment/deployment.h"
#include "planner/dispatch/policy_settings.h"

namespace windlass::planner {

// Workers of one kind in an offer.
struct OfferedPool {
  WorkerSpec spec;
  dispatch::Role role = dispatch::Role::kUnified;
  int workers = 0;        // at Offer::requests_per_s
  double load_share = 1;  // of the requests of its role
  // Of one worker, in requests of its role: what the simulator confirmed, and the closed forms' figure for the same lengths and
  // times. Their ratio carries over to other lengths and times. 0: by the data sheet.
  double requests_per_s = 0;
  double closed_form_per_s = 0;
  // Confirmed capacity of all its workers over the one that workers_for() (planner/policy/target.h) gives them. Divides demand
  // before it is turned into workers, so that the offer's own rate needs exactly the offer's workers.
  double capacity_ratio = 1;
  // Slots of a worker over those of the closed forms, if the simulator's capacity needs more requests at once.
  double slots_ratio = 1;

  bool operator==(const OfferedPool&) const = default;
};

struct Offer {
  std::string strategy;            // "vidur"
  std::vector<OfferedPool> pools;  // the first is the one whose workers are counted: decode workers, if phases are split
  dispatch::PolicySettings dispatch{.policy = dispatch::kDefaultPolicy};  // that it was judged with
  double requests_per_s = 0;                                              // rate that it was sought for
  double capacity_per_s = 0;  // largest rate at which the simulator confirmed the objective, less the headroom
  double attainment = 0;      // share of the simulated requests that met the objective
  double cost_per_hour = 0;
  std::string why = {};  // for people

  [[nodiscard]] bool split() const { return !pools.empty() && pools.front().role != dispatch::Role::kUnified; }

  bool operator==(const Offer&) const = default;
};

// "4 x h100-1", "decode 2 x h100-1 + prefill 1 x a100-1".
[[nodiscard]] std::string describe(const Offer& offer);

// What a strategy answered, for people.
struct StrategyAnswer {
  std::string strategy;
  std::string deployment;  // empty: none
  double cost_per_hour = 0;
  std::string outcome;  // "chosen", "costs 15 per hour, the cheapest 12", "misses the objective: ..."

  bool operator==(const StrategyAnswer&) const = default;
};

// The answer to one question.
struct Offers {
  double requests_per_s = 0;     // rate of the question
  double input_tokens = 0;       // mean of the question's prompts; 0: unknown
  bool complete = false;         // no longer search follows
  std::vector<Offer> confirmed;  // cheapest first; the cheapest of each family and set of classes, at most kMaxOffers
  std::vector<StrategyAnswer> answers;
  std::string why = {};  // if nothing was confirmed, for people

  bool operator==(const Offers&) const = default;
};

inline constexpr std::size_t kMaxOffers = 4;

}  // namespace windlass::planner
