// RowSummariser: the summary of a row of logits that is on the host, for who is to send it elsewhere. What a sampler draws from
// it is what it draws from the row (sampler.h). One thread.
#pragma once

#include <span>
#include <vector>

#include "worker/backend/logit_summary.h"
#include "worker/engine/logit_row.h"

namespace windlass::worker {

class RowSummariser {
 public:
  // `need.likeliest` is at least 1.
  [[nodiscard]] LogitSummary summary_of(std::span<const float> logits, const RowNeed& need);

 private:
  // Kept between rows to save the allocations.
  std::vector<float> maxima_, highest_maxima_, weights_;
  std::vector<TokenWeight> likeliest_;
};

}  // namespace windlass::worker
