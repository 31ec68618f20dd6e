// EventQueue: what happened to services, on its way to their Events.
//
// One Event tells of all that happened to a service for one reason at once, so that a thousand new workers cost a request for
// each service and not for each worker. Where writing them takes too long the rest waits for the next step and grows together
// with what happens then. Bounded: what finds no room is dropped, for an Event is for people and changes nothing.
// Single-threaded.
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

  // Writes the oldest first, until all are written or the time is up (empty: it never is); at least one.
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
    api::ModelService service;  // its metadata alone
    std::vector<std::string> messages;
  };
  std::map<Key, Entry> waiting_;
  std::deque<Key> order_;  // of waiting_, the oldest first
};

// One message for several of one kind. Where they differ in one word alone, such as the worker's name, it is said once for all:
// "created worker a, b, c on 1 x h100".
[[nodiscard]] std::string joined(const std::vector<std::string>& messages);

}  // namespace windlass::controller
