// OccupancySum: the mean of a birth-death process (Eq. 30-32 of Sun, He, Hou 2026), built up chain by chain.
//
// The state is the number of requests n, births come at rate lambda, and chains are filled in the order in which they are
// added, so the departure rate never falls with n. Terms are kept relative to a running scale and the sum ends when no later
// chain could change a double, so neither the size of the products nor the total capacity matters. Incremental, so that a
// search over compositions can stop early: the mean over the states so far only grows as states are added.
#pragma once

#include <optional>

namespace windlass::planner {

class OccupancySum {
 public:
  // REQUIRES: arrival_rate_per_s > 0.
  explicit OccupancySum(double arrival_rate_per_s) : lambda_(arrival_rate_per_s) {}

  // Fills `capacity` more slots. False: what follows cannot matter any more, add nothing further. REQUIRES: service_rate_per_s
  // > 0.
  bool add(double service_rate_per_s, long capacity) {
    const double before = rate_;
    for (long i = 1; i <= capacity; ++i) {
      // The term of n is complete once it is known that n is not the last state, which carries the queue.
      weight_ += term_;
      requests_ += n_ * term_;
      n_ += 1;
      rate_ = before + static_cast<double>(i) * service_rate_per_s;  // a sum of 100,000 roundings would show near full load
      term_ *= lambda_ / rate_;
      if (term_ > kLarge) rescale();
      if (term_ < kSmall * weight_ && negligible()) {
        closed_ = true;
        return false;
      }
    }
    return true;
  }

  // The mean number of requests given that it is below those added so far: a lower bound of mean() whatever is added later.
  [[nodiscard]] double mean_so_far() const { return weight_ > 0 ? requests_ / weight_ : 0; }

  // The mean with everything added and an unbounded queue behind it. None when the arrival rate reaches the total rate.
  [[nodiscard]] std::optional<double> mean() const {
    if (closed_) return requests_ / weight_;
    if (lambda_ >= rate_) return std::nullopt;
    const double spare = rate_ - lambda_;
    const double queue = term_ * (rate_ / spare);  // sum of the terms from the last state on
    return (requests_ + queue * (lambda_ / spare + n_)) / (weight_ + queue);
  }

 private:
  // Terms from here on fall at least by this ratio each: a geometric series bounds what is left.
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
  double n_ = 0;         // requests in the state whose term is term_
  double rate_ = 0;      // departure rate of that state
  double term_ = 1;      // its probability, up to the common factor
  double weight_ = 0;    // sum of the terms before it
  double requests_ = 0;  // sum of n times them
  bool closed_ = false;
};

}  // namespace windlass::planner
