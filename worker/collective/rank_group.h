// RankGroup: what the ranks of one worker share: memory, and the collectives over it.
//
// Ranks are processes of one machine (or threads, in tests), each with a part of every layer (tensor parallelism). Rank 0 makes
// the memory, which has no name: it is gone with the last process that holds it, however that ends. In it are a message from
// rank 0 to the others, a place that all write and rank 0 reads (gather), buffers for sums, and of each rank floats of its own
// that all may read. Beside all that, rank 0 gives the others errands, which they do on another thread while steps go on.
//
// Nobody waits for the dead: each member holds a lock that the kernel gives back when its process ends, and who waits looks
// for it every 100 ms. A rank that lives but gives no sign of it, or does not come within the limit, counts as lost, too. Once
// a rank is lost, or one has called fail(), every call that would wait ends with an error.
//
// Collectives are called by one thread of each rank, in the same order by all; what concerns errands by one thread at a time,
// which may be another; beat(), lost(), fail(), own() from any thread.
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
  std::int64_t message_bytes = 0;  // at most, from rank 0
  std::int64_t sum_floats = 0;     // at most, in one sum
  std::int64_t gather_floats = 0;
  std::int64_t own_floats = 0;    // of each rank
  std::int64_t errand_bytes = 0;  // exactly, of every errand

  bool operator==(const RankGroupSizes&) const = default;
};

// How long a rank waits for another one.
struct RankPatience {
  // Both in the time that the waiting one is not frozen itself.
  // How much later than the others it may come. They have the same work between two meetings; only a machine without memory
  // makes one of them so late.
  double stall_s = 60;
  // How long one that has called beat() may rest from it.
  double silent_s = 3;
};

// Whether somebody who gives signs of life still does, for who looks at regular intervals. Counted in looks rather than time:
// that goes on while this process is frozen, too.
class Silence {
 public:
  // One look; for how many looks nothing was heard. `beats`: given so far; 0: it gives none, and is never silent.
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
  static constexpr double kLookS = 0.1;  // between two looks of one who waits
  static constexpr double kBeatS = 0.5;  // who calls beat() does so this often
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // Rank 0, with new memory. Error: kResourceExhausted naming how much was asked for, kUnavailable naming the call that failed.
  [[nodiscard]] static Result<std::shared_ptr<RankGroup>> create(const RankGroupSizes& sizes, RankPatience patience = {});
  // Another rank, with the memory behind this descriptor. Error: kFailedPrecondition where the sizes are not those that it was
  // made with: the two ranks do not read the same model.
  [[nodiscard]] static Result<std::shared_ptr<RankGroup>> join(int descriptor, int rank, const RankGroupSizes& sizes,
                                                               RankPatience patience = {});
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return sizes_.ranks; }
  // Of the memory, to be inherited; closed on exec unless the flag is taken away. As long as this lives.
  [[nodiscard]] int descriptor() const;

  // Returns when all ranks have called it; what they have written before is seen by all after. Error: kUnavailable naming the
  // rank that is lost, and why.
  [[nodiscard]] Result<void> barrier() { return barrier(patience_.stall_s); }
  [[nodiscard]] Result<void> barrier(double limit_s);

  // All-reduce, in two steps: each rank writes its addend where addend() says, then each calls add_sum(), which adds the sum of
  // all addends to `to` in the order of the ranks: all get the same bits. REQUIRES: count <= sum_floats, the same at all ranks.
  [[nodiscard]] std::span<float> addend(std::int64_t count) const;
  [[nodiscard]] Result<void> add_sum(float* to, std::int64_t count);

  // Rank 0 sends, the others receive. The message stands until rank 0 sends the next one, which it does not before all have
  // met again. REQUIRES: what is written is at most message_bytes.
  [[nodiscard]] std::span<std::byte> outbox() const;
  void send();
  [[nodiscard]] Result<std::span<const std::byte>> receive();

  // Rank 0 writes an errand where errand() says, gives it, and waits until all others have done it; they take one after the
  // other, and say of each when it is done. What either side writes into own() is seen by the other. Error: as barrier().
  [[nodiscard]] std::span<std::byte> errand() const;
  void give_errand();
  [[nodiscard]] Result<void> wait_for_errand();
  [[nodiscard]] Result<void> take_errand();
  void errand_done();

  [[nodiscard]] std::span<float> gather() const;
  [[nodiscard]] std::span<float> own(int rank) const;
  // A number that each rank shows the others; before a barrier, to be read after it.
  void show(std::uint64_t number);
  [[nodiscard]] std::uint64_t shown(int rank) const;

  // A sign of life, for ranks that others could wait for in vain: a frozen process holds its lock.
  void beat();
  [[nodiscard]] std::uint32_t beats(int rank) const;
  // That a rank has given no sign of life for patience().silent_s.
  [[nodiscard]] Error silent(int rank) const;
  [[nodiscard]] const RankPatience& patience() const { return patience_; }

  // The group is of no use any more; the first reason is everybody's.
  void fail(const std::string& reason);
  // What fail() was told first.
  [[nodiscard]] std::optional<std::string> failure() const;
  // Why it is of no use any more: that, or a rank has ended.
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
  std::uint32_t meetings_ = 0;  // barriers that this rank has come to
  std::uint32_t sums_ = 0;      // which of the two buffers is next
  std::uint32_t messages_ = 0;  // sent, or received
  std::uint32_t errands_ = 0;   // given, or taken
};

}  // namespace windlass::worker
