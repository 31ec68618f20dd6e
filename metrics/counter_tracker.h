// Turns successive readings of a counter (or of cumulative counts of latencies) into increases over a window. Pure: time is
// passed in.
//
// What goes wrong with counters, and what these do about it:
//   - the writer restarts: the reading falls, or its start time changes. What it shows then has happened since the restart, and
//     counts in full; what happened between the last reading and the restart is lost (never negative, never counted twice).
//   - the reader restarts: its first reading is a baseline. The whole history of the counter is not an increase.
//   - a reading is missed, NaN or infinite: it is skipped; the next good one covers the gap.
//   - readings stop: last_reading_s() lets the caller call the signal stale; nothing here invents a zero.
// One tracker per (target, series). Not thread-safe; plain value, copyable.
#pragma once

#include <deque>
#include <optional>

#include "metrics/latency_bins.h"
#include "metrics/latency_counts.h"

namespace windlass::metrics {

class CounterTracker {
 public:
  // Keeps history for windows up to max_window_s. resolution_s: readings nearer to each other than this are thinned out (the
  // newest stays), so that a window may begin by as much too early; 0 keeps all.
  explicit CounterTracker(double max_window_s = 600, double resolution_s = 0);

  // writer_start_s: the writer's process_start_time_seconds when known; a change of it is a restart.
  // A reading not later than the last one is ignored, as is a value that is negative or not finite.
  void observe(double now_s, double value, std::optional<double> writer_start_s = std::nullopt);

  // The series was absent at now_s from a page which was read in full: it stood at 0. Without this, the first increments of a
  // series that is born under observation would be taken for a baseline and lost. Counts only before the first observe().
  void observe_absent(double now_s);

  // Increase between the last reading at or before (now_s - window_s), or else the first reading, and the newest reading.
  // nullopt with fewer than two readings inside or around the window.
  [[nodiscard]] std::optional<double> increase(double now_s, double window_s) const;

  // increase over the time between those two readings (not over window_s: missed readings do not dilute it).
  [[nodiscard]] std::optional<double> rate_per_s(double now_s, double window_s) const;

  // Increase since tracking began; survives the writer's resets.
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

// The same for latencies by interval: p95 over the last five minutes from cumulative counts.
class LatencyTracker {
 public:
  // As CounterTracker.
  explicit LatencyTracker(double max_window_s = 600, double resolution_s = 0);

  // Bins count for more than a histogram's buckets: once a run of the writer showed bins, its buckets are passed over (the page
  // with the bins could not be read this time), and where its bins appear after its buckets, they start from zero.
  void observe(double now_s, const SeenLatencies& seen, std::optional<double> writer_start_s = std::nullopt);

  // As CounterTracker::observe_absent.
  void observe_absent(double now_s);

  // What read_latencies() found on the writer's page: one of these two; a malformed part is no reading.
  void take(double now_s, const Result<SeenLatencies>& found, std::optional<double> writer_start_s);

  // What was observed in the window, as CounterTracker::increase. nullopt with fewer than two readings; it may be empty.
  [[nodiscard]] std::optional<LatencyCounts> increase(double now_s, double window_s) const;

  [[nodiscard]] std::optional<double> last_reading_s() const;
  [[nodiscard]] int resets() const { return resets_; }

 private:
  struct Point {
    double time_s;
    LatencyCounts grown;  // since the point before; means nothing in the first
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
