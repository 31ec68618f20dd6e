// RowSummariser: summarises a row of logits in host memory, to be sent instead of the row. Sampling from the summary is
// equivalent to sampling from the row (sampler.h). One thread.
#pragma once

#include <span>
#include <vector>

#include "worker/backend/logit_summary.h"
#include "worker/engine/logit_row.h"

namespace windlass::worker {

class RowSummariser {
 public:
  // REQUIRES: `need.likeliest` is at least 1.
  [[nodiscard]] LogitSummary summary_of(std::span<const float> logits, const RowNeed& need);

 private:
  // Work space, kept between rows to save the allocations.
  std::vector<float> maxima_, highest_maxima_, weights_;
  std::vector<TokenWeight> likeliest_;
};

}  // namespace windlass::worker
