// Converts Snapshot and Plan to text and back; snapshot_json.cc and plan_json.cc list the fields.
#include "planner/policy/json.h"

#include <nlohmann/json.hpp>

#include "planner/base/json_reader.h"
#include "planner/policy/json_fields.h"

namespace windlass::planner {
namespace {

std::string dump(const nlohmann::ordered_json& value, bool pretty) {
  // Names come from outside: replace bytes that are not UTF-8 instead of throwing.
  return value.dump(pretty ? 2 : -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const Snapshot& snapshot, bool pretty) { return dump(fields_of(snapshot), pretty); }

std::string to_json(const Offer& offer) { return dump(fields_of(offer), false); }

std::string to_json(const Plan& plan, bool pretty) { return dump(fields_of(plan), pretty); }

nlohmann::ordered_json to_json_value(const ServicePlan& plan) { return fields_of(plan); }

Result<Offer> offer_from_json(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, "offer"));
  Result<Offer> offer = read_json<Offer>(document, "");
  if (!offer.ok()) return offer.error().within("offer");
  return offer;
}

Result<Snapshot> snapshot_from_json(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, "snapshot"));
  Result<Snapshot> snapshot = read_json<Snapshot>(document, "");
  if (!snapshot.ok()) return snapshot.error().within("snapshot");
  return snapshot;
}

Result<Plan> plan_from_json(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, "plan"));
  Result<Plan> plan = read_json<Plan>(document, "");
  if (!plan.ok()) return plan.error().within("plan");
  return plan;
}

}  // namespace windlass::planner
