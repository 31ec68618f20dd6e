// VerdictWatch ends a run early: it decides when it is certain whether the run meets its objectives, before the last request
// has ended.
//
// A search tries deployments at many rates, and most trials fail long before they end: once more requests miss an objective
// than allowed, no later request can make up for it. So a run may be given its criteria (VerdictOnly). It ends when enough
// requests have missed, when one is lost, or, once all have arrived, when enough have met the objectives.
//
// The verdict equals that of the whole run, exactly. Percentiles come from buckets of width 1/256 (recorder.h), so a value
// within that distance of its bound decides nothing before the end. Belongs to one run. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace windlass::sim {

// The limited figure of a request, as in ServingResult.
enum class Figure { kTtft, kTpot, kE2e, kSchedulingDelay, kTtftSlowdown, kTbtSlowdown, kE2eSlowdown };

// For at least `share` of the requests, the figure is at most `most`.
struct FigureLimit {
  Figure figure = Figure::kTtft;
  double share = 0.95;  // above 0, at most 1
  double most = 0;
};

// Criteria of a run from which only a verdict is needed.
struct VerdictOnly {
  std::int64_t requests = 0;         // upper bound of the source's requests
  std::optional<double> attainment;  // required share of requests that meet the service's objectives
  std::vector<FigureLimit> limits;
};

enum class EarlyVerdict { kNone, kHolds, kBroken };

class VerdictWatch {
 public:
  explicit VerdictWatch(VerdictOnly of);

  void observe(Figure figure, double value);
  // Counts a request that met both objectives, or certainly missed one; once each.
  void attained() { ++attained_; }
  void missed() { broken_ = broken_ || ++missed_ > may_miss_; }
  void lost() { broken_ = true; }

  [[nodiscard]] bool broken() const { return broken_; }
  // Whether the last `left` of `requests` cannot change a positive verdict. REQUIRES: none of them will be lost.
  [[nodiscard]] bool holds(std::int64_t requests, std::int64_t left) const;

 private:
  struct Counted {
    FigureLimit limit;
    std::int64_t observed = 0;
    std::int64_t above = 0;         // certainly above
    std::int64_t not_below = 0;     // possibly above
    std::int64_t may_be_above = 0;  // allowed number, of all requests
  };

  VerdictOnly of_;
  std::vector<Counted> limits_;
  std::int64_t attained_ = 0, missed_ = 0;
  std::int64_t may_miss_ = 0;
  bool broken_ = false;
};

}  // namespace windlass::sim
