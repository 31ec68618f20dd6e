// VerdictWatch: whether a run's verdict is sure before its last request has ended.
//
// A search tries deployments at many rates, and most trials are lost long before they end: once more requests are outside an
// objective than may be, no later one mends it. So a run may be told what it is judged by (VerdictOnly); it ends when enough
// requests are outside, when one is lost, or, all being under way, when so many are inside that the rest cannot matter. The
// verdict is that of the whole run, exactly: percentiles come from buckets of a 256th (recorder.h), so a value that near to
// its bound decides nothing before the end. Belongs to one run. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace windlass::sim {

// What of a request is bounded: as in ServingResult.
enum class Figure { kTtft, kTpot, kE2e, kSchedulingDelay, kTtftSlowdown, kTbtSlowdown, kE2eSlowdown };

// In at least `share` of the requests the figure is at most `most`.
struct FigureLimit {
  Figure figure = Figure::kTtft;
  double share = 0.95;  // above 0, at most 1
  double most = 0;
};

// By what a run is judged whose verdict is all that is asked.
struct VerdictOnly {
  std::int64_t requests = 0;         // that its source brings at most
  std::optional<double> attainment;  // the share of them that is to be inside the service's objectives
  std::vector<FigureLimit> limits;
};

enum class EarlyVerdict { kNone, kHolds, kBroken };

class VerdictWatch {
 public:
  explicit VerdictWatch(VerdictOnly of);

  void observe(Figure figure, double value);
  // A request is inside both objectives, or surely not: once for each.
  void attained() { ++attained_; }
  void missed() { broken_ = broken_ || ++missed_ > may_miss_; }
  void lost() { broken_ = true; }

  [[nodiscard]] bool broken() const { return broken_; }
  // Whether nothing that the last `left` of `requests` do can break it. REQUIRES: none of them will be lost.
  [[nodiscard]] bool holds(std::int64_t requests, std::int64_t left) const;

 private:
  struct Counted {
    FigureLimit limit;
    std::int64_t observed = 0;
    std::int64_t above = 0;         // surely
    std::int64_t not_below = 0;     // perhaps above
    std::int64_t may_be_above = 0;  // of all requests
  };

  VerdictOnly of_;
  std::vector<Counted> limits_;
  std::int64_t attained_ = 0, missed_ = 0;
  std::int64_t may_miss_ = 0;
  bool broken_ = false;
};

}  // namespace windlass::sim
