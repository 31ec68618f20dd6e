// RipeNetwork: round-trip times between European hosts, composed from the RIPE Atlas measurements in ../shared/data/topology.
//
// The file has latencies of single anchors, not of pairs. As in the published simulator of Sun, He, Hou 2026, a pair's RTT is
// 0.3 med_i + 0.3 med_j + 0.01 ms/km x great-circle distance, with med the median over all measurements of an anchor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::bench {

struct Anchor {
  double median_ms = 0;
  double latitude = 0, longitude = 0;  // degrees
};

class RipeNetwork {
 public:
  // Parses LearningDataset_RTT_RipeAtlasEU.csv. Errors name line and field.
  [[nodiscard]] static Result<RipeNetwork> parse(std::string_view text);

  [[nodiscard]] std::size_t size() const { return anchors_.size(); }
  [[nodiscard]] double rtt_s(std::size_t i, std::size_t j) const;

 private:
  std::vector<Anchor> anchors_;  // ordered by id
};

}  // namespace windlass::bench
