// Builds the status of a ModelService or AcceleratorClass from observations and decisions. Pure.
#pragma once

#include "controller/reconcile/observe.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

// `old` provides the conditions' transition times. `memory` may be null.
[[nodiscard]] api::ModelServiceStatus status_of(const api::ModelService& service, const planner::Service& observed,
                                                const std::vector<Worker>& workers, const planner::ServicePlan& plan,
                                                const ServiceMemory* memory, const std::string& now_rfc3339);

// For a service whose served name belongs to an older one (`holder`, "namespace/name").
[[nodiscard]] api::ModelServiceStatus name_taken_status(const api::ModelService& service, const std::string& holder,
                                                        const std::string& now_rfc3339);

[[nodiscard]] api::AcceleratorClassStatus status_of(const api::AcceleratorClass& object, const GpuCapacity& capacity,
                                                    const Observation& observation);

// Condition type: whether this version can read the object. For all of our kinds.
inline constexpr const char* kReadable = "Readable";
// Condition type of an AcceleratorClass that workers were measured on.
inline constexpr const char* kDataSheetFits = "DataSheetFits";
// The condition DataSheetFits of a class, from its workers' measurements; nullopt: nothing was measured with enough certainty.
[[nodiscard]] std::optional<api::Condition> data_sheet_condition(const api::AcceleratorClass& object,
                                                                 const planner::Snapshot& snapshot);

[[nodiscard]] api::Condition unreadable_condition(const BrokenObject& object, const std::string& now_rfc3339);
// The object can be read again: corrects the condition if it says otherwise.
void mark_readable(std::vector<api::Condition>& conditions, std::int64_t generation, const std::string& now_rfc3339);

// Whether they differ in more than constantly changing parts: load, latencies, cost, the prediction's figures and the reasons.
[[nodiscard]] bool meaningfully_different(const api::ModelServiceStatus& a, const api::ModelServiceStatus& b);

}  // namespace windlass::controller
