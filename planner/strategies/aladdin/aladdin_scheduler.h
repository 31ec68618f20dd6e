// AladdinScheduler: Aladdin's request scheduler at its heartbeats, whole: Alg. 1 for each new request, workers opened where
// none has room, then Alg. 2 on the errors of prediction since the last heartbeat (Nie, Fonseca, Liu 2024, Section 4).
//
// With several groups it is the distributed scheduler for rates at which one is too slow (Section 5.2): workers and requests
// are dealt out to the groups in turn, so that each sees the same lengths, and a heartbeat's groups are placed side by side on
// an executor. What that costs is that a request cannot use room in another group; a group should see enough requests that its
// lengths are those of all (least_requests() of aladdin_demand.h). Results do not depend on the executor.
//
// One thread at a time; requests are named by the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/base/executor.h"
#include "planner/dispatch/best_fit.h"
#include "planner/strategies/aladdin/aladdin_rebalance.h"

namespace windlass::search {

struct NewRequest {
  std::uint64_t id = 0;
  int input_tokens = 1;
  int predicted_tokens = 1;
};

class AladdinScheduler {
 public:
  // REQUIRES: groups >= 1.
  AladdinScheduler(const dispatch::PackingModel& model, const dispatch::PackingRules& rules, std::size_t workers,
                   std::size_t groups = 1);

  // Places the requests that came since the last heartbeat; their workers, in their order. Workers count through all groups:
  // worker w is in group w mod groups. REQUIRES: ids that are not here.
  [[nodiscard]] std::vector<std::size_t> heartbeat(std::span<const NewRequest> requests, double now_s, Executor& executor);

  // What happened since. REQUIRES: a request that is here.
  void first_token(std::uint64_t id, double now_s);
  void iterated(std::size_t worker);
  // It goes on beyond its prediction.
  void predict_again(std::uint64_t id, int predicted_tokens);
  void ended(std::uint64_t id, int output_tokens);

  [[nodiscard]] std::size_t workers() const;               // numbers of workers are below, with those that were opened
  [[nodiscard]] bool has_worker(std::size_t index) const;  // a group may have opened more than another
  [[nodiscard]] std::size_t busy_workers() const;
  [[nodiscard]] const dispatch::PackedWorker& worker(std::size_t index) const;
  [[nodiscard]] int moves() const { return moves_; }  // that Alg. 2 made

 private:
  struct Group {
    explicit Group(const dispatch::PackingRules& rules) : fit(rules) {}

    dispatch::BestFit fit;
    std::vector<PackingError> errors;  // of its workers
    dispatch::BestFit::Handle next_handle = 0;
  };
  struct Placed {
    std::size_t group = 0, worker = 0;  // within the group
    dispatch::BestFit::Handle handle = 0;
    int predicted_tokens = 0;
  };
  struct Batch {  // of one group at a heartbeat
    std::vector<std::size_t> requests;
    std::vector<Placed> placed;
    int moves = 0;
  };

  void place(Group& group, std::size_t number, std::span<const NewRequest> requests, double now_s, Batch& batch);

  dispatch::PackingModel model_;
  std::vector<Group> groups_;
  std::unordered_map<std::uint64_t, Placed> placed_;
  std::size_t next_group_ = 0;
  int moves_ = 0;
};

}  // namespace windlass::search
