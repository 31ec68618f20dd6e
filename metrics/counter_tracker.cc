// Increases and rates from cumulative readings.
#include "metrics/counter_tracker.h"

#include <algorithm>
#include <cmath>

namespace windlass::metrics {
namespace {

// True when this reading comes from another run of the writer than the last one.
bool restarted(std::optional<double>& known_start_s, std::optional<double> start_s) {
  if (!start_s.has_value()) return false;
  const bool changed = known_start_s.has_value() && *known_start_s != *start_s;
  known_start_s = start_s;
  return changed;
}

// The point that a window begins with: the last one at or before `from_s`, or else the first. REQUIRES: points is not empty.
template <class Points>
const auto& window_start(const Points& points, double from_s) {
  auto after = std::upper_bound(points.begin(), points.end(), from_s, [](double t, const auto& p) { return t < p.time_s; });
  return after == points.begin() ? points.front() : *std::prev(after);
}

// Drops what no window of max_window_s can reach; one point at or before its start stays as the baseline. And the point before
// the newest where it stands nearer than resolution_s to the one before it.
template <class Points>
void prune(Points& points, double max_window_s, double resolution_s) {
  const std::size_t n = points.size();
  if (n >= 3 && points[n - 2].time_s - points[n - 3].time_s < resolution_s) points.erase(std::prev(points.end(), 2));
  while (points.size() > 2 && points[1].time_s <= points.back().time_s - max_window_s) points.pop_front();
}

bool usable(const HistogramSnapshot& snapshot) {
  if (snapshot.counts.empty() || snapshot.counts.size() != snapshot.bounds.size() || !std::isfinite(snapshot.sum)) return false;
  return std::all_of(snapshot.counts.begin(), snapshot.counts.end(), [](double c) { return std::isfinite(c) && c >= 0; });
}

}  // namespace

CounterTracker::CounterTracker(double max_window_s, double resolution_s)
    : max_window_s_(max_window_s), resolution_s_(resolution_s) {}

void CounterTracker::observe(double now_s, double value, std::optional<double> writer_start_s) {
  if (!std::isfinite(value) || value < 0) return;
  if (!points_.empty() && now_s <= points_.back().time_s) return;
  const bool other_run = restarted(writer_start_s_, writer_start_s);
  if (!last_value_.has_value()) {
    // The first reading: a baseline, unless the series was seen to be absent before, which makes it an increase from 0.
    points_.push_back({now_s, points_.empty() ? 0 : value});
  } else {
    const bool reset = other_run || value < *last_value_;
    if (reset) ++resets_;
    points_.push_back({now_s, points_.back().total + (reset ? value : value - *last_value_)});
  }
  last_value_ = value;
  if (!first_s_.has_value()) first_s_ = points_.front().time_s;
  prune(points_, max_window_s_, resolution_s_);
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

HistogramTracker::HistogramTracker(double max_window_s, double resolution_s)
    : max_window_s_(max_window_s), resolution_s_(resolution_s) {}

void HistogramTracker::observe(double now_s, const HistogramSnapshot& snapshot, std::optional<double> writer_start_s) {
  if (!usable(snapshot)) return;
  if (!points_.empty() && now_s <= points_.back().time_s) return;
  const bool other_run = restarted(writer_start_s_, writer_start_s);
  if (last_.has_value() && last_->bounds != snapshot.bounds) {
    points_.clear();
    last_.reset();
    absent_s_.reset();
    ++resets_;
  }
  HistogramSnapshot zero{snapshot.bounds, std::vector<double>(snapshot.bounds.size(), 0.0), 0};
  if (!last_.has_value()) {
    if (absent_s_.has_value() && *absent_s_ < now_s) {
      points_.push_back({*absent_s_, zero});
      points_.push_back({now_s, snapshot});
    } else {
      points_.push_back({now_s, zero});
    }
  } else {
    auto delta = other_run ? Result<HistogramSnapshot>(snapshot) : histogram_delta(snapshot, *last_);
    if (other_run || !delta.ok()) ++resets_;
    auto total = histogram_sum(points_.back().total, delta.value_or(snapshot));
    points_.push_back({now_s, std::move(total).value()});
  }
  last_ = snapshot;
  prune(points_, max_window_s_, resolution_s_);
}

void HistogramTracker::observe_absent(double now_s) {
  if (!last_.has_value()) absent_s_ = now_s;
}

std::optional<HistogramSnapshot> HistogramTracker::increase(double now_s, double window_s) const {
  if (points_.size() < 2) return std::nullopt;
  const Point& start = window_start(points_, now_s - window_s);
  const Point& end = points_.back();
  if (end.time_s <= start.time_s) return std::nullopt;
  return histogram_delta(end.total, start.total).value();
}

std::optional<double> HistogramTracker::quantile(double now_s, double window_s, double q) const {
  const auto window = increase(now_s, window_s);
  return window ? histogram_quantile(*window, q) : std::nullopt;
}

std::optional<double> HistogramTracker::last_reading_s() const {
  return last_.has_value() ? std::optional<double>(points_.back().time_s) : std::nullopt;
}

}  // namespace windlass::metrics
