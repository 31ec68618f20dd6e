// Decides from probe results whether a worker can be reached. Pure: time is an argument. One tracker per address.
//
// Silence has two causes. A busy worker may answer late although its machine accepts connections. Its requests may be fine, and
// moving them would only double the load. A machine that accepts no connection is down or cut off. So there are two levels,
// each reached after two failures in a row, and a third after a long time:
//   kSilent       accepts connections but does not answer: gets no new requests
//   kUnreachable  accepts no connections: requests that it has not begun to answer are also taken back
//   kLost         nothing received for kLostAfterS: streams that it was sending are also ended
// Any answer, and any byte of any response from the worker, resets it to kAnswers.
#pragma once

#include <optional>

namespace windlass::gateway {

enum class Contact { kAnswers, kSilent, kUnreachable, kLost };  // from good to bad

enum class Probe { kAnswered, kNoAnswer, kNoConnection };

class ContactTracker {
 public:
  // Two failed probes of at most kProbeTimeoutS each, plus two pauses: a worker that falls silent is out after at most 2 *
  // (kProbePeriodS + kProbeTimeoutS) = 1.6 s.
  static constexpr double kProbePeriodS = 0.4;
  static constexpr double kProbeTimeoutS = 0.4;
  static constexpr double kLostAfterS = 10;

  explicit ContactTracker(double now_s) : heard_s_(now_s) {}

  // Records the result of a probe that ended at now_s.
  Contact probed(double now_s, Probe outcome);
  // Records that a byte arrived from the worker.
  Contact heard(double now_s);

  [[nodiscard]] Contact contact() const { return contact_; }
  // True after a first failure: a second probe must follow immediately, over a new connection.
  [[nodiscard]] bool in_doubt() const { return failures_ == 1; }
  // True when nothing was heard for a period. A worker that is answering requests need not be probed.
  [[nodiscard]] bool probe_due(double now_s) const { return failures_ > 0 || now_s - heard_s_ >= kProbePeriodS; }

 private:
  Contact contact_ = Contact::kAnswers;
  int failures_ = 0;  // in a row
  double heard_s_;
};

[[nodiscard]] const char* to_string(Contact contact);  // "answers", "silent", "unreachable", "lost"

}  // namespace windlass::gateway
