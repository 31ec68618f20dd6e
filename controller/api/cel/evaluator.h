// Evaluates a parsed CEL expression on a value. Pure: the tree never changes, so threads can share it.
#pragma once

#include "controller/api/cel/parser.h"
#include "controller/api/cel/value.h"
#include "planner/base/result.h"

namespace windlass::api::cel {

// The expression's value with `self` bound. The value may point into `self`, which must outlive it. Errors are CEL's own: "no
// such key: x", "no such overload", "division by zero", "index out of bounds: 3", "integer overflow". && and || ignore an
// operand's error if the other operand decides the result.
[[nodiscard]] Result<Value> evaluate(const Node& expression, const nlohmann::json& self);

// Same, for a rule, whose value must be a bool.
[[nodiscard]] Result<bool> evaluate_rule(const Node& expression, const nlohmann::json& self);

}  // namespace windlass::api::cel
