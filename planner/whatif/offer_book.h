// OfferBook keeps the strategies' answers for the services of a snapshot, and the questions that are still to be answered.
//
// The loop attaches offers in every plan and continues without an answer. Somebody else takes the questions, one at a time,
// searches (offer_search.h) and stores the answers: another thread in the controller, the caller itself in `windlass plan` and
// in simulations. Equal questions are answered once. An answer stays valid while the spec is unchanged: asking again whenever a
// node disappears could restart every worker. A question is repeated only
// - if the load moves by a step (planner/policy/asked_workload.h);
// - if an allowed class gets its first GPUs, larger nodes than it ever had, or other figures. A class whose GPUs go and come
//   back changes nothing;
// - if a class that an offer uses has no GPUs any more and runs none of the service's workers;
// - if classes change after nothing was confirmed;
// - if a different PerformanceProfile gives transfer times, or the workers' measured times differ by a third from those in the
//   question.
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "planner/policy/snapshot.h"
#include "planner/whatif/offer_search.h"

namespace windlass::search {

class OfferBook {
 public:
  // `rounds`: how many searches a question gets, each longer than the last (OfferQuestion::round).
  explicit OfferBook(int rounds = 2) : rounds_(rounds) {}

  // Copies the available offers to the services. Returns whether there is a new question.
  bool attach(planner::Snapshot& snapshot);

  // The next question: first those without any answer, among them services that cannot scale without one, then oldest first.
  // nullopt: there is none.
  [[nodiscard]] std::optional<OfferQuestion> next();
  // Stores the answer to a question that was taken, for every service that still asks it.
  void answer(const OfferQuestion& question, const planner::Offers& offers);

 private:
  struct Entry {
    OfferQuestion question;
    std::optional<planner::Offers> offers;
    double asked_at_s = 0;
    bool due = false;          // waits for an answer
    std::uint64_t ticket = 0;  // of the search that will answer it; 0: none
    bool stands_still = false;
    std::uint64_t place = 0;  // order of the questions
  };

  int rounds_;
  std::map<planner::ServiceId, Entry> entries_;
  std::uint64_t asked_ = 0, tickets_ = 0;
  std::map<std::string, int> largest_nodes_;  // GPUs of the largest node seen of each class; one that goes changes no question
};

// For callers that may wait: answers every question of the snapshot's services and attaches the offers. `told`: called before
// each search. Error: Cancelled.
[[nodiscard]] Result<void> attach_all_offers(OfferBook& book, planner::Snapshot& snapshot, const Effort& effort,
                                             const std::function<void(const OfferQuestion&)>& told = {});

}  // namespace windlass::search
