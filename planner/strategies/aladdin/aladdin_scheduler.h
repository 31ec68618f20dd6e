// AladdinScheduler assigns requests to workers at regular heartbeats, as Aladdin does (Nie, Fonseca, Liu 2024, Section 4). Alg.
// 1 places each new request and opens a worker if none has room. Then Alg. 2 moves new requests to even out the prediction
// errors since the last heartbeat.
//
// With several groups it is the distributed scheduler for rates that are too high for one (Section 5.2). Workers and requests
// are dealt to the groups in turn, so each sees similar lengths, and an executor runs a heartbeat's groups in parallel. The
// price: a request cannot use room in another group. Each group should get enough requests that its lengths represent all
// (least_requests() in aladdin_demand.h). Results do not depend on the executor.
//
// One thread at a time; the caller assigns request ids.
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

  // Places the requests that arrived since the last heartbeat; returns their workers, in order. Worker numbers interleave the
  // groups: worker w is in group w mod groups. REQUIRES: the ids are not in use.
  [[nodiscard]] std::vector<std::size_t> heartbeat(std::span<const NewRequest> requests, double now_s, Executor& executor);

  // Events since the last heartbeat. REQUIRES: the request is placed.
  void first_token(std::uint64_t id, double now_s);
  void iterated(std::size_t worker);
  // The request has exceeded its prediction and gets a new one.
  void predict_again(std::uint64_t id, int predicted_tokens);
  void ended(std::uint64_t id, int output_tokens);

  [[nodiscard]] std::size_t workers() const;               // upper bound of worker numbers, including opened workers
  [[nodiscard]] bool has_worker(std::size_t index) const;  // one group may have opened more workers than another
  [[nodiscard]] std::size_t busy_workers() const;
  [[nodiscard]] const dispatch::PackedWorker& worker(std::size_t index) const;
  [[nodiscard]] int moves() const { return moves_; }  // number of moves made by Alg. 2

 private:
  struct Group {
    explicit Group(const dispatch::PackingRules& rules) : fit(rules) {}

    dispatch::BestFit fit;
    std::vector<PackingError> errors;  // one per worker of the group
    dispatch::BestFit::Handle next_handle = 0;
  };
  struct Placed {
    std::size_t group = 0, worker = 0;  // index within the group
    dispatch::BestFit::Handle handle = 0;
    int predicted_tokens = 0;
  };
  struct Batch {  // The work of one group at a heartbeat.
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
