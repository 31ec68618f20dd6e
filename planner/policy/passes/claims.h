// What a service asks of the GPUs: its claims in arbitration. A claim borrows its draft.
#pragma once

#include "planner/policy/arbitration.h"
#include "planner/policy/passes/draft.h"

namespace windlass::planner {

// While the cluster refuses new workers, or no node takes those that are there, more of them would only keep GPUs from others.
[[nodiscard]] bool yields(const Draft& draft, double now_s);

// Of the chosen configuration.
[[nodiscard]] Claim claim_of(const Draft& draft, double now_s);

// Of the workers that compute prompts. Without them the answering workers compute prompts too, and so as many requests miss the
// objective as without one of those.
[[nodiscard]] Claim prefill_claim_of(const Draft& draft, double now_s);

// What runs on a second class competes for its GPUs as what runs does.
[[nodiscard]] Claim second_claim_of(const Draft& draft, const Configuration& pool, int wanted);

}  // namespace windlass::planner
