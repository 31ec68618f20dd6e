// ThreadTeam: a fixed set of threads that work together with the calling thread.
//
// Parts of the work go to whichever thread is free, so results must not depend on the assignment. Threads sleep between calls.
// One thread at a time may call; it need not be the same each time. With one processor per member, the team's threads are
// pinned, and the caller is pinned while it is in the team.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "worker/backend/cpu/processors.h"

namespace windlass::worker::cpu {

// Number of multiplications below which waking other threads costs more than it saves.
constexpr std::int64_t kWorthSharing = 1 << 17;

class ThreadTeam {
 public:
  // A team of this many members, including the caller. REQUIRES: threads >= 1. Throws std::system_error if the system starts no
  // more threads.
  explicit ThreadTeam(int threads) : ThreadTeam(threads, {}) {}
  // Pins member m to processors[m] if the system allows it; an empty list pins none. REQUIRES: empty, or one per member.
  ThreadTeam(int threads, std::vector<int> processors);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  [[nodiscard]] int size() const { return 1 + static_cast<int>(threads_.size()); }

  // Pins the caller to member 0's processor, if any, while the result lives.
  [[nodiscard]] StaysOn enter() const;

  // Calls work(part, member) once for each part from 0 to `parts` - 1 and returns when all are done; what they wrote is visible
  // to the caller. Parts of one member (0 to size() - 1) run one after the other. REQUIRES: `work` does not throw and does not
  // call the team.
  template <class Work>
  void run(std::int64_t parts, const Work& work) {
    if (parts <= 1 || threads_.empty()) {
      for (std::int64_t part = 0; part < parts; ++part) work(part, 0);
      return;
    }
    share({[](const void* what, std::int64_t part, int member) { (*static_cast<const Work*>(what))(part, member); }, &work,
           parts});
  }

 private:
  struct Piece {
    void (*call)(const void* what, std::int64_t part, int member) = nullptr;
    const void* what = nullptr;
    std::int64_t parts = 0;
  };

  [[nodiscard]] std::optional<int> processor_of(int member) const;
  void share(const Piece& piece);
  void take_parts(int member) noexcept;
  void serve(int member) noexcept;
  void end();

  const std::vector<int> processors_;  // one per member; or empty

  Piece piece_;
  std::atomic<std::int64_t> next_{0};     // next part to be taken
  std::atomic<std::uint32_t> pieces_{0};  // calls shared so far; a change wakes the threads
  std::atomic<std::uint32_t> working_{0};
  bool ended_ = false;  // written before the last wake-up
  std::vector<std::jthread> threads_;
};

}  // namespace windlass::worker::cpu
