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
    at.services.back().workload.requests_per_s = 1;  // without a rate there is no question
  }
  std::atomic<bool> done = false;
  std::thread thread([&] {
    while (!done) {
      if (const auto question = questions.next()) {
        questions.answer(*question, planner::testing::whole_offers({{"h100", 1, question->service.slo.ttft_s}}));
      }
    }
  });
  const auto unanswered = [&] {
    (void)questions.attach(at);
    return std::any_of(at.services.begin(), at.services.end(), [](const auto& service) { return !service.offers; });
  };
  while (unanswered()) std::this_thread::yield();
  done = true;
  thread.join();
  for (const planner::Service& service : at.services) {
    EXPECT_EQ(service.offers, planner::testing::whole_offers({{"h100", 1, service.slo.ttft_s}}));
  }
}

}  // namespace
}  // namespace windlass::controller
