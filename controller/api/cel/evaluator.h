// What a CEL expression says of a value. Pure: the tree is never changed, so one tree serves all threads.
#pragma once

#include "controller/api/cel/parser.h"
#include "controller/api/cel/value.h"
#include "planner/base/result.h"

namespace windlass::api::cel {

// The expression's value with `self` bound; the value may point into `self`, which must outlive it. Errors are CEL's own: "no
// such key: x", "no such overload", "division by zero", "index out of bounds: 3", "integer overflow". && and || take an error
// only if the other side does not decide.
[[nodiscard]] Result<Value> evaluate(const Node& expression, const nlohmann::json& self);

// The same for a rule, whose value must be a bool.
[[nodiscard]] Result<bool> evaluate_rule(const Node& expression, const nlohmann::json& self);

}  // namespace windlass::api::cel
