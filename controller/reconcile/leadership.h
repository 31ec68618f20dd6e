// Leadership: may this process write now? A Lease in a cluster; always, where a folder's lock made us the only one.
#pragma once

#include <cstdint>
#include <string>

#include "planner/base/instant.h"

namespace windlass::controller {

class Leadership {
 public:
  virtual ~Leadership() = default;

  virtual void step(Instant now) = 0;
  [[nodiscard]] virtual bool leading(double monotonic_s) const = 0;
  [[nodiscard]] virtual std::int64_t term() const = 0;    // grows with every tenure of anyone
  [[nodiscard]] virtual double next_step_at() const = 0;  // monotonic; when step() wants to be called again
  [[nodiscard]] virtual std::string problem() const = 0;  // "" if there is none
  // The loop has begun to act in this tenure.
  virtual void acts_for(std::int64_t /*term*/) {}
};

// The only one there can be. `term` is given by whoever knows how often this has been said before.
class SoleLeader final : public Leadership {
 public:
  explicit SoleLeader(std::int64_t term) : term_(term) {}
  void step(Instant) override {}
  [[nodiscard]] bool leading(double) const override { return true; }
  [[nodiscard]] std::int64_t term() const override { return term_; }
  [[nodiscard]] double next_step_at() const override { return 1e300; }
  [[nodiscard]] std::string problem() const override { return {}; }

 private:
  std::int64_t term_;
};

}  // namespace windlass::controller
