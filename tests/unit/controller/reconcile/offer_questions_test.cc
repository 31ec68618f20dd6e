// Tests the questions and answers that pass between the control loop and the thread that searches.
#include "controller/reconcile/offer_questions.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::controller {
namespace {

// Given a thread that answers while the loop asks for a hundred services; expects all to have their answer in the end.
TEST(OfferQuestions, AnsweredFromAnotherThread) {
  OfferQuestions questions;
  planner::Snapshot at;
  at.accelerators = {planner::testing::with_gpus(planner::testing::h100(), 8)};
  for (int i = 0; i < 100; ++i) {
    at.services.push_back(planner::testing::chat_service("s" + std::to_string(i)));
    at.services.back().slo.ttft_s = 1 + i % 10;
  }
  std::atomic<bool> done = false;
  std::atomic<int> asked = 0, answered = 0;  // each thread waits for the other's next step, or one would keep the lock
  std::thread thread([&] {
    while (!done) {
      const int before = asked;
      const auto question = questions.next();
      if (!question) {
        asked.wait(before);
        continue;
      }
      questions.answer(*question, planner::testing::whole_offers({{"h100", 1, question->service.slo.ttft_s}}));
      ++answered;
      answered.notify_one();
    }
  });
  const auto all_answered = [&] {
    (void)questions.attach(at);
    ++asked;
    asked.notify_one();
    return std::all_of(at.services.begin(), at.services.end(), [](const auto& service) { return service.offers.has_value(); });
  };
  for (int before = answered; !all_answered(); before = answered) answered.wait(before);
  done = true;
  ++asked;
  asked.notify_one();
  thread.join();
  for (const planner::Service& service : at.services) {
    EXPECT_EQ(service.offers, planner::testing::whole_offers({{"h100", 1, service.slo.ttft_s}}));
  }
}

}  // namespace
}  // namespace windlass::controller
