// OccupancySum computes the mean of a birth-death process (Eq. 30-32 of Sun, He, Hou 2026), adding one chain at a time.
//
// The state is the number of requests n. Births come at rate lambda. Chains fill in the order in which they are added, so the
// departure rate never falls with n. Terms are relative to a running scale, and the sum ends when no later chain could change a
// double, so neither large products nor large capacities are a problem. It is incremental so that a search over compositions
// can stop early: the mean over the states so far only grows as states are added.
#pragma once

#include <optional>

namespace windlass::planner {

class OccupancySum {
 public:
  // REQUIRES: arrival_rate_per_s > 0.
  explicit OccupancySum(double arrival_rate_per_s) : lambda_(arrival_rate_per_s) {}

  // Adds `capacity` slots. Returns false if further slots cannot change the result; then add no more. REQUIRES:
  // service_rate_per_s > 0.
  bool add(double service_rate_per_s, long capacity) {
    const double before = rate_;
    for (long i = 1; i <= capacity; ++i) {
      // The term of n is complete once n is known not to be the last state, which includes the queue.
      weight_ += term_;
      requests_ += n_ * term_;
      n_ += 1;
      rate_ = before + static_cast<double>(i) *
                           service_rate_per_s;  // adding 100,000 times would lose accuracy that matters near full load
      term_ *= lambda_ / rate_;
      if (term_ > kLarge) rescale();
      if (term_ < kSmall * weight_ && negligible()) {
        closed_ = true;
        return false;
      }
    }
    return true;
  }

  // Mean over the states added so far: a lower bound of mean(), whatever is added later.
  [[nodiscard]] double mean_so_far() const { return weight_ > 0 ? requests_ / weight_ : 0; }

  // Mean over all states and an unbounded queue behind them. None if the arrival rate reaches the total rate.
  [[nodiscard]] std::optional<double> mean() const {
    if (closed_) return requests_ / weight_;
    if (lambda_ >= rate_) return std::nullopt;
    const double spare = rate_ - lambda_;
    const double queue = term_ * (rate_ / spare);  // sum of the terms from the last state on
    return (requests_ + queue * (lambda_ / spare + n_)) / (weight_ + queue);
  }

 private:
  // From here on each term falls at least by this ratio, so a geometric series bounds the rest.
  [[nodiscard]] bool negligible() const {
    const double ratio = lambda_ / rate_;
    if (ratio >= 1) return false;
    const double left = term_ / (1 - ratio);
    return left * (n_ + 1 / (1 - ratio)) < kEpsilon * requests_ && left < kEpsilon * weight_;
  }
  void rescale() {
    term_ /= kLarge;
    weight_ /= kLarge;
    requests_ /= kLarge;
  }

  static constexpr double kLarge = 1e200, kSmall = 1e-18, kEpsilon = 1e-17;

  double lambda_;
  double n_ = 0;         // number of requests in the state of term_
  double rate_ = 0;      // departure rate of that state
  double term_ = 1;      // its probability, up to the common factor
  double weight_ = 0;    // sum of earlier terms
  double requests_ = 0;  // sum of n * term over the same states
  bool closed_ = false;
};

}  // namespace windlass::planner
