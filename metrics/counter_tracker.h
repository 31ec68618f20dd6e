// Turns successive readings of a counter (or of cumulative latency counts) into increases over a window. Pure: time is an
// argument.
//
// How it handles the usual problems of counters:
//   - the writer restarts: the reading falls, or the start time changes. The new value happened after the restart and counts in
//     full; what happened between the last reading and the restart is lost (never negative, never counted twice)
//   - the reader restarts: its first reading is a baseline. The counter's whole history is not an increase
//   - a reading is missed, NaN or infinite: it is skipped; the next good one covers the gap
//   - readings stop: last_reading_s() lets the caller treat the signal as stale; no zero is invented
// One tracker per (target, series). Not thread-safe; a plain value, copyable.
#pragma once

#include <deque>
#include <optional>

#include "metrics/latency_bins.h"
#include "metrics/latency_counts.h"

namespace windlass::metrics {

class CounterTracker {
 public:
  // Keeps history for windows up to max_window_s. Readings closer together than resolution_s are thinned out (the newest
  // stays), so a window may begin up to resolution_s too early; 0 keeps all.
  explicit CounterTracker(double max_window_s = 600, double resolution_s = 0);

  // writer_start_s: the writer's process_start_time_seconds if known; a change means a restart. Ignores a reading that is not
  // later than the last one, and a value that is negative or not finite.
  void observe(double now_s, double value, std::optional<double> writer_start_s = std::nullopt);

  // The series was absent at now_s from a page that was read in full, so its value was 0. Without this call, the first
  // increments of a series that appears later would count as a baseline and be lost. Has an effect only before the first
  // observe().
  void observe_absent(double now_s);

  // Increase from the last reading at or before (now_s - window_s), otherwise from the first reading, to the newest reading.
  // nullopt with fewer than two readings in or around the window.
  [[nodiscard]] std::optional<double> increase(double now_s, double window_s) const;

  // Increase divided by the time between those two readings (not by window_s, so missed readings do not dilute it).
  [[nodiscard]] std::optional<double> rate_per_s(double now_s, double window_s) const;

  // Increase since tracking began; the writer's resets do not lower it.
  [[nodiscard]] double total() const;
  [[nodiscard]] std::optional<double> first_reading_s() const;
  [[nodiscard]] std::optional<double> last_reading_s() const;
  [[nodiscard]] int resets() const { return resets_; }

 private:
  struct Point {
    double time_s;
    double total;
  };
  struct Span {
    double seconds;
    double increase;
  };
  [[nodiscard]] std::optional<Span> span(double now_s, double window_s) const;

  double max_window_s_;
  double resolution_s_;
  std::deque<Point> points_;
  std::optional<double> first_s_;
  std::optional<double> last_value_;
  std::optional<double> writer_start_s_;
  int resets_ = 0;
};

// The same for latency counts: for example p95 over the last five minutes from cumulative counts.
class LatencyTracker {
 public:
  // Same arguments as CounterTracker.
  explicit LatencyTracker(double max_window_s = 600, double resolution_s = 0);

  // Bins take precedence over a histogram's buckets. Once a run of the writer showed bins, readings with buckets only are
  // skipped (the page with the bins could not be read that time). When bins appear after buckets, they start from zero.
  void observe(double now_s, const SeenLatencies& seen, std::optional<double> writer_start_s = std::nullopt);

  // Same as CounterTracker::observe_absent.
  void observe_absent(double now_s);

  // Takes the result of read_latencies() on the writer's page and calls one of the two functions above; a malformed page is no
  // reading.
  void take(double now_s, const Result<SeenLatencies>& found, std::optional<double> writer_start_s);

  // Latencies observed in the window; see CounterTracker::increase. nullopt with fewer than two readings. May be empty.
  [[nodiscard]] std::optional<LatencyCounts> increase(double now_s, double window_s) const;

  [[nodiscard]] std::optional<double> last_reading_s() const;
  [[nodiscard]] int resets() const { return resets_; }

 private:
  struct Point {
    double time_s;
    LatencyCounts grown;  // since the previous point; meaningless in the first
  };
  void thin_out();

  double max_window_s_;
  double resolution_s_;
  std::deque<Point> points_;
  std::optional<SeenLatencies> last_;
  std::optional<double> writer_start_s_;
  int resets_ = 0;
};

}  // namespace windlass::metrics
