// Syntax trees of statements and expressions, made by the parser. Immutable once made; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/jinja/value.h"

namespace windlass::jinja {

enum class ExpressionKind {
  kConstant,
  kName,         // name
  kList,         // parts
  kTuple,        // parts
  kDict,         // parts: key, value, key, value, ...
  kAttribute,    // parts[0] . name
  kItem,         // parts[0] [ parts[1] ]
  kSlice,        // parts[0] [ parts[1] : parts[2] : parts[3] ], null where left out
  kCall,         // parts[0] ( the other parts, named )
  kFilter,       // parts[0] | name ( the other parts, named ); parts[0] is null in a filter block
  kTest,         // parts[0] is name ( the other parts )
  kNot,          // parts[0]
  kAnd,          // parts[0], parts[1]
  kOr,           // parts[0], parts[1]
  kUnary,        // name ("-", "+"), parts[0]
  kBinary,       // parts[0] name parts[1]
  kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
  kConcatenate,  // parts
  kConditional,  // parts[1] if parts[0] else parts[2]; null: undefined
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 1;
  int height = 1;  // of the tree from here down
  std::string name;
  Value constant;
  std::vector<std::unique_ptr<Expression>> parts;
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named;
  std::vector<std::string> operators;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct MacroNode {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with their defaults, or null
  Body body;
};

// The target of an assignment: a name, a field of a namespace, or several names that unpack a sequence.
struct Target {
  std::vector<std::string> names;
  std::string field;
  bool several = false;
};

enum class StatementKind {
  kText,    // text
  kPrint,   // value
  kFor,     // target in value if condition: body; else_body if there were no items
  kIf,      // branches; else_body
  kSet,     // target = value, or what body prints, passed through the filter `value` if any
  kMacro,   // macro
  kFilter,  // what body prints, passed through value
  kWith,    // body, with assignments
  kGroup,   // body
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 1;
  Text text;
  Target target;
  ExpressionPtr value;
  ExpressionPtr condition;
  bool from_body = false;  // for kSet
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<std::pair<std::string, ExpressionPtr>> assignments;
  Body body;
  Body else_body;
  MacroNode macro;
};

// Throws TemplateError, which names the line.
[[nodiscard]] Body parse_source(std::string_view source);

}  // namespace windlass::jinja
