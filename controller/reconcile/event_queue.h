// EventQueue collects events of services (such as "worker created") and writes them as Kubernetes Events.
//
// Events of one service with the same reason are merged, so that a thousand new workers cost one request per service, not one
// per worker. If writing takes too long, the rest waits for the next step and merges with new events. The queue is bounded:
// what does not fit is dropped, because Events only inform people. Single-threaded.
#pragma once

#include <compare>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "controller/reconcile/apply.h"
#include "controller/store/object_store.h"

namespace windlass::controller {

class EventQueue {
 public:
  void add(const Happening& happening);

  // Writes Events, oldest first, until all are written or time_is_up() is true (empty: never); at least one.
  void write(ObjectStore& store, Instant now, const std::function<bool()>& time_is_up);

  void clear();
  [[nodiscard]] std::size_t size() const { return waiting_.size(); }

 private:
  static constexpr std::size_t kMaxWaiting = 4096;

  struct Key {
    std::string service_uid;
    std::string reason;
    bool warning = false;

    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    api::ModelService service;  // metadata only
    std::vector<std::string> messages;
  };
  std::map<Key, Entry> waiting_;
  std::deque<Key> order_;  // of waiting_, oldest first
};

// Joins messages of one kind. If they differ in only one word, such as the worker's name, the rest appears once: "created
// worker a, b, c on 1 x h100".
[[nodiscard]] std::string joined(const std::vector<std::string>& messages);

}  // namespace windlass::controller
