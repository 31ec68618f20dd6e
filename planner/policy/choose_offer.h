// Chooses among the offers of the strategies: what an offer means for the lengths and times believed now, which one is the
// cheapest, and whether it is worth replacing what runs.
#pragma once

#include <optional>

#include "planner/policy/choose_configuration.h"
#include "planner/policy/target.h"

namespace windlass::planner {

// Reason code of a deployment whose class cannot be read.
inline constexpr const char* kClassUnread = "RunningClassUnknown";

// Whether the spec allows all of the offer's classes.
[[nodiscard]] bool may_use(const Service& service, const Offer& offer);

// An offer's pools with slots, times and rates for the lengths believed now. The closed forms carry the simulator's rates over
// to other lengths and times. Nothing is chosen if a class cannot be read (RunningClassUnknown).
[[nodiscard]] ConfigurationChoice choice_of(const ConfigurationInput& input, const Offer& offer);

// Requests per second of one worker of the pool, by the closed forms for the lengths and times believed now.
[[nodiscard]] double closed_form_per_s(const ConfigurationInput& input, const OfferedPool& pool);

// Whether no worker holds GPUs, or only such as have just started.
[[nodiscard]] bool runs_nothing(const ConfigurationInput& input);

// Cost of the workers that serve this rate.
[[nodiscard]] double cost_per_hour(const ConfigurationInput& input, const ConfigurationChoice& choice, double requests_per_s);

// choice_of() for the cheapest confirmed offer of these kinds whose classes can be read and have room for one unit within the
// service's limits; without room anywhere, for the cheapest. If whole workers are not allowed, limits without room for a unit
// count as no room. None if no offer can be used; the reasons say why.
[[nodiscard]] std::optional<ConfigurationChoice> cheapest_offer(const ConfigurationInput& input, bool whole, bool split,
                                                                std::vector<Reason>& reasons);

// Chooses between what runs and the best offer. `current`: what runs, or what closed forms would run. `other`: choice_of()
// for the offer.
[[nodiscard]] ConfigurationChoice current_or_offer(const ConfigurationInput& input, ConfigurationChoice current,
                                                   ConfigurationChoice other);

}  // namespace windlass::planner
