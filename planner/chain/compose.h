// compose() builds server chains for an instance: block placement (GBP-CR) for the best reserved capacity c, cache allocation
// (GCA), and bounds on the response time.
//
// Sun, He, Hou 2026: c is chosen by the surrogate c K(c) (Eq. 13-14) or by the lower or upper bound of Theorem 3.7 for the
// chains from GBP-CR and GCA (Section 3.2.3). Pure and deterministic.
#pragma once

#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/placement.h"

namespace windlass::chain {

enum class Tuning { kLowerBound, kUpperBound, kSurrogate };

const char* to_string(Tuning tuning);  // "lower-bound", "upper-bound", "surrogate"

// A value of c and its result.
struct ConsideredCapacity {
  int capacity = 0;
  double objective = 0;  // seconds of mean response time, or c K(c) for the surrogate

  bool operator==(const ConsideredCapacity&) const = default;
};

struct Composition {
  int capacity = 0;                               // c
  Placement placement;                            // of every server
  std::vector<std::vector<int>> disjoint_chains;  // complete chains of GBP-CR; empty for other placements
  std::vector<ServerChain> chains;                // sorted by falling service rate
  long total_capacity = 0;                        // C
  double total_service_rate_per_s = 0;            // nu = sum c_k mu_k
  bool stable = false;                            // lambda < nu
  bool meets_max_load = false;                    // lambda <= rho-bar nu
  std::optional<double> mean_response_lower_s;    // Theorem 3.7; none if unstable
  std::optional<double> mean_response_upper_s;
  std::vector<ConsideredCapacity> considered;  // values of c evaluated completely, ascending; empty if c was given
};

// Runs GCA on the placement and fills everything except capacity, disjoint_chains and considered.
[[nodiscard]] Composition compose_on(const Instance& instance, Placement placement);

enum class Servers {
  kAsNeeded,  // GBP-CR stops once its chains reach lambda / (rho c) (Alg. 1, line 9); the other servers stay empty
  kAll,       // it continues to the last server: more capacity for bursts, at the price of these servers
};

// GBP-CR with this c, then GCA. Error kFailedPrecondition if no full chain can be placed; it says how many GB are missing.
[[nodiscard]] Result<Composition> compose(const Instance& instance, int capacity, Servers servers = Servers::kAsNeeded);

// The same with the best c in 1..max_capacity(instance); ties go to the smaller c. If no c is stable (with the surrogate: none
// reaches the rate), it uses the c with the largest total service rate. The surrogate applies the stop rule to judge c, even if
// kAll then places every server.
[[nodiscard]] Result<Composition> compose(const Instance& instance, Tuning tuning, Servers servers = Servers::kAsNeeded);

// floor((max_j M_j - s_m) / s_c); below 1 if no server can hold a block with a cache.
[[nodiscard]] int max_capacity(const Instance& instance);

}  // namespace windlass::chain
