// BestFit finds the fullest worker that a request fits: Aladdin's Alg. 1. It keeps the workers sorted by capacity norm.
//
// A request fits a worker if the worker still keeps all constraints of packed_worker.h. At equal norm the first worker wins.
//
// Workers are stored in blocks, fullest first. A block knows the most room that any of its workers has for each constraint, so
// a search skips most blocks and workers. With W workers a placement costs O(W / kBlock) steps of a few nanoseconds, and a
// change of a worker O(W / kBlock + kBlock + its requests). Results do not depend on the blocks.
//
// Call iterated() after every iteration of a worker, because its room changes. Use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/dispatch/packed_worker.h"

namespace windlass::dispatch {

class BestFit {
 public:
  using Handle = PackedWorker::Handle;

  explicit BestFit(const PackingRules& rules) : rules_(rules) {}

  // Returns the index of the worker, from 0.
  std::size_t add_worker(const PackingModel& model) { return add_worker(PackedWorker(model, rules_)); }
  // Adds a worker together with its requests.
  std::size_t add_worker(PackedWorker worker);
  // A closed worker takes no new requests; those it holds continue.
  void set_open(std::size_t worker, bool open);

  // The worker where the request fits best; none if it fits nowhere. Changes nothing.
  [[nodiscard]] std::optional<std::size_t> find(int input_tokens, int predicted_tokens, double now_s) const;

  // Events at a worker: see PackedWorker. REQUIRES: worker < workers().
  void add(std::size_t worker, Handle request, int input_tokens, int predicted_tokens, double now_s);
  void begin_decode(std::size_t worker, Handle request, double now_s);
  void iterated(std::size_t worker);
  void tokens_made(std::size_t worker, Handle request, int count);
  void predict_again(std::size_t worker, Handle request, int predicted_tokens);
  void remove(std::size_t worker, Handle request, int output_tokens = 0);
  // A new request goes to `to`, although find() placed it at `from`.
  void moved(std::size_t from, std::size_t to, Handle request, int predicted_tokens);
  void set_model(std::size_t worker, const PackingModel& model);

  [[nodiscard]] std::size_t workers() const { return slots_.size(); }
  [[nodiscard]] const PackedWorker& worker(std::size_t index) const { return slots_[index].worker; }
  [[nodiscard]] bool is_open(std::size_t index) const { return slots_[index].open; }
  [[nodiscard]] const PackingRules& rules() const { return rules_; }

 private:
  static constexpr std::size_t kBlock = 32;

  struct Slot {
    PackedWorker worker;
    PackedWorker::Rooms rooms;
    double norm = 0;  // the norm by which it is sorted in its block
    bool open = true;
  };
  struct Block {
    std::vector<std::uint32_t> workers;  // fullest first
    PackedWorker::Rooms most;
  };

  [[nodiscard]] bool before(std::uint32_t a, std::uint32_t b) const {
    return slots_[a].norm != slots_[b].norm ? slots_[a].norm > slots_[b].norm : a < b;
  }
  [[nodiscard]] std::size_t block_of(std::uint32_t worker) const;
  void enter(std::uint32_t worker);
  void leave(std::uint32_t worker);
  void measure(Block& block) const;
  template <class Change>
  void change(std::size_t worker, const Change& what);

  PackingRules rules_;
  std::vector<Slot> slots_;
  std::vector<Block> blocks_;
};

}  // namespace windlass::dispatch
