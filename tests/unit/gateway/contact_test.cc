// A worker's contact as a function of its probes.
#include "gateway/contact.h"

#include <gtest/gtest.h>

namespace windlass::gateway {
namespace {

// Given one failure and then an answer; expects no change, and the second probe to be due immediately.
TEST(Contact, OneFailureChangesNothing) {
  ContactTracker tracker(0);
  EXPECT_FALSE(tracker.probe_due(0.1));
  EXPECT_TRUE(tracker.probe_due(ContactTracker::kProbePeriodS));
  EXPECT_EQ(tracker.probed(1, Probe::kNoConnection), Contact::kAnswers);
  EXPECT_TRUE(tracker.in_doubt());
  EXPECT_TRUE(tracker.probe_due(1));
  EXPECT_EQ(tracker.probed(1.1, Probe::kAnswered), Contact::kAnswers);
  EXPECT_FALSE(tracker.in_doubt());
}

// Given two failures in a row; expects the last to decide between silent and unreachable, a later one to change it, and the
// first answer or byte to restore the worker.
TEST(Contact, TwoFailuresTakeItOut) {
  ContactTracker tracker(0);
  EXPECT_EQ(tracker.probed(1, Probe::kNoAnswer), Contact::kAnswers);
  EXPECT_EQ(tracker.probed(2, Probe::kNoAnswer), Contact::kSilent);
  EXPECT_EQ(tracker.probed(3, Probe::kNoConnection), Contact::kUnreachable);
  EXPECT_EQ(tracker.probed(4, Probe::kNoAnswer), Contact::kSilent);
  EXPECT_EQ(tracker.heard(5), Contact::kAnswers);
  EXPECT_EQ(tracker.probed(6, Probe::kNoConnection), Contact::kAnswers);
  EXPECT_EQ(tracker.probed(7, Probe::kNoConnection), Contact::kUnreachable);
  EXPECT_EQ(tracker.probed(8, Probe::kAnswered), Contact::kAnswers);
}

// Given a worker that sends nothing; expects it to be lost after kLostAfterS, whichever way it fails.
TEST(Contact, LostAfterLongSilence) {
  for (const Probe how : {Probe::kNoAnswer, Probe::kNoConnection}) {
    ContactTracker tracker(0);
    double now_s = 0;
    while (now_s < ContactTracker::kLostAfterS - 1) EXPECT_LT(tracker.probed(now_s += 0.8, how), Contact::kLost);
    now_s = ContactTracker::kLostAfterS;
    EXPECT_EQ(tracker.probed(now_s, how), Contact::kLost);
    EXPECT_EQ(tracker.heard(now_s + 1), Contact::kAnswers);
  }
}

// Given a worker that falls silent at any moment between two probes, each of which takes its full time; expects it to be out
// within 2 s.
TEST(Contact, OutWithinTwoSeconds) {
  for (double phase_s = 0; phase_s < ContactTracker::kProbePeriodS; phase_s += 0.01) {
    const double silent_s = 100 + phase_s;
    ContactTracker tracker(silent_s);
    double now_s = 100;
    while (tracker.contact() == Contact::kAnswers) {
      if (!tracker.in_doubt()) now_s += ContactTracker::kProbePeriodS;
      if (!tracker.probe_due(now_s)) continue;
      now_s += ContactTracker::kProbeTimeoutS;
      tracker.probed(now_s, Probe::kNoAnswer);
    }
    EXPECT_LE(now_s - silent_s, 2 * (ContactTracker::kProbePeriodS + ContactTracker::kProbeTimeoutS) + 1e-9);
  }
}

}  // namespace
}  // namespace windlass::gateway
