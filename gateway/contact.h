// Whether a worker can be reached, from what its probes came to. Pure: time is an argument. One tracker for each address.
//
// Two different things look like silence. A worker that is busy may be late with an answer although its machine takes the
// connection; nothing is then known of its requests, and taking them away would only double the load. A machine that takes no
// connection is gone or cut off. Therefore two levels, each after two failures in a row, and a third one after a long time:
//   kSilent       it takes connections and does not answer: no new requests
//   kUnreachable  it takes no connections: as well, requests that it has not begun to answer are taken back
//   kLost         nothing was heard for kLostAfterS: as well, the streams that it was sending end
// Any answer and any byte of any request from there makes it kAnswers again.
#pragma once

#include <optional>

namespace windlass::gateway {

enum class Contact { kAnswers, kSilent, kUnreachable, kLost };  // from good to bad

enum class Probe { kAnswered, kNoAnswer, kNoConnection };

class ContactTracker {
 public:
  // Two failed probes, each no longer than kProbeTimeoutS, and two pauses: a worker that falls silent is out in at most
  // 2 * (kProbePeriodS + kProbeTimeoutS) = 1.6 s.
  static constexpr double kProbePeriodS = 0.4;
  static constexpr double kProbeTimeoutS = 0.4;
  static constexpr double kLostAfterS = 10;

  explicit ContactTracker(double now_s) : heard_s_(now_s) {}

  // What a probe came to that ended at now_s.
  Contact probed(double now_s, Probe outcome);
  // A byte of an answer came from there.
  Contact heard(double now_s);

  [[nodiscard]] Contact contact() const { return contact_; }
  // A first failure is followed by a second probe at once, over a new connection.
  [[nodiscard]] bool in_doubt() const { return failures_ == 1; }
  // Worth asking: nothing was heard for a period. Who answers requests need not be probed.
  [[nodiscard]] bool probe_due(double now_s) const { return failures_ > 0 || now_s - heard_s_ >= kProbePeriodS; }

 private:
  Contact contact_ = Contact::kAnswers;
  int failures_ = 0;  // in a row
  double heard_s_;
};

[[nodiscard]] const char* to_string(Contact contact);  // "answers", "silent", "unreachable", "lost"

}  // namespace windlass::gateway
