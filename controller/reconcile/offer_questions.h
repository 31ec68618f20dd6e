// OfferQuestions passes questions and answers about what services should run between the control loop and a slower thread,
// which searches (app/answers.h). It is an OfferBook for two threads. Thread-safe.
#pragma once

#include <mutex>
#include <optional>

#include "planner/whatif/offer_book.h"

namespace windlass::controller {

class OfferQuestions {
 public:
  // As in OfferBook.
  bool attach(planner::Snapshot& snapshot) {
    const std::lock_guard lock(mutex_);
    return book_.attach(snapshot);
  }
  [[nodiscard]] std::optional<search::OfferQuestion> next() {
    const std::lock_guard lock(mutex_);
    return book_.next();
  }
  void answer(const search::OfferQuestion& question, const planner::Offers& offers) {
    const std::lock_guard lock(mutex_);
    book_.answer(question, offers);
  }

 private:
  std::mutex mutex_;
  search::OfferBook book_;
};

}  // namespace windlass::controller
