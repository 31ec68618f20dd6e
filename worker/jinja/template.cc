// The evaluator: walks the trees. Scopes are chained; a loop's body and a macro have their own scope, an if does not.
#include "worker/jinja/template.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "worker/jinja/builtins.h"
#include "worker/jinja/syntax.h"

namespace windlass::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> names;

  void set(const std::string& name, Value value) {
    for (auto& [known, there] : names) {
      if (known != name) continue;
      there = std::move(value);
      return;
    }
    names.emplace_back(name, std::move(value));
  }
  [[nodiscard]] const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      for (const auto& [known, value] : scope->names) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }
};

namespace {

constexpr std::int64_t kLoopSteps = 20;        // steps charged per loop iteration
constexpr int kMaxDepth = 500;                 // of the evaluator's recursion: a MB of stack, several with sanitizers
constexpr std::int64_t kMaxItems = 1'000'000;  // in a list made by an operator

enum class Flow { kOn, kBreak, kContinue };
using ScopePtr = std::shared_ptr<Scope>;

[[noreturn]] void refuse_operands(std::string_view operation, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->undefined() != nullptr) throw TemplateError{fmt::format("'{}' is undefined", value->undefined()->name)};
  }
  if (&a == &b) throw TemplateError{fmt::format("'{}': operand: must be a number (got {})", operation, type_name(a))};
  throw TemplateError{fmt::format("'{}': not supported for {} and {}", operation, type_name(a), type_name(b))};
}

// The quotient rounded down. REQUIRES: no overflow, b not 0.
std::int64_t floor_quotient(std::int64_t a, std::int64_t b) { return a / b - ((a % b != 0 && (a % b < 0) != (b < 0)) ? 1 : 0); }

Value power(double base, double exponent) {
  const double result = std::pow(base, exponent);
  if (!std::isfinite(result) && std::isfinite(base) && std::isfinite(exponent))
    throw TemplateError{
        fmt::format("'**': must have a finite real result (got {} and {})", float_text(base), float_text(exponent))};
  return result;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (base == 0 || base == 1 || (base == -1 && i > 1))
      return base == -1 ? Value(std::int64_t{exponent % 2 == 0 ? 1 : -1}) : Value(base);
    if (__builtin_mul_overflow(result, base, &result)) throw TemplateError{"'**': the result has more than 64 bits"};
  }
  return result;
}

Value compute_integers(const std::string& operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (divides && b == 0) throw TemplateError{fmt::format("'{}': division by zero", operation)};
  if (operation == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (operation == "**") return b < 0 ? power(static_cast<double>(a), static_cast<double>(b)) : integer_power(a, b);
  if (operation == "%") {
    const std::int64_t rest = b == -1 ? 0 : a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  const bool overflows = operation == "+"   ? __builtin_add_overflow(a, b, &result)
                         : operation == "-" ? __builtin_sub_overflow(a, b, &result)
                         : operation == "*" ? __builtin_mul_overflow(a, b, &result)
                                            : a == INT64_MIN && b == -1;
  if (overflows) throw TemplateError{fmt::format("'{}': the result has more than 64 bits", operation)};
  return operation == "//" ? floor_quotient(a, b) : result;
}

Value compute_numbers(const std::string& operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "**") return power(a, b);
  if (b == 0) throw TemplateError{fmt::format("'{}': division by zero", operation)};
  if (operation == "/") return a / b;
  // Like Python: 0.5 // 0.1 is 4, because 0.1 is slightly more than a tenth.
  const double rest = std::fmod(a, b);
  const bool other_side = rest != 0 && (rest < 0) != (b < 0);
  if (operation == "//") return std::round((a - rest) / b) - (other_side ? 1 : 0);
  if (rest == 0) return std::copysign(0.0, b);
  return other_side ? rest + b : rest;
}

Value repeated(const Value& value, std::int64_t count) {
  if (const Text* text = value.text()) {
    Text out;
    for (std::int64_t i = 0; i < count && !text->empty(); ++i) out += *text;
    return out;
  }
  const List& list = *value.list();
  if (count > 0 && static_cast<std::int64_t>(list.items.size()) > kMaxItems / count)
    throw TemplateError{fmt::format("'*': the list would have more than {} items", kMaxItems)};
  List out;
  out.kind = list.kind;
  for (std::int64_t i = 0; i < count && !list.items.empty(); ++i)
    out.items.insert(out.items.end(), list.items.begin(), list.items.end());
  return out;
}

Value compute(const std::string& operation, const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    if (a.get<double>() == nullptr && b.get<double>() == nullptr)
      return compute_integers(operation, as_integer(a, operation), as_integer(b, operation));
    return compute_numbers(operation, as_double(a), as_double(b));
  }
  const auto repeats = [](const Value& value) { return value.text() != nullptr || value.list() != nullptr; };
  if (operation == "*" && repeats(a) && b.number()) return repeated(a, as_integer(b, "'*'"));
  if (operation == "*" && a.number() && repeats(b)) return repeated(b, as_integer(a, "'*'"));
  if (operation == "+" && a.text() != nullptr && b.text() != nullptr) {
    Text out = *a.text();
    out += *b.text();
    return out;
  }
  if (operation == "+" && a.list() != nullptr && b.list() != nullptr && a.list()->kind == b.list()->kind &&
      a.list()->kind != Sequence::kGenerator) {
    List out;
    out.kind = a.list()->kind;
    out.items = a.list()->items;
    out.items.insert(out.items.end(), b.list()->items.begin(), b.list()->items.end());
    if (static_cast<std::int64_t>(out.items.size()) > kMaxItems)
      throw TemplateError{fmt::format("'+': the list would have more than {} items", kMaxItems)};
    return out;
  }
  refuse_operands(operation, a, b);
}

bool compare(const std::string& operation, const Value& a, const Value& b) {
  if (operation == "==") return equal(a, b);
  if (operation == "!=") return !equal(a, b);
  if (operation == "<") return less(a, b);
  if (operation == ">") return less(b, a);
  if (operation == "<=") return less(a, b) || equal(a, b);
  if (operation == ">=") return less(b, a) || equal(a, b);
  return contains(b, a) == (operation == "in");
}

std::int64_t bound(const Value& given, std::int64_t fallback) { return given.none() ? fallback : as_integer(given, "a slice"); }

// Copies runs of consecutive characters in one piece.
Value part_of(const Text& text, const Value& from, const Value& to) {
  const auto starts = character_starts(text.bytes());
  const auto count = static_cast<std::int64_t>(starts.size()) - 1;
  const auto place = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + count : at, 0, count); };
  const std::int64_t begin = place(bound(from, 0)), end = std::max(begin, place(bound(to, count)));
  return text.substr(starts[static_cast<std::size_t>(begin)],
                     starts[static_cast<std::size_t>(end)] - starts[static_cast<std::size_t>(begin)]);
}

Value slice(const Value& value, const Value& from, const Value& to, const Value& by) {
  const std::int64_t step = bound(by, 1);
  if (step == 0) throw TemplateError{"a slice: step: must not be 0"};
  if (value.undefined() != nullptr) throw TemplateError{fmt::format("'{}' is undefined", value.undefined()->name)};
  const List* list = value.list();
  if (value.text() != nullptr && step == 1) return part_of(*value.text(), from, to);
  if (value.text() == nullptr && (list == nullptr || list->kind == Sequence::kGenerator))
    throw TemplateError{fmt::format("a slice: must be a list or a string (got {})", type_name(value))};
  const std::vector<Value> items = items_of(value);
  const auto count = static_cast<std::int64_t>(items.size());
  const auto place = [&](std::int64_t at) {
    if (at < 0) at += count;
    return std::clamp<std::int64_t>(at, step > 0 ? 0 : -1, step > 0 ? count : count - 1);
  };
  const std::int64_t begin = from.none() ? (step > 0 ? 0 : count - 1) : place(bound(from, 0));
  const std::int64_t end = to.none() ? (step > 0 ? count : -1) : place(bound(to, 0));
  List out;
  if (list != nullptr) out.kind = list->kind;
  Text text;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    const Value& item = items[static_cast<std::size_t>(at)];
    if (list != nullptr) {
      out.items.push_back(item);
    } else {
      text += *item.text();
    }
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  if (list != nullptr) return out;
  return text;
}

class Evaluator {
 public:
  explicit Evaluator(std::int64_t unix_s) : unix_s_(unix_s) {}

  Flow run(const Body& body, const ScopePtr& scope, Text& out) {
    for (const auto& statement : body) {
      const Flow flow = run(*statement, scope, out);
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

 private:
  class Deeper {
   public:
    explicit Deeper(Evaluator& evaluator, std::int64_t steps = 1) : evaluator_(evaluator) {
      charge(steps);
      if (++evaluator.depth_ > kMaxDepth)
        throw TemplateError{fmt::format("the template: must be at most {} calls deep", kMaxDepth)};
    }
    ~Deeper() { --evaluator_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Evaluator& evaluator_;
  };

  Flow run(const Statement& statement, const ScopePtr& scope, Text& out) {
    try {
      const Deeper deeper(*this);
      return run_kind(statement, scope, out);
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = statement.line;
      throw;
    }
  }

  Flow run_kind(const Statement& statement, const ScopePtr& scope, Text& out) {
    switch (statement.kind) {
      case StatementKind::kText: out += statement.text; return Flow::kOn;
      case StatementKind::kPrint: out += shown(evaluate(*statement.value, scope)); return Flow::kOn;
      case StatementKind::kFor: return run_for(statement, scope, out);
      case StatementKind::kIf:
        for (const auto& [condition, body] : statement.branches) {
          if (truth(evaluate(*condition, scope))) return run(body, scope, out);
        }
        return run(statement.else_body, scope, out);
      case StatementKind::kSet: return run_set(statement, scope);
      case StatementKind::kMacro: scope->set(statement.macro.name, Macro{&statement.macro, scope}); return Flow::kOn;
      case StatementKind::kFilter: {
        Text inner;
        const Flow flow = run(statement.body, child_of(scope), inner);
        out += shown(filter(*statement.value, Value(std::move(inner)), scope));
        return flow;
      }
      case StatementKind::kWith: {
        const ScopePtr inner = child_of(scope);
        for (const auto& [name, value] : statement.assignments) inner->set(name, evaluate(*value, scope));
        return run(statement.body, inner, out);
      }
      case StatementKind::kGroup: return run(statement.body, child_of(scope), out);
      case StatementKind::kBreak: return Flow::kBreak;
      case StatementKind::kContinue: return Flow::kContinue;
    }
    return Flow::kOn;
  }

  static ScopePtr child_of(const ScopePtr& scope) {
    auto child = std::make_shared<Scope>();
    child->parent = scope;
    return child;
  }

  static void assign(const Target& target, Value value, const ScopePtr& scope) {
    if (!target.field.empty()) {
      const Value* holder = scope->find(target.names[0]);
      if (holder == nullptr || holder->space() == nullptr)
        throw TemplateError{fmt::format("set {}.{}: there is no namespace of that name", target.names[0], target.field)};
      check_item(value);
      return holder->space()->fields.set(Text::of_template(target.field), std::move(value));
    }
    if (!target.several) return scope->set(target.names[0], std::move(value));
    std::vector<Value> parts = items_of(value);
    if (parts.size() != target.names.size()) {
      throw TemplateError{fmt::format("unpacking: must have {} items (got {})", target.names.size(), parts.size())};
    }
    for (std::size_t i = 0; i < parts.size(); ++i) scope->set(target.names[i], std::move(parts[i]));
  }

  Flow run_set(const Statement& statement, const ScopePtr& scope) {
    if (!statement.from_body) {
      assign(statement.target, evaluate(*statement.value, scope), scope);
      return Flow::kOn;
    }
    Text inner;
    const Flow flow = run(statement.body, child_of(scope), inner);
    Value value(std::move(inner));
    if (statement.value != nullptr) value = filter(*statement.value, std::move(value), scope);
    assign(statement.target, std::move(value), scope);
    return flow;
  }

  // The value of `loop` in the body.
  static Value loop_of(const std::vector<Value>& items, std::size_t i) {
    auto loop = std::make_shared<Namespace>();
    const auto set = [&](const char* name, Value value) {
      loop->fields.items.emplace_back(Text::of_template(name), std::move(value));
    };
    const auto whole = [](std::size_t number) { return Value(static_cast<std::int64_t>(number)); };
    set("index", whole(i + 1));
    set("index0", whole(i));
    set("first", i == 0);
    set("last", i + 1 == items.size());
    set("length", whole(items.size()));
    set("revindex", whole(items.size() - i));
    set("revindex0", whole(items.size() - i - 1));
    set("depth", std::int64_t{1});  // for recursive loops
    set("depth0", std::int64_t{0});
    set("previtem", i > 0 ? items[i - 1] : Value(Undefined{"loop.previtem"}));
    set("nextitem", i + 1 < items.size() ? items[i + 1] : Value(Undefined{"loop.nextitem"}));
    return loop;
  }

  Flow run_for(const Statement& statement, const ScopePtr& scope, Text& out) {
    std::vector<Value> items = items_of(evaluate(*statement.value, scope));
    if (statement.condition != nullptr) {
      std::vector<Value> kept;
      for (Value& item : items) {
        const ScopePtr inner = child_of(scope);
        assign(statement.target, item, inner);
        if (truth(evaluate(*statement.condition, inner))) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    if (items.empty()) return run(statement.else_body, child_of(scope), out);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Deeper deeper(*this, kLoopSteps);
      const ScopePtr inner = child_of(scope);
      assign(statement.target, items[i], inner);
      inner->set("loop", loop_of(items, i));
      if (run(statement.body, inner, out) == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  Value filter(const Expression& expression, Value value, const ScopePtr& scope) {
    if (expression.parts[0] != nullptr) value = filter(*expression.parts[0], std::move(value), scope);
    return apply_filter(expression.name, value, arguments_of(expression, scope));
  }

  Arguments arguments_of(const Expression& expression, const ScopePtr& scope) {
    Arguments given;
    for (std::size_t i = 1; i < expression.parts.size(); ++i) given.positional.push_back(evaluate(*expression.parts[i], scope));
    for (const auto& [name, value] : expression.named) given.named.emplace_back(name, evaluate(*value, scope));
    return given;
  }

  Value evaluate(const Expression& expression, const ScopePtr& scope) {
    const Deeper deeper(*this);
    const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i], scope); };
    switch (expression.kind) {
      case ExpressionKind::kConstant: return expression.constant;
      case ExpressionKind::kName: return name_value(expression.name, scope);
      case ExpressionKind::kList:
      case ExpressionKind::kTuple: {
        List list;
        list.kind = expression.kind == ExpressionKind::kList ? Sequence::kList : Sequence::kTuple;
        for (std::size_t i = 0; i < expression.parts.size(); ++i) list.items.push_back(part(i));
        return list;
      }
      case ExpressionKind::kDict: {
        Dict dict;
        for (std::size_t i = 0; i < expression.parts.size(); i += 2) dict.set(as_text(part(i), "a dict's key"), part(i + 1));
        return dict;
      }
      case ExpressionKind::kAttribute: return attribute_of(part(0), expression.name);
      case ExpressionKind::kItem: return item_of(part(0), part(1));
      case ExpressionKind::kSlice: {
        const auto bound = [&](std::size_t i) { return expression.parts[i] == nullptr ? Value(None{}) : part(i); };
        return slice(part(0), bound(1), bound(2), bound(3));
      }
      case ExpressionKind::kCall: return call(expression, scope);
      case ExpressionKind::kFilter: return apply_filter(expression.name, part(0), arguments_of(expression, scope));
      case ExpressionKind::kTest: return apply_test(expression.name, part(0), arguments_of(expression, scope).positional);
      case ExpressionKind::kNot: return !truth(part(0));
      case ExpressionKind::kAnd: {
        Value left = part(0);
        return truth(left) ? part(1) : left;
      }
      case ExpressionKind::kOr: {
        Value left = part(0);
        return truth(left) ? left : part(1);
      }
      case ExpressionKind::kUnary: {
        const Value value = part(0);
        if (!value.number()) refuse_operands(expression.name, value, value);
        if (expression.name == "-") return compute("*", value, std::int64_t{-1});
        return compute("+", value, std::int64_t{0});
      }
      case ExpressionKind::kBinary: {
        const Value left = part(0);
        return compute(expression.name, left, part(1));
      }
      case ExpressionKind::kCompare: return all_hold(expression, scope);
      case ExpressionKind::kConcatenate: {
        Text out;
        for (std::size_t i = 0; i < expression.parts.size(); ++i) out += shown(part(i));
        return out;
      }
      case ExpressionKind::kConditional:
        if (truth(part(0))) return part(1);
        return expression.parts[2] == nullptr ? Value(Undefined{"the other branch of an if"}) : part(2);
    }
    return {};
  }

  // a < b < c: evaluates each operand once, and none after the first comparison that fails.
  bool all_hold(const Expression& comparisons, const ScopePtr& scope) {
    Value left = evaluate(*comparisons.parts[0], scope);
    for (std::size_t i = 0; i < comparisons.operators.size(); ++i) {
      Value right = evaluate(*comparisons.parts[i + 1], scope);
      if (!compare(comparisons.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  static Value name_value(const std::string& name, const ScopePtr& scope) {
    if (const Value* value = scope->find(name)) return *value;
    if (has_function(name)) return Callable{name, nullptr};
    return Undefined{name};
  }

  Value call(const Expression& expression, const ScopePtr& scope) {
    const Value callee = evaluate(*expression.parts[0], scope);
    if (callee.undefined() != nullptr) throw TemplateError{fmt::format("'{}' is undefined", callee.undefined()->name)};
    const Arguments given = arguments_of(expression, scope);
    if (const auto* macro = callee.get<Macro>()) return call_macro(*macro, given);
    const auto* callable = callee.get<Callable>();
    if (callable == nullptr)
      throw TemplateError{fmt::format("a call: must name something callable (got {})", type_name(callee))};
    if (callable->self != nullptr) return call_method(*callable->self, callable->name, given);
    return call_function(callable->name, given, unix_s_);
  }

  Value call_macro(const Macro& macro, const Arguments& given) {
    const MacroNode& node = *macro.node;
    const ScopePtr defined_in = macro.scope.lock();
    if (defined_in == nullptr)
      throw TemplateError{fmt::format("macro {}: the loop that it was defined in has ended", node.name)};
    const ScopePtr scope = child_of(defined_in);
    if (given.positional.size() > node.parameters.size()) {
      throw TemplateError{fmt::format("macro {}: must have at most {} arguments (got {})", node.name, node.parameters.size(),
                                      given.positional.size())};
    }
    for (const auto& [name, value] : given.named) {
      if (std::none_of(node.parameters.begin(), node.parameters.end(), [&](const auto& one) { return one.first == name; }))
        throw TemplateError{fmt::format("macro {}: has no argument '{}'", node.name, name)};
    }
    for (std::size_t i = 0; i < node.parameters.size(); ++i) {
      const auto& [name, fallback] = node.parameters[i];
      const auto named =
          std::find_if(given.named.begin(), given.named.end(), [&](const auto& one) { return one.first == name; });
      if (i < given.positional.size()) {
        scope->set(name, given.positional[i]);
      } else if (named != given.named.end()) {
        scope->set(name, named->second);
      } else {
        scope->set(name, fallback != nullptr ? evaluate(*fallback, scope) : Value(Undefined{name}));
      }
    }
    Text out;
    static_cast<void>(run(node.body, scope, out));
    return out;
  }

  const std::int64_t unix_s_;
  int depth_ = 0;
};

}  // namespace

struct Template::Impl {
  std::string name;
  Body body;
};

namespace {

Error as_value(const std::string& name, const TemplateError& error) {
  const std::string line = error.line > 0 ? fmt::format("line {}: ", error.line) : "";
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}{}", name, line, error.message)};
}

}  // namespace

Template::Template(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::parse(std::string_view source, const std::string& name) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;
  if (source.size() > kMaxBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must be at most {} bytes (got {})", name, kMaxBytes, source.size())};
  }
  try {
    auto impl = std::make_unique<Impl>();
    impl->name = name;
    impl->body = parse_source(source);
    return Template(std::move(impl));
  } catch (const TemplateError& error) {
    return as_value(name, error);
  }
}

Result<Text> Template::render(const std::function<Variables()>& variables, std::int64_t unix_s) const {
  try {
    begin_work();
    const auto scope = std::make_shared<Scope>();
    scope->names = variables();
    Text out;
    static_cast<void>(Evaluator(unix_s).run(impl_->body, scope, out));
    return out;
  } catch (const TemplateError& error) {
    return as_value(impl_->name, error);
  }
}

}  // namespace windlass::jinja
