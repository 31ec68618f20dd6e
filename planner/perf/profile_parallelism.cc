// Interpolates profiles between degrees of tensor parallelism; see profile_parallelism.h.
#include "planner/perf/profile_parallelism.h"

#include <optional>
#include <utility>

namespace windlass::planner {
namespace {

class BetweenDegrees final : public IterationModel {
 public:
  // `share`: position between `below` and `above`.
  BetweenDegrees(ProfileTable below, ProfileTable above, double share)
      : below_(std::move(below)), above_(std::move(above)), share_(share) {}

  [[nodiscard]] double iteration_s(const Batch& batch) const override {
    return (1 - share_) * below_.iteration_s(batch) + share_ * above_.iteration_s(batch);
  }
  [[nodiscard]] Coverage coverage(const Batch&) const override { return Coverage::kExtrapolated; }
  [[nodiscard]] double kv_capacity_tokens() const override {
    return below_.kv_capacity_tokens();
  }  // both were given the same value

 private:
  ProfileTable below_, above_;
  double share_;
};

}  // namespace

Result<std::shared_ptr<const IterationModel>> profile_model(std::span<const ProfileRow> rows, const ProfileKey& key,
                                                            ProfileReading reading, double kv_capacity_tokens) {
  std::optional<int> below, above;
  bool measured = false;
  for (const ProfileKey& other : keys_of(rows)) {
    if (other.model != key.model || other.hardware != key.hardware) continue;
    const int degree = other.tensor_parallel;
    measured = measured || degree == key.tensor_parallel;
    if (degree < key.tensor_parallel && (!below || degree > *below)) below = degree;
    if (degree > key.tensor_parallel && (!above || degree < *above)) above = degree;
  }
  if (measured || !below || !above) {
    WINDLASS_ASSIGN_OR_RETURN(auto table, ProfileTable::make(rows, key, reading, kv_capacity_tokens));
    return std::shared_ptr<const IterationModel>(std::make_shared<ProfileTable>(std::move(table)));
  }
  const auto at = [&](int degree) {
    return ProfileTable::make(rows, ProfileKey{key.model, key.hardware, degree}, reading, kv_capacity_tokens);
  };
  WINDLASS_ASSIGN_OR_RETURN(auto lower, at(*below));
  WINDLASS_ASSIGN_OR_RETURN(auto upper, at(*above));
  const double share = (1.0 / key.tensor_parallel - 1.0 / *below) / (1.0 / *above - 1.0 / *below);
  return std::shared_ptr<const IterationModel>(std::make_shared<BetweenDegrees>(std::move(lower), std::move(upper), share));
}

}  // namespace windlass::planner
