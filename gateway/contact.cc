// See contact.h.
#include "gateway/contact.h"

namespace windlass::gateway {

Contact ContactTracker::probed(double now_s, Probe outcome) {
  if (outcome == Probe::kAnswered) return heard(now_s);
  ++failures_;
  if (failures_ < 2) return contact_;
  contact_ = outcome == Probe::kNoConnection ? Contact::kUnreachable : Contact::kSilent;
  if (now_s - heard_s_ >= kLostAfterS) contact_ = Contact::kLost;
  return contact_;
}

Contact ContactTracker::heard(double now_s) {
  heard_s_ = now_s;
  failures_ = 0;
  contact_ = Contact::kAnswers;
  return contact_;
}

const char* to_string(Contact contact) {
  switch (contact) {
    case Contact::kAnswers: return "answers";
    case Contact::kSilent: return "silent";
    case Contact::kUnreachable: return "unreachable";
    case Contact::kLost: return "lost";
  }
  return "unknown";
}

}  // namespace windlass::gateway
