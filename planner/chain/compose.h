// compose(): chains for an instance: block placement (GBP-CR) for the best reserved capacity c, cache allocation (GCA), bounds.
//
// Sun, He, Hou 2026: c by the surrogate c K(c) (Eq. 13-14) or by the lower or upper bound of Theorem 3.7 on the chains that
// GBP-CR and GCA give (Section 3.2.3). Pure and deterministic.
#pragma once

#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/placement.h"

namespace windlass::chain {

enum class Tuning { kLowerBound, kUpperBound, kSurrogate };

const char* to_string(Tuning tuning);  // "lower-bound", "upper-bound", "surrogate"

// One value of c and how it was judged.
struct ConsideredCapacity {
  int capacity = 0;
  double objective = 0;  // seconds of mean response time, or c K(c) for the surrogate

  bool operator==(const ConsideredCapacity&) const = default;
};

struct Composition {
  int capacity = 0;                               // c
  Placement placement;                            // of every server
  std::vector<std::vector<int>> disjoint_chains;  // GBP-CR's complete ones; empty for other placements
  std::vector<ServerChain> chains;                // in the order of falling service rate
  long total_capacity = 0;                        // C
  double total_service_rate_per_s = 0;            // nu = sum c_k mu_k
  bool stable = false;                            // lambda < nu
  bool meets_max_load = false;                    // lambda <= rho-bar nu
  std::optional<double> mean_response_lower_s;    // Theorem 3.7; none when unstable
  std::optional<double> mean_response_upper_s;
  std::vector<ConsideredCapacity>
      considered;  // values of c that were judged to the end, in rising order; empty when c was given
};

// Fills everything but capacity, disjoint_chains and considered from the placement by GCA.
[[nodiscard]] Composition compose_on(const Instance& instance, Placement placement);

enum class Servers {
  kAsNeeded,  // GBP-CR stops once its chains reach lambda / (rho c) (Alg. 1, line 9): the rest stay empty
  kAll,       // it goes on to the last server: more capacity for bursts, for the price of the servers
};

// GBP-CR with this c, then GCA. Error kFailedPrecondition when no full chain can be placed: says how many GB are missing.
[[nodiscard]] Result<Composition> compose(const Instance& instance, int capacity, Servers servers = Servers::kAsNeeded);

// The same with the best c of 1..max_capacity(instance). Ties go to the smaller c. When no c is stable (the surrogate: none
// reaches the rate), the c with the largest total service rate. The surrogate judges c by the stop rule also where kAll then
// places every server.
[[nodiscard]] Result<Composition> compose(const Instance& instance, Tuning tuning, Servers servers = Servers::kAsNeeded);

// floor((max_j M_j - s_m) / s_c); may be below 1 when no server holds a block with a cache.
[[nodiscard]] int max_capacity(const Instance& instance);

}  // namespace windlass::chain
