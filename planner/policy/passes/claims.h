// Claims: how many GPUs each service asks for when GPUs are divided (planner/policy/arbitration.h). A claim borrows its draft.
#pragma once

#include "planner/policy/arbitration.h"
#include "planner/policy/passes/draft.h"

namespace windlass::planner {

// True while the cluster rejects new workers, or no node takes the existing ones: more workers would only block GPUs for
// others.
[[nodiscard]] bool yields(const Draft& draft, double now_s);

// For the chosen configuration.
[[nodiscard]] Claim claim_of(const Draft& draft, double now_s);

// For a side pool. Without a prefill worker, decode workers compute its prompts too, so it costs as many missed requests as a
// missing decode worker.
[[nodiscard]] Claim side_claim_of(const Draft& draft, std::size_t index, double now_s);

// A pool on a second class competes for its GPUs as a running pool.
[[nodiscard]] Claim second_claim_of(const Draft& draft, const Configuration& pool, int wanted);

}  // namespace windlass::planner
