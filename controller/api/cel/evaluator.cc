// Evaluates a CEL tree recursively. Numbers compare across int and double. Values of different types are never equal. Ordering
// other mixed types is an error, as in CEL.
#include "controller/api/cel/evaluator.h"

#include <limits>
#include <map>

#include <fmt/format.h>

namespace windlass::api::cel {

using nlohmann::json;

std::string Value::type_name() const {
  if (is_type_) return "type";
  switch (json_->type()) {
    case json::value_t::boolean: return "bool";
    case json::value_t::number_integer:
    case json::value_t::number_unsigned: return "int";
    case json::value_t::number_float: return "double";
    case json::value_t::string: return "string";
    case json::value_t::array: return "list";
    case json::value_t::object: return "map";
    default: return "null_type";
  }
}

namespace {

Error fail(std::string what) { return Error{ErrorCode::kInvalidArgument, std::move(what)}; }
Error no_overload() { return fail("no such overload"); }
Value boolean(bool value) { return Value(json(value)); }

bool is_int(const Value& value) { return !value.is_type() && value.json().is_number_integer(); }
bool is_number(const Value& value) { return !value.is_type() && value.json().is_number(); }
bool is_string(const Value& value) { return !value.is_type() && value.json().is_string(); }

bool equal(const Value& left, const Value& right) {
  if (left.is_type() != right.is_type()) return false;
  return left.json() == right.json();  // numbers by value, everything else by type and value
}

// Length in characters, not bytes.
std::int64_t characters(const std::string& text) {
  std::int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

class Evaluation {
 public:
  explicit Evaluation(const json& self) { variables_.emplace("self", Value(std::shared_ptr<const json>(), self)); }

  Result<Value> run(const Node& node) {
    switch (node.kind) {
      case NodeKind::kLiteral: return node.literal;
      case NodeKind::kVariable: return variables_.at(node.name);
      case NodeKind::kSelect: return select(node);
      case NodeKind::kHas: return has(node);
      case NodeKind::kIndex: return index(node);
      case NodeKind::kList: return list(node);
      case NodeKind::kUnary: return unary(node);
      case NodeKind::kBinary: return binary(node);
      case NodeKind::kTernary: return ternary(node);
      case NodeKind::kCall: return call(node);
      case NodeKind::kMacro: return macro(node);
    }
    return fail("unknown expression");
  }

 private:
  Result<Value> select(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(const Value of, run(*node.children[0]));
    if (of.is_type() || !of.json().is_object()) return no_overload();
    const auto found = of.json().find(node.name);
    if (found == of.json().end()) return fail("no such key: " + node.name);
    return of.part(*found);
  }

  Result<Value> has(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(const Value of, run(*node.children[0]));
    if (of.is_type() || !of.json().is_object()) return no_overload();
    return boolean(of.json().contains(node.name));
  }

  Result<Value> index(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(const Value of, run(*node.children[0]));
    WINDLASS_ASSIGN_OR_RETURN(const Value key, run(*node.children[1]));
    if (of.is_type()) return no_overload();
    if (of.json().is_array() && is_int(key)) {
      const auto at = key.json().get<std::int64_t>();
      if (at < 0 || at >= static_cast<std::int64_t>(of.json().size())) return fail(fmt::format("index out of bounds: {}", at));
      return of.part(of.json()[static_cast<std::size_t>(at)]);
    }
    if (of.json().is_object() && is_string(key)) {
      const auto found = of.json().find(key.json().get<std::string>());
      if (found == of.json().end()) return fail("no such key: " + key.json().get<std::string>());
      return of.part(*found);
    }
    return no_overload();
  }

  Result<Value> list(const Node& node) {
    json items = json::array();
    for (const auto& child : node.children) {
      WINDLASS_ASSIGN_OR_RETURN(const Value item, run(*child));
      if (item.is_type()) return no_overload();
      items.push_back(item.json());
    }
    return Value(std::move(items));
  }

  Result<Value> unary(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(const Value operand, run(*node.children[0]));
    if (node.name == "!") {
      if (operand.is_type() || !operand.json().is_boolean()) return no_overload();
      return boolean(!operand.json().get<bool>());
    }
    if (is_int(operand)) {
      std::int64_t negated = 0;
      if (__builtin_sub_overflow(std::int64_t{0}, operand.json().get<std::int64_t>(), &negated))
        return fail("integer overflow");
      return Value(json(negated));
    }
    if (is_number(operand)) return Value(json(-operand.json().get<double>()));
    return no_overload();
  }

  Result<Value> binary(const Node& node) {
    const std::string& op = node.name;
    if (op == "&&" || op == "||") return logic(node, op == "||");
    WINDLASS_ASSIGN_OR_RETURN(const Value left, run(*node.children[0]));
    WINDLASS_ASSIGN_OR_RETURN(const Value right, run(*node.children[1]));
    if (op == "==") return boolean(equal(left, right));
    if (op == "!=") return boolean(!equal(left, right));
    if (op == "in") return contained(left, right);
    if (op[0] == '<' || op[0] == '>') return ordered(op, left, right);
    return arithmetic(op, left, right);
  }

  // `deciding` is the operand that decides the result alone: true for ||, false for &&.
  Result<Value> logic(const Node& node, bool deciding) {
    const Result<Value> left = truth(*node.children[0]);
    if (left.ok() && left->json().get<bool>() == deciding) return boolean(deciding);
    const Result<Value> right = truth(*node.children[1]);
    if (right.ok() && right->json().get<bool>() == deciding) return boolean(deciding);
    if (!left.ok()) return left.error();
    return right;
  }

  Result<Value> truth(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(Value value, run(node));
    if (value.is_type() || !value.json().is_boolean()) return no_overload();
    return value;
  }

  static Result<Value> contained(const Value& item, const Value& in) {
    if (in.is_type() || item.is_type()) return no_overload();
    if (in.json().is_array()) {
      for (const json& candidate : in.json()) {
        if (candidate == item.json()) return boolean(true);
      }
      return boolean(false);
    }
    if (in.json().is_object() && is_string(item)) return boolean(in.json().contains(item.json().get<std::string>()));
    return no_overload();
  }

  static Result<Value> ordered(const std::string& op, const Value& left, const Value& right) {
    const bool comparable = (is_number(left) && is_number(right)) || (is_string(left) && is_string(right)) ||
                            (left.type_name() == "bool" && right.type_name() == "bool");
    if (!comparable) return no_overload();
    const json& a = left.json();
    const json& b = right.json();
    if (op == "<") return boolean(a < b);
    if (op == "<=") return boolean(a <= b);
    if (op == ">") return boolean(b < a);
    return boolean(b <= a);
  }

  static Result<Value> arithmetic(const std::string& op, const Value& left, const Value& right) {
    if (op == "+" && is_string(left) && is_string(right)) {
      return Value(json(left.json().get<std::string>() + right.json().get<std::string>()));
    }
    if (left.type_name() != right.type_name()) return no_overload();
    if (is_int(left)) return integers(op, left.json().get<std::int64_t>(), right.json().get<std::int64_t>());
    if (!is_number(left) || op == "%") return no_overload();
    const double a = left.json().get<double>();
    const double b = right.json().get<double>();
    return Value(json(op == "+" ? a + b : op == "-" ? a - b : op == "*" ? a * b : a / b));
  }

  static Result<Value> integers(const std::string& op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflow = false;
    if (op == "+") {
      overflow = __builtin_add_overflow(a, b, &result);
    } else if (op == "-") {
      overflow = __builtin_sub_overflow(a, b, &result);
    } else if (op == "*") {
      overflow = __builtin_mul_overflow(a, b, &result);
    } else {
      if (b == 0) return fail(op == "/" ? "division by zero" : "modulus by zero");
      overflow = b == -1 && a == std::numeric_limits<std::int64_t>::min();
      if (!overflow) result = op == "/" ? a / b : a % b;
    }
    if (overflow) return fail("integer overflow");
    return Value(json(result));
  }

  Result<Value> ternary(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(const Value condition, truth(*node.children[0]));
    return run(*node.children[condition.json().get<bool>() ? 1 : 2]);
  }

  Result<Value> call(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(const Value on, run(*node.children[0]));
    if (node.name == "type") return Value::of_type(on.type_name());
    if (on.is_type()) return no_overload();
    if (node.name == "size") {
      if (on.json().is_string()) return Value(json(characters(on.json().get_ref<const std::string&>())));
      if (on.json().is_structured()) return Value(json(static_cast<std::int64_t>(on.json().size())));
      return no_overload();
    }
    if (!on.json().is_string()) return no_overload();
    const auto& text = on.json().get_ref<const std::string&>();
    if (node.name == "matches") return boolean(std::regex_search(text, *node.pattern));
    WINDLASS_ASSIGN_OR_RETURN(const Value argument, run(*node.children[1]));
    if (!is_string(argument)) return no_overload();
    const auto& part = argument.json().get_ref<const std::string&>();
    if (node.name == "startsWith") return boolean(text.starts_with(part));
    if (node.name == "endsWith") return boolean(text.ends_with(part));
    return boolean(text.find(part) != std::string::npos);
  }

  // Like && and ||, all and exists ignore an error if another item decides the result. exists_one reports every error.
  Result<Value> macro(const Node& node) {
    WINDLASS_ASSIGN_OR_RETURN(const Value over, run(*node.children[0]));
    if (over.is_type() || !over.json().is_structured()) return no_overload();
    const bool deciding = node.name == "exists";
    const bool count = node.name == "exists_one";
    int holds = 0;
    std::optional<Error> error;
    for (const auto& [key, item] : over.json().items()) {
      const Value bound = over.json().is_object() ? Value(json(key)) : over.part(item);
      variables_.insert_or_assign(node.variable, bound);
      const Result<Value> result = truth(*node.children[1]);
      if (!result.ok()) {
        error = result.error();
        continue;
      }
      const bool held = result->json().get<bool>();
      if (!count && held == deciding) return boolean(deciding);
      holds += held ? 1 : 0;
    }
    if (error.has_value()) return *error;
    return boolean(count ? holds == 1 : !deciding);
  }

  std::map<std::string, Value> variables_;
};

}  // namespace

Result<Value> evaluate(const Node& expression, const json& self) { return Evaluation(self).run(expression); }

Result<bool> evaluate_rule(const Node& expression, const json& self) {
  WINDLASS_ASSIGN_OR_RETURN(const Value value, evaluate(expression, self));
  if (value.is_type() || !value.json().is_boolean()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("must be a bool (got a {})", value.type_name())};
  }
  return value.json().get<bool>();
}

}  // namespace windlass::api::cel
