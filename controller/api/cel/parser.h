// Parses a CEL expression into a tree.
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
  kCall,      // name(children...); a method's receiver is children[0]
  kMacro,     // children[0].name(variable, children[1]): all, exists, exists_one
};

struct Node {
  NodeKind kind = NodeKind::kLiteral;
  std::string name;
  std::string variable;
  Value literal;
  std::optional<std::regex> pattern;  // for matches() with a literal argument, compiled once
  std::vector<std::unique_ptr<Node>> children;
};

// Reports everything outside the supported subset at load time: an unknown function, variable, macro or operator, a wrong
// number of arguments, and a pattern that is not a literal or does not compile. The expression's variable is `self`.
[[nodiscard]] Result<std::unique_ptr<Node>> parse(std::string_view expression);

}  // namespace windlass::api::cel
