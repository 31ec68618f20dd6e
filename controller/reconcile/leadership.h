// Leadership says whether this process may write now. In a cluster a Lease decides. With a folder, the answer is always yes,
// because the folder's lock makes this the only process.
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
  [[nodiscard]] virtual std::int64_t term() const = 0;    // increases with every new leader
  [[nodiscard]] virtual double next_step_at() const = 0;  // monotonic; the latest time for the next step()
  [[nodiscard]] virtual std::string problem() const = 0;  // "" if there is none
  // Called when the loop begins to act in this term.
  virtual void acts_for(std::int64_t /*term*/) {}
};

// For the only possible leader. The caller provides `term`, a count of earlier terms.
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
