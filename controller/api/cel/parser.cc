// A Pratt parser over the tokens. It checks each function's name and argument count.
#include "controller/api/cel/parser.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "controller/api/cel/lexer.h"

namespace windlass::api::cel {
namespace {

constexpr int kMaxDepth = 100;

// CEL's precedences, weakest first. The ternary is handled separately.
int binding(const Token& token) {
  if (token.kind == TokenKind::kIdentifier) return token.text == "in" ? 3 : 0;
  if (token.kind != TokenKind::kSymbol) return 0;
  static constexpr std::array<std::pair<std::string_view, int>, 13> kPowers = {{{"||", 1},
                                                                                {"&&", 2},
                                                                                {"<", 3},
                                                                                {"<=", 3},
                                                                                {">", 3},
                                                                                {">=", 3},
                                                                                {"==", 3},
                                                                                {"!=", 3},
                                                                                {"+", 4},
                                                                                {"-", 4},
                                                                                {"*", 5},
                                                                                {"/", 5},
                                                                                {"%", 5}}};
  for (const auto& [symbol, power] : kPowers) {
    if (token.text == symbol) return power;
  }
  return 0;
}

struct Function {
  std::string_view name;
  bool method;
  bool global;
  std::size_t arguments;  // includes the receiver
};
constexpr std::array<Function, 6> kFunctions = {{{"size", true, true, 1},
                                                 {"type", false, true, 1},
                                                 {"startsWith", true, false, 2},
                                                 {"endsWith", true, false, 2},
                                                 {"contains", true, false, 2},
                                                 {"matches", true, false, 2}}};
constexpr std::array<std::string_view, 6> kTypes = {"int", "double", "string", "bool", "list", "map"};

class Parser {
 public:
  Parser(std::string_view text, std::vector<Token> tokens) : text_(text), tokens_(std::move(tokens)), variables_{"self"} {}

  Result<std::unique_ptr<Node>> run() {
    WINDLASS_ASSIGN_OR_RETURN(auto root, ternary(0));
    if (next().kind != TokenKind::kEnd) return refuse(next(), "an operator or the end");
    return root;
  }

 private:
  using Child = std::unique_ptr<Node>;

  [[nodiscard]] const Token& next() const { return tokens_[at_]; }
  bool take(std::string_view symbol) {
    if (next().kind != TokenKind::kSymbol || next().text != symbol) return false;
    ++at_;
    return true;
  }
  Result<void> expect(std::string_view symbol) {
    if (take(symbol)) return {};
    return refuse(next(), fmt::format("'{}'", symbol));
  }

  [[nodiscard]] Error refuse(const Token& token, const std::string& allowed) const {
    const std::string found = token.kind == TokenKind::kEnd ? "the end" : fmt::format("'{}'", text_of(token));
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("at character {} of `{}`: must be {} (got {})", token.offset + 1, text_, allowed, found)};
  }
  static std::string text_of(const Token& token) {
    if (token.kind == TokenKind::kInt) return fmt::format("{}", token.int_value);
    if (token.kind == TokenKind::kDouble) return fmt::format("{}", token.double_value);
    return token.text;
  }

  static Child make(NodeKind kind, std::string name, Child first = nullptr, Child second = nullptr) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->name = std::move(name);
    if (first) node->children.push_back(std::move(first));
    if (second) node->children.push_back(std::move(second));
    return node;
  }
  static Child literal(nlohmann::json value) {
    auto node = make(NodeKind::kLiteral, "");
    node->literal = Value(std::move(value));
    return node;
  }

  Result<Child> ternary(int depth) {
    if (depth > kMaxDepth) return refuse(next(), fmt::format("at most {} levels", kMaxDepth));
    WINDLASS_ASSIGN_OR_RETURN(Child condition, binary(0, depth));
    if (!take("?")) return condition;
    WINDLASS_ASSIGN_OR_RETURN(Child yes, binary(0, depth));
    WINDLASS_RETURN_IF_ERROR(expect(":"));
    WINDLASS_ASSIGN_OR_RETURN(Child no, ternary(depth + 1));
    Child node = make(NodeKind::kTernary, "?", std::move(condition), std::move(yes));
    node->children.push_back(std::move(no));
    return node;
  }

  Result<Child> binary(int least, int depth) {
    WINDLASS_ASSIGN_OR_RETURN(Child left, unary(depth));
    for (;;) {
      const Token& token = next();
      const int power = binding(token);
      if (power == 0 || power <= least) return left;
      ++at_;
      WINDLASS_ASSIGN_OR_RETURN(Child right, binary(power, depth));
      left = make(NodeKind::kBinary, token.text, std::move(left), std::move(right));
    }
  }

  Result<Child> unary(int depth) {
    if (depth > kMaxDepth) return refuse(next(), fmt::format("at most {} levels", kMaxDepth));
    for (const std::string_view symbol : {"!", "-"}) {
      if (!take(symbol)) continue;
      WINDLASS_ASSIGN_OR_RETURN(Child operand, unary(depth + 1));
      return make(NodeKind::kUnary, std::string(symbol), std::move(operand));
    }
    return postfix(depth);
  }

  Result<Child> postfix(int depth) {
    WINDLASS_ASSIGN_OR_RETURN(Child node, primary(depth));
    for (;;) {
      if (take(".")) {
        const Token name = next();
        if (name.kind != TokenKind::kIdentifier) return refuse(name, "a field's or function's name");
        ++at_;
        if (take("(")) {
          WINDLASS_ASSIGN_OR_RETURN(node, method(std::move(node), name, depth));
        } else {
          node = make(NodeKind::kSelect, name.text, std::move(node));
        }
      } else if (take("[")) {
        WINDLASS_ASSIGN_OR_RETURN(Child index, ternary(depth + 1));
        WINDLASS_RETURN_IF_ERROR(expect("]"));
        node = make(NodeKind::kIndex, "[]", std::move(node), std::move(index));
      } else {
        return node;
      }
    }
  }

  Result<Child> primary(int depth) {
    const Token token = next();
    ++at_;
    switch (token.kind) {
      case TokenKind::kInt: return literal(token.int_value);
      case TokenKind::kDouble: return literal(token.double_value);
      case TokenKind::kString: return literal(token.text);
      case TokenKind::kEnd: --at_; return refuse(token, "a value");
      case TokenKind::kIdentifier: return identifier(token, depth);
      case TokenKind::kSymbol: break;
    }
    if (token.text == "(") {
      WINDLASS_ASSIGN_OR_RETURN(Child inner, ternary(depth + 1));
      WINDLASS_RETURN_IF_ERROR(expect(")"));
      return inner;
    }
    if (token.text == "[") {
      Child list = make(NodeKind::kList, "[]");
      WINDLASS_ASSIGN_OR_RETURN(list->children, arguments("]", depth));
      return list;
    }
    return refuse(token, "a value");
  }

  Result<Child> identifier(const Token& token, int depth) {
    if (token.text == "true" || token.text == "false") return literal(token.text == "true");
    if (token.text == "null") return literal(nullptr);
    if (take("(")) return call(token, depth);
    if (variables_.count(token.text) != 0) return make(NodeKind::kVariable, token.text);
    if (std::find(kTypes.begin(), kTypes.end(), token.text) != kTypes.end()) {
      Child type = make(NodeKind::kLiteral, token.text);
      type->literal = Value::of_type(token.text);
      return type;
    }
    return refuse(token, "self, a macro's variable or a type's name");
  }

  Result<std::vector<Child>> arguments(std::string_view closing, int depth) {
    std::vector<Child> list;
    if (take(closing)) return list;
    for (;;) {
      WINDLASS_ASSIGN_OR_RETURN(Child item, ternary(depth + 1));
      list.push_back(std::move(item));
      if (take(closing)) return list;
      WINDLASS_RETURN_IF_ERROR(expect(","));
    }
  }

  Result<const Function*> known(const Token& name, bool as_method) const {
    for (const Function& function : kFunctions) {
      if (function.name == name.text && (as_method ? function.method : function.global)) return &function;
    }
    return refuse(name,
                  "a function of the supported part of CEL:  has, size, type, startsWith, endsWith, contains, "
                  "matches, all, exists, exists_one");
  }

  Result<Child> call(const Token& name, int depth) {
    const Function* global = nullptr;
    if (name.text != "has") {
      WINDLASS_ASSIGN_OR_RETURN(global, known(name, false));
    }
    WINDLASS_ASSIGN_OR_RETURN(std::vector<Child> list, arguments(")", depth));
    if (name.text == "has") {
      if (list.size() != 1 || list[0]->kind != NodeKind::kSelect) return refuse(name, "has(a.field)");
      list[0]->kind = NodeKind::kHas;
      return std::move(list[0]);
    }
    return function(name, *global, std::move(list));
  }

  Result<Child> method(Child receiver, const Token& name, int depth) {
    if (name.text == "all" || name.text == "exists" || name.text == "exists_one")
      return macro(std::move(receiver), name, depth);
    WINDLASS_ASSIGN_OR_RETURN(const Function* method, known(name, true));
    WINDLASS_ASSIGN_OR_RETURN(std::vector<Child> list, arguments(")", depth));
    list.insert(list.begin(), std::move(receiver));
    return function(name, *method, std::move(list));
  }

  Result<Child> macro(Child receiver, const Token& name, int depth) {
    const Token variable = next();
    if (variable.kind != TokenKind::kIdentifier || variables_.count(variable.text) != 0)
      return refuse(variable, "a new variable");
    ++at_;
    WINDLASS_RETURN_IF_ERROR(expect(","));
    variables_.insert(variable.text);
    WINDLASS_ASSIGN_OR_RETURN(Child body, ternary(depth + 1));
    variables_.erase(variable.text);
    WINDLASS_RETURN_IF_ERROR(expect(")"));
    Child node = make(NodeKind::kMacro, name.text, std::move(receiver), std::move(body));
    node->variable = variable.text;
    return node;
  }

  Result<Child> function(const Token& name, const Function& known, std::vector<Child> list) {
    if (list.size() != known.arguments) return refuse(name, fmt::format("{} with {} arguments", name.text, known.arguments));
    Child node = make(NodeKind::kCall, name.text);
    node->children = std::move(list);
    if (name.text == "matches") {
      const Node& pattern = *node->children[1];
      if (pattern.kind != NodeKind::kLiteral || !pattern.literal.json().is_string()) return refuse(name, "matches('literal')");
      try {
        node->pattern.emplace(pattern.literal.json().get<std::string>());
      } catch (const std::regex_error&) {
        return refuse(name, "a pattern that compiles");
      }
    }
    return node;
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::set<std::string> variables_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::unique_ptr<Node>> parse(std::string_view expression) {
  WINDLASS_ASSIGN_OR_RETURN(std::vector<Token> tokens, lex(expression));
  return Parser(expression, std::move(tokens)).run();
}

}  // namespace windlass::api::cel
