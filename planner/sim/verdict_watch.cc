// See verdict_watch.h.
#include "planner/sim/verdict_watch.h"

#include <cmath>
#include <limits>
#include <utility>

namespace windlass::sim {
namespace {

constexpr double kBucket = 1.0 / 256;       // bucket width of recorder.h
constexpr double kAsAllowed = 1 + 1e-9;     // the exact share, with room for rounding
constexpr double kAlmostWhole = 1 - 1e-12;  // a share of 1 allows no violation

std::int64_t may_miss(double attainment, std::int64_t requests) {
  return static_cast<std::int64_t>(std::floor((1 - attainment) * kAsAllowed * static_cast<double>(requests)));
}

// How many of `observed` values may exceed a limit, by TimeRecorder's ranks.
std::int64_t may_be_above(double share, std::int64_t observed) {
  if (share >= kAlmostWhole) return 0;
  return observed - static_cast<std::int64_t>(std::ceil(share * static_cast<double>(observed)));
}

}  // namespace

VerdictWatch::VerdictWatch(VerdictOnly of)
    : of_(std::move(of)),
      may_miss_(of_.attainment ? may_miss(*of_.attainment, of_.requests) : std::numeric_limits<std::int64_t>::max()) {
  for (const FigureLimit& limit : of_.limits)
    limits_.push_back({.limit = limit, .may_be_above = may_be_above(limit.share, of_.requests)});
}

void VerdictWatch::observe(Figure figure, double value) {
  for (Counted& counted : limits_) {
    if (counted.limit.figure != figure) continue;
    ++counted.observed;
    if (value > counted.limit.most * (1 - kBucket)) ++counted.not_below;
    // With fewer observations than requests, no more values may exceed the limit.
    if (value > counted.limit.most * (1 + kBucket)) broken_ = broken_ || ++counted.above > counted.may_be_above;
  }
}

bool VerdictWatch::holds(std::int64_t requests, std::int64_t left) const {
  if (broken_) return false;
  if (of_.attainment && attained_ < requests - may_miss(*of_.attainment, requests)) return false;
  for (const Counted& counted : limits_) {
    // Worst case: all remaining requests are observed and exceed the limit.
    if (counted.not_below + left > may_be_above(counted.limit.share, counted.observed + left)) return false;
  }
  return true;
}

}  // namespace windlass::sim
