// Computes increases and rates from cumulative readings.
#include "metrics/counter_tracker.h"

#include <algorithm>
#include <cmath>

namespace windlass::metrics {
namespace {

// True when this reading comes from a different run of the writer than the last one.
bool restarted(std::optional<double>& known_start_s, std::optional<double> start_s) {
  if (!start_s.has_value()) return false;
  const bool changed = known_start_s.has_value() && *known_start_s != *start_s;
  known_start_s = start_s;
  return changed;
}

// The point at which a window begins: the last one at or before `from_s`, otherwise the first. REQUIRES: points is not empty.
template <class Points>
const auto& window_start(const Points& points, double from_s) {
  auto after = std::upper_bound(points.begin(), points.end(), from_s, [](double t, const auto& p) { return t < p.time_s; });
  return after == points.begin() ? points.front() : *std::prev(after);
}

// True when the point before the newest is closer than resolution_s to its predecessor, so that it can be dropped.
template <class Points>
bool crowded(const Points& points, double resolution_s) {
  const std::size_t n = points.size();
  return n >= 3 && points[n - 2].time_s - points[n - 3].time_s < resolution_s;
}

// True when no window of max_window_s reaches the first point. One point at or before the window's start stays as the baseline.
template <class Points>
bool out_of_reach(const Points& points, double max_window_s) {
  return points.size() > 2 && points[1].time_s <= points.back().time_s - max_window_s;
}

}  // namespace

CounterTracker::CounterTracker(double max_window_s, double resolution_s)
    : max_window_s_(max_window_s), resolution_s_(resolution_s) {}

void CounterTracker::observe(double now_s, double value, std::optional<double> writer_start_s) {
  if (!std::isfinite(value) || value < 0) return;
  if (!points_.empty() && now_s <= points_.back().time_s) return;
  const bool other_run = restarted(writer_start_s_, writer_start_s);
  if (!last_value_.has_value()) {
    // The first reading is a baseline. If the series was absent before, it is an increase from 0.
    points_.push_back({now_s, points_.empty() ? 0 : value});
  } else {
    const bool reset = other_run || value < *last_value_;
    if (reset) ++resets_;
    points_.push_back({now_s, points_.back().total + (reset ? value : value - *last_value_)});
  }
  last_value_ = value;
  if (!first_s_.has_value()) first_s_ = points_.front().time_s;
  if (crowded(points_, resolution_s_)) points_.erase(std::prev(points_.end(), 2));
  while (out_of_reach(points_, max_window_s_)) points_.pop_front();
}

void CounterTracker::observe_absent(double now_s) {
  if (last_value_.has_value()) return;
  if (!points_.empty() && now_s <= points_.back().time_s) return;
  points_.assign(1, {now_s, 0});
}

std::optional<CounterTracker::Span> CounterTracker::span(double now_s, double window_s) const {
  if (points_.size() < 2) return std::nullopt;
  const Point& start = window_start(points_, now_s - window_s);
  const Point& end = points_.back();
  if (end.time_s <= start.time_s) return std::nullopt;
  return Span{end.time_s - start.time_s, end.total - start.total};
}

std::optional<double> CounterTracker::increase(double now_s, double window_s) const {
  const auto found = span(now_s, window_s);
  return found ? std::optional<double>(found->increase) : std::nullopt;
}

std::optional<double> CounterTracker::rate_per_s(double now_s, double window_s) const {
  const auto found = span(now_s, window_s);
  return found ? std::optional<double>(found->increase / found->seconds) : std::nullopt;
}

double CounterTracker::total() const { return points_.empty() ? 0 : points_.back().total; }

std::optional<double> CounterTracker::first_reading_s() const { return first_s_; }

std::optional<double> CounterTracker::last_reading_s() const {
  return last_value_.has_value() ? std::optional<double>(points_.back().time_s) : std::nullopt;
}

LatencyTracker::LatencyTracker(double max_window_s, double resolution_s)
    : max_window_s_(max_window_s), resolution_s_(resolution_s) {}

void LatencyTracker::observe(double now_s, const SeenLatencies& seen, std::optional<double> writer_start_s) {
  if (!points_.empty() && now_s <= points_.back().time_s) return;
  const bool other_run = restarted(writer_start_s_, writer_start_s);
  if (last_ && !other_run && last_->fine != seen.fine && !last_->counts.empty()) {
    if (last_->fine) return;
    points_.clear();
    last_.reset();
  }
  Point point{now_s, {}};
  if (last_) {
    const auto grown = other_run ? std::nullopt : seen.counts.since(last_->counts);
    if (!grown) ++resets_;
    point.grown = grown.value_or(seen.counts);
  }
  points_.push_back(std::move(point));
  last_ = seen;
  thin_out();
}

void LatencyTracker::thin_out() {
  if (crowded(points_, resolution_s_)) {
    const auto spare = std::prev(points_.end(), 2);
    points_.back().grown.add(spare->grown);
    points_.erase(spare);
  }
  while (out_of_reach(points_, max_window_s_)) points_.pop_front();
}

void LatencyTracker::observe_absent(double now_s) {
  if (!last_) observe(now_s, {});
}

void LatencyTracker::take(double now_s, const Result<SeenLatencies>& found, std::optional<double> writer_start_s) {
  if (found.ok()) {
    observe(now_s, *found, writer_start_s);
  } else if (found.error().code == ErrorCode::kNotFound) {
    observe_absent(now_s);
  }
}

std::optional<LatencyCounts> LatencyTracker::increase(double now_s, double window_s) const {
  if (points_.size() < 2) return std::nullopt;
  const double from_s = window_start(points_, now_s - window_s).time_s;
  if (points_.back().time_s <= from_s) return std::nullopt;
  LatencyCounts sum;
  for (auto point = points_.rbegin(); point != points_.rend() && point->time_s > from_s; ++point) sum.add(point->grown);
  return sum;
}

std::optional<double> LatencyTracker::last_reading_s() const {
  return points_.empty() ? std::nullopt : std::optional<double>(points_.back().time_s);
}

}  // namespace windlass::metrics
