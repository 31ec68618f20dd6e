// From what was seen and decided to what a ModelService's and an AcceleratorClass's status says. Pure.
#pragma once

#include "controller/reconcile/observe.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

// `old` gives the conditions their transition times. `memory` may be null.
[[nodiscard]] api::ModelServiceStatus status_of(const api::ModelService& service, const planner::Service& observed,
                                                const std::vector<Worker>& workers, const planner::ServicePlan& plan,
                                                const ServiceMemory* memory, const std::string& now_rfc3339);

// Of a service whose served name an older one (`holder`, "namespace/name") keeps.
[[nodiscard]] api::ModelServiceStatus name_taken_status(const api::ModelService& service, const std::string& holder,
                                                        const std::string& now_rfc3339);

[[nodiscard]] api::AcceleratorClassStatus status_of(const api::AcceleratorClass& object, const GpuCapacity& capacity,
                                                    const Observation& observation);

// Condition of any of our objects that this version cannot read.
inline constexpr const char* kReadable = "Readable";
// Of an AcceleratorClass that workers were measured on.
inline constexpr const char* kDataSheetFits = "DataSheetFits";
// Condition DataSheetFits of a class, by what its workers were measured at; nullopt: nothing sure enough was measured.
[[nodiscard]] std::optional<api::Condition> data_sheet_condition(const api::AcceleratorClass& object,
                                                                 const planner::Snapshot& snapshot);

[[nodiscard]] api::Condition unreadable_condition(const BrokenObject& object, const std::string& now_rfc3339);
// It can be read again: where the condition says otherwise, it is put right.
void mark_readable(std::vector<api::Condition>& conditions, std::int64_t generation, const std::string& now_rfc3339);

// Whether they differ in more than what moves all the time: load, latencies, cost, the figures of the prediction and the
// reasons.
[[nodiscard]] bool meaningfully_different(const api::ModelServiceStatus& a, const api::ModelServiceStatus& b);

}  // namespace windlass::controller
