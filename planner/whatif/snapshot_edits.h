// Edits of a snapshot, written as text: "rate=2x,slo.ttft=300ms,price.h100=2". `windlass plan --what-if` plans the edited
// snapshot next to the original.
//
//   of services  rate, inputTokens, outputTokens          a number, or a factor such as 2x
//                slo.ttft, slo.tpot                       a duration
//                slo.percentile                           above 0 and below 100
//                minWorkers, maxWorkers, maxCostPerHour   a number; for the last two also none
//   of classes   price.CLASS                              of one GPU for an hour: a number, or a factor
//                gpus.CLASS                               GPUs that are available to the snapshot's services
//
// A key applies to every service, or with NAME: or NAMESPACE/NAME: before it to one: "chat:rate=2x". CLASS is the name of a
// class, or a part that only one of the names has. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// One changed value, for people: {"default/chat", "rate", "2.5", "5"}.
struct SnapshotEdit {
  std::string of;   // the service or the class
  std::string key;  // without the service and the class
  std::string from, to;

  bool operator==(const SnapshotEdit&) const = default;
};

struct EditedSnapshot {
  Snapshot snapshot;
  std::vector<SnapshotEdit> edits;  // in the order of the text
};

// A changed rate or length counts as if it had been so for longer than every window; requests that wait or run stay. Errors are
// "KEY: must be ... (got ...)".
[[nodiscard]] Result<EditedSnapshot> edited(Snapshot snapshot, std::string_view text);

}  // namespace windlass::planner
