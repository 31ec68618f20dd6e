// RankGroup: shared memory of the ranks of one worker, and collectives on it.
//
// Ranks are processes of one machine (or threads, in tests), each with a part of every layer (tensor parallelism). Rank 0
// creates the memory, which is anonymous and vanishes with the last process that uses it, however that ends. It contains a
// message from rank 0 to the others, an area that all write and rank 0 reads (gather), buffers for sums, and floats owned by
// each rank that all may read. Independently of steps, rank 0 sends errands, which the others carry out on another thread.
//
// Nobody waits for a dead rank: each member holds a lock that the kernel releases when its process ends, and waiters check it
// every 100 ms. A rank that lives but gives no sign of life, or exceeds the time limit, also counts as lost. Once a rank is
// lost, or one has called fail(), every call that would wait returns an error.
//
// Threads: collectives are called by one thread per rank, in the same order on all; errand calls by one thread at a time,
// possibly another one; beat(), lost(), fail() and own() by any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/base/result.h"

namespace windlass::worker {

struct RankGroupSizes {
  int ranks = 1;                   // at most kMaxRanks
  std::int64_t message_bytes = 0;  // limit, for messages from rank 0
  std::int64_t sum_floats = 0;     // limit, per sum
  std::int64_t gather_floats = 0;
  std::int64_t own_floats = 0;    // per rank
  std::int64_t errand_bytes = 0;  // exact size of every errand

  bool operator==(const RankGroupSizes&) const = default;
};

// How long a rank waits for another one.
struct RankPatience {
  // Both times exclude those in which the waiting process itself was frozen. stall_s: how much later than the others a rank may
  // arrive. Ranks have equal work between two barriers; only a machine out of memory delays one this much.
  double stall_s = 60;
  // How long a rank that has called beat() may be silent.
  double silent_s = 3;
};

// Detects that a rank no longer gives signs of life. Counts checks at regular intervals instead of time, which passes even
// while this process is frozen.
class Silence {
 public:
  // Records one check; returns for how many checks nothing was heard. `beats`: signs of life so far; 0: the rank gives none and
  // never counts as silent.
  int look(std::uint32_t beats) {
    looks_ = beats == 0 || beats != heard_ ? 0 : looks_ + 1;
    heard_ = beats;
    return looks_;
  }

 private:
  std::uint32_t heard_ = 0;
  int looks_ = 0;
};

class SharedMemory;

class RankGroup {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr double kLookS = 0.1;  // interval of a waiter's checks
  static constexpr double kBeatS = 0.5;  // interval of calls to beat()
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // For rank 0: creates the memory. Error: kResourceExhausted naming the size; kUnavailable naming the failed call.
  [[nodiscard]] static Result<std::shared_ptr<RankGroup>> create(const RankGroupSizes& sizes, RankPatience patience = {});
  // For other ranks: maps the memory behind this descriptor. Error: kFailedPrecondition if the sizes differ from those it was
  // created with, which means that the ranks do not read the same model.
  [[nodiscard]] static Result<std::shared_ptr<RankGroup>> join(int descriptor, int rank, const RankGroupSizes& sizes,
                                                               RankPatience patience = {});
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return sizes_.ranks; }
  // Descriptor of the memory, to be inherited; close-on-exec unless the flag is removed. Valid as long as this object.
  [[nodiscard]] int descriptor() const;

  // Returns when all ranks have called it; what they wrote before is visible to all after. Error: kUnavailable naming the lost
  // rank and the reason.
  [[nodiscard]] Result<void> barrier() { return barrier(patience_.stall_s); }
  [[nodiscard]] Result<void> barrier(double limit_s);

  // All-reduce in two steps: each rank writes its addend to addend(), then calls add_sum(), which adds the sum of all addends
  // to `to`, in the order of the ranks, so all get the same bits. REQUIRES: count <= sum_floats, the same on all ranks.
  [[nodiscard]] std::span<float> addend(std::int64_t count) const;
  [[nodiscard]] Result<void> add_sum(float* to, std::int64_t count);

  // Rank 0 sends, the others receive. A message stays valid until rank 0 sends the next one, which it does only after all ranks
  // have met again. REQUIRES: at most message_bytes are written.
  [[nodiscard]] std::span<std::byte> outbox() const;
  void send();
  [[nodiscard]] Result<std::span<const std::byte>> receive();

  // Rank 0 writes an errand to errand(), gives it, and waits until all others have done it; they take errands one by one and
  // report each as done. What either side writes to own() is visible to the other. Error: as barrier().
  [[nodiscard]] std::span<std::byte> errand() const;
  void give_errand();
  [[nodiscard]] Result<void> wait_for_errand();
  [[nodiscard]] Result<void> take_errand();
  void errand_done();

  [[nodiscard]] std::span<float> gather() const;
  [[nodiscard]] std::span<float> own(int rank) const;
  // Shows a number to the other ranks: written before a barrier, read after it.
  void show(std::uint64_t number);
  [[nodiscard]] std::uint64_t shown(int rank) const;

  // A sign of life. Needed because a frozen process still holds its lock.
  void beat();
  [[nodiscard]] std::uint32_t beats(int rank) const;
  // The error that a rank was silent for patience().silent_s.
  [[nodiscard]] Error silent(int rank) const;
  [[nodiscard]] const RankPatience& patience() const { return patience_; }

  // Makes the group unusable; all ranks report the first reason.
  void fail(const std::string& reason);
  // The first reason given to fail().
  [[nodiscard]] std::optional<std::string> failure() const;
  // Why the group is unusable: fail() was called, or a rank has ended.
  [[nodiscard]] std::optional<Error> lost() const;

 private:
  RankGroup(std::unique_ptr<SharedMemory> memory, const RankGroupSizes& sizes, int rank, RankPatience patience);
  [[nodiscard]] Result<void> take_lock();
  [[nodiscard]] Result<void> wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, int rank,
                                        double limit_s) const;
  [[nodiscard]] float* floats_at(std::int64_t offset) const;

  const std::unique_ptr<SharedMemory> memory_;
  const RankGroupSizes sizes_;
  const int rank_;
  const RankPatience patience_;
  const int spins_;
  int lock_ = -1;               // descriptor that holds this rank's lock
  std::uint32_t meetings_ = 0;  // barriers that this rank has reached
  std::uint32_t sums_ = 0;      // selects the next of the two buffers
  std::uint32_t messages_ = 0;  // sent or received
  std::uint32_t errands_ = 0;   // given or taken
};

}  // namespace windlass::worker
