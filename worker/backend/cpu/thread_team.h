// ThreadTeam: some threads that do a piece of work together with the one that brings it.
//
// The parts of a piece go to whoever is free; which thread does which is open, so results must not depend on it. Between two
// pieces the threads sleep. One thread at a time brings work, whichever; it may be another one each time. With a processor for
// each member, its threads stay on theirs, and who brings work does while it is in the team.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "worker/backend/cpu/processors.h"

namespace windlass::worker::cpu {

// Multiplications below which calling other threads takes longer than what they would save.
constexpr std::int64_t kWorthSharing = 1 << 17;

class ThreadTeam {
 public:
  // So many members, the one that brings work among them. REQUIRES: threads >= 1. Throws std::system_error where the system
  // starts no more threads.
  explicit ThreadTeam(int threads) : ThreadTeam(threads, {}) {}
  // Member m stays on processors[m], as far as the system allows it; with none, wherever the system puts it. REQUIRES: none, or
  // one for each member.
  ThreadTeam(int threads, std::vector<int> processors);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  [[nodiscard]] int size() const { return 1 + static_cast<int>(threads_.size()); }

  // Whoever brings work is on member 0's processor, where there is one, while what this gives lives.
  [[nodiscard]] StaysOn enter() const;

  // Calls work(part, member) once for each part from 0 to before `parts`, and returns when all are done: what they wrote is
  // seen by the caller. Parts of one member (0 to before size()) come one after the other. REQUIRES: `work` throws nothing and
  // brings no work itself.
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

  const std::vector<int> processors_;  // of the members; or none

  Piece piece_;
  std::atomic<std::int64_t> next_{0};     // part that nobody has taken
  std::atomic<std::uint32_t> pieces_{0};  // shared so far; another one calls the threads
  std::atomic<std::uint32_t> working_{0};
  bool ended_ = false;  // written before the last call
  std::vector<std::jthread> threads_;
};

}  // namespace windlass::worker::cpu
