// A CEL expression as a tree. Pratt parser; CEL's own precedences.
#pragma once

#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/cel/value.h"
#include "planner/base/result.h"

namespace windlass::api::cel {

enum class NodeKind {
  kLiteral,   // literal
  kVariable,  // name: self, a macro's variable, or a type's name (int, string, ...)
  kSelect,    // children[0].name
  kHas,       // has(children[0].name)
  kIndex,     // children[0][children[1]]
  kList,      // [children...]
  kUnary,     // name ("!", "-") children[0]
  kBinary,    // children[0] name children[1]
  kTernary,   // children[0] ? children[1] : children[2]
  kCall,      // name(children...); a method's receiver comes first
  kMacro,     // children[0].name(variable, children[1]): all, exists, exists_one
};

struct Node {
  NodeKind kind = NodeKind::kLiteral;
  std::string name;
  std::string variable;
  Value literal;
  std::optional<std::regex> pattern;  // of matches() with a literal argument, compiled once
  std::vector<std::unique_ptr<Node>> children;
};

// Everything outside the subset is an error here, at load time: an unknown function, variable, macro or operator, a wrong
// number of arguments, a pattern that is no literal or does not compile. The variable of the expression is `self`.
[[nodiscard]] Result<std::unique_ptr<Node>> parse(std::string_view expression);

}  // namespace windlass::api::cel
