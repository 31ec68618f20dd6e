// Parses a template's tokens into a syntax tree (syntax.h) by recursive descent. Expressions follow the order of Jinja's
// grammar: conditional, or, and, not, comparison, sum, ~, product, power, unary, then the suffixes of a primary: attributes,
// items, calls, filters and tests.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "worker/jinja/builtins.h"
#include "worker/jinja/lexer.h"
#include "worker/jinja/syntax.h"

namespace windlass::jinja {
namespace {

constexpr int kMaxHeight = 400;
constexpr int kMaxNesting = 200;  // of expressions and blocks; deeper nesting would overflow the stack

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() {
    Body body = statements({});
    return body;
  }

 private:
  // Counts the nesting depth.
  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxNesting) parser_.fail(fmt::format("nesting: must be at most {} levels deep", kMaxNesting));
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Parser& parser_;
  };

  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[nodiscard]] bool is(TokenKind kind, std::string_view text) const { return now().kind == kind && now().text == text; }
  [[nodiscard]] bool is_name(std::string_view text) const { return is(TokenKind::kName, text); }
  [[nodiscard]] bool is_operator(std::string_view text) const { return is(TokenKind::kOperator, text); }

  [[nodiscard]] std::string found() const {
    switch (now().kind) {
      case TokenKind::kData: return "text";
      case TokenKind::kBlockBegin: return "'{%'";
      case TokenKind::kBlockEnd: return "'%}'";
      case TokenKind::kPrintBegin: return "'{{'";
      case TokenKind::kPrintEnd: return "'}}'";
      case TokenKind::kEnd: return "the template's end";
      default: return fmt::format("'{}'", now().text);
    }
  }
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError{message, now().line}; }
  [[noreturn]] void fail_expected(std::string_view what) const { fail(fmt::format("expected {} (got {})", what, found())); }

  bool skip_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expected(fmt::format("'{}'", text));
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail_expected(fmt::format("'{}'", text));
  }
  std::string expect_any_name() {
    if (now().kind != TokenKind::kName) fail_expected("a name");
    return take().text;
  }
  void expect_block_end() {
    if (now().kind != TokenKind::kBlockEnd) fail_expected("'%}'");
    take();
  }

  // Trees are walked recursively, so their height is limited.
  void measure(Expression& parent, const ExpressionPtr& child) const {
    if (child == nullptr) return;
    parent.height = std::max(parent.height, child->height + 1);
    if (parent.height > kMaxHeight) fail(fmt::format("an expression: must be at most {} levels deep", kMaxHeight));
  }
  void adopt(Expression& parent, ExpressionPtr child) const {
    measure(parent, child);
    parent.parts.push_back(std::move(child));
  }

  ExpressionPtr make(ExpressionKind kind, std::string name = {}) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = now().line;
    expression->name = std::move(name);
    return expression;
  }
  template <class... Parts>
  ExpressionPtr make(ExpressionKind kind, std::string name, ExpressionPtr first, Parts... others) const {
    ExpressionPtr expression = make(kind, std::move(name));
    expression->line = first != nullptr ? first->line : now().line;
    adopt(*expression, std::move(first));
    (adopt(*expression, std::move(others)), ...);
    return expression;
  }
  ExpressionPtr constant(Value value) const {
    ExpressionPtr expression = make(ExpressionKind::kConstant);
    expression->constant = std::move(value);
    return expression;
  }

  // Statements up to one of these block names, which is not consumed (but its "{%" is).
  Body statements(const std::vector<std::string_view>& ends) {
    const Deeper deeper(*this);
    Body body;
    while (true) {
      if (now().kind == TokenKind::kEnd) {
        if (ends.empty()) return body;
        fail_expected(fmt::format("'{{% {} %}}'", ends.back()));
      }
      auto statement = std::make_unique<Statement>();
      statement->line = now().line;
      if (now().kind == TokenKind::kData) {
        statement->text = Text::of_template(take().text);
      } else if (now().kind == TokenKind::kPrintBegin) {
        take();
        statement->kind = StatementKind::kPrint;
        statement->value = tuple(true);
        if (now().kind != TokenKind::kPrintEnd) fail_expected("'}}'");
        take();
      } else {
        take();
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return is_name(end); })) return body;
        block(*statement);
      }
      body.push_back(std::move(statement));
    }
  }

  // The statements up to the block `end`, which is consumed.
  Body statements_until(std::string_view end) {
    expect_block_end();
    Body body = statements({end});
    take();
    expect_block_end();
    return body;
  }

  void block(Statement& statement) {
    if (skip_name("if")) return if_block(statement);
    if (skip_name("for")) return for_block(statement);
    if (skip_name("set")) return set_block(statement);
    if (skip_name("macro")) return macro_block(statement);
    if (skip_name("filter")) {
      statement.kind = StatementKind::kFilter;
      statement.value = filters(nullptr, true);
      statement.body = statements_until("endfilter");
    } else if (skip_name("with")) {
      statement.kind = StatementKind::kWith;
      while (now().kind != TokenKind::kBlockEnd) {
        if (!statement.assignments.empty()) expect_operator(",");
        std::string name = expect_any_name();
        expect_operator("=");
        statement.assignments.emplace_back(std::move(name), expression());
      }
      statement.body = statements_until("endwith");
    } else if (skip_name("generation")) {  // Hugging Face's tag around a model's output
      statement.kind = StatementKind::kGroup;
      statement.body = statements_until("endgeneration");
    } else if (is_name("break") || is_name("continue")) {
      if (loops_ == 0) fail(fmt::format("{} must be inside a loop", found()));
      statement.kind = take().text == "break" ? StatementKind::kBreak : StatementKind::kContinue;
      expect_block_end();
    } else {
      fail_expected("if, for, set, macro, filter, with, generation, break, continue or raw");
    }
  }

  void if_block(Statement& statement) {
    statement.kind = StatementKind::kIf;
    while (true) {
      ExpressionPtr condition = tuple(false);
      expect_block_end();
      statement.branches.emplace_back(std::move(condition), statements({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        expect_block_end();
        statement.else_body = statements({"endif"});
      }
      expect_name("endif");
      return expect_block_end();
    }
  }

  void for_block(Statement& statement) {
    statement.kind = StatementKind::kFor;
    statement.target = target(false);
    expect_name("in");
    statement.value = tuple(false);
    if (skip_name("if")) statement.condition = expression();
    if (is_name("recursive")) fail("'recursive' loops are not supported");
    expect_block_end();
    ++loops_;
    statement.body = statements({"else", "endfor"});
    --loops_;
    if (skip_name("else")) {
      expect_block_end();
      statement.else_body = statements({"endfor"});
    }
    expect_name("endfor");
    expect_block_end();
  }

  void set_block(Statement& statement) {
    statement.kind = StatementKind::kSet;
    statement.target = target(true);
    if (skip_operator("=")) {
      statement.value = tuple(true);
      return expect_block_end();
    }
    statement.from_body = true;
    if (is_operator("|")) statement.value = filters(nullptr, false);
    statement.body = statements_until("endset");
  }

  void macro_block(Statement& statement) {
    statement.kind = StatementKind::kMacro;
    MacroNode& macro = statement.macro;
    macro.name = expect_any_name();
    expect_operator("(");
    while (!is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      std::string name = expect_any_name();
      ExpressionPtr fallback;
      if (skip_operator("=")) fallback = expression();
      if (fallback == nullptr && !macro.parameters.empty() && macro.parameters.back().second != nullptr)
        fail(fmt::format("macro {}: parameter '{}' without a default follows one with a default", macro.name, name));
      macro.parameters.emplace_back(std::move(name), std::move(fallback));
    }
    take();
    const int loops = std::exchange(loops_, 0);
    macro.body = statements_until("endmacro");
    loops_ = loops;
  }

  // Assigned names: "a", "a, b", "(a, b)" or, for a namespace, "a.b".
  Target target(bool with_field) {
    Target target;
    const bool brackets = skip_operator("(");
    do {
      if (!target.names.empty() && (is_operator(")") || is_name("in") || is_operator("="))) break;  // "a," is a tuple
      target.names.push_back(expect_any_name());
      static constexpr std::array<std::string_view, 6> kTaken = {"true", "false", "none", "True", "False", "None"};
      if (std::find(kTaken.begin(), kTaken.end(), target.names.back()) != kTaken.end())
        fail(fmt::format("expected a name that can be assigned to (got '{}')", target.names.back()));
      if (with_field && target.names.size() == 1 && skip_operator(".")) {
        target.field = expect_any_name();
        if (target.field.starts_with('_')) fail(fmt::format("field: must not begin with '_' (got '{}')", target.field));
        return target;
      }
      target.several = target.several || is_operator(",");
    } while (skip_operator(","));
    if (brackets) expect_operator(")");
    return target;
  }

  // One expression, or several with commas, as a tuple.
  ExpressionPtr tuple(bool with_condition) {
    ExpressionPtr first = with_condition ? expression() : or_expression();
    if (!is_operator(",")) return first;
    ExpressionPtr all = make(ExpressionKind::kTuple, "", std::move(first));
    while (skip_operator(",")) {
      const bool ends = now().kind == TokenKind::kBlockEnd || now().kind == TokenKind::kPrintEnd || is_operator(")");
      if (ends) break;
      adopt(*all, with_condition ? expression() : or_expression());
    }
    return all;
  }

  ExpressionPtr expression() {
    const Deeper deeper(*this);
    ExpressionPtr value = or_expression();
    while (skip_name("if")) {
      ExpressionPtr condition = or_expression();
      ExpressionPtr otherwise;
      if (skip_name("else")) otherwise = expression();
      value = make(ExpressionKind::kConditional, "", std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }

  ExpressionPtr or_expression() {
    ExpressionPtr left = and_expression();
    while (skip_name("or")) left = make(ExpressionKind::kOr, "", std::move(left), and_expression());
    return left;
  }

  ExpressionPtr and_expression() {
    ExpressionPtr left = not_expression();
    while (skip_name("and")) left = make(ExpressionKind::kAnd, "", std::move(left), not_expression());
    return left;
  }

  ExpressionPtr not_expression() {
    const Deeper deeper(*this);
    if (skip_name("not")) return make(ExpressionKind::kNot, "", not_expression());
    return comparison();
  }

  ExpressionPtr comparison() {
    static constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};
    ExpressionPtr all = sum();
    std::vector<std::string> operators;
    std::vector<ExpressionPtr> others;
    while (true) {
      if (now().kind == TokenKind::kOperator &&
          std::find(kComparisons.begin(), kComparisons.end(), now().text) != kComparisons.end()) {
        operators.push_back(take().text);
      } else if (skip_name("in")) {
        operators.emplace_back("in");
      } else if (is_name("not") && next().kind == TokenKind::kName && next().text == "in") {
        take();
        take();
        operators.emplace_back("not in");
      } else {
        break;
      }
      others.push_back(sum());
    }
    if (operators.empty()) return all;
    all = make(ExpressionKind::kCompare, "", std::move(all));
    all->operators = std::move(operators);
    for (ExpressionPtr& other : others) adopt(*all, std::move(other));
    return all;
  }

  template <class Operand>
  ExpressionPtr binary(std::initializer_list<std::string_view> operators, Operand operand) {
    ExpressionPtr left = operand();
    while (std::any_of(operators.begin(), operators.end(), [&](std::string_view text) { return is_operator(text); })) {
      std::string name = take().text;
      left = make(ExpressionKind::kBinary, std::move(name), std::move(left), operand());
    }
    return left;
  }

  ExpressionPtr sum() {
    return binary({"+", "-"}, [this] { return concatenation(); });
  }

  ExpressionPtr concatenation() {
    ExpressionPtr all = product();
    if (!is_operator("~")) return all;
    all = make(ExpressionKind::kConcatenate, "", std::move(all));
    while (skip_operator("~")) adopt(*all, product());
    return all;
  }

  ExpressionPtr product() {
    return binary({"*", "/", "//", "%"}, [this] { return binary({"**"}, [this] { return unary(true); }); });
  }

  ExpressionPtr unary(bool with_filters) {
    const Deeper deeper(*this);
    ExpressionPtr value;
    if (is_operator("-") || is_operator("+")) {
      std::string name = take().text;
      value = make(ExpressionKind::kUnary, std::move(name), unary(false));
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    return with_filters ? filters(std::move(value), false) : std::move(value);
  }

  ExpressionPtr primary() {
    switch (now().kind) {
      case TokenKind::kString: {
        std::string text = take().text;
        while (now().kind == TokenKind::kString) text += take().text;
        return constant(Text::of_template(text));
      }
      case TokenKind::kInteger: return constant(take().integer);
      case TokenKind::kFloat: return constant(take().number);
      case TokenKind::kName: {
        if (is_name("true") || is_name("True")) return take(), constant(true);
        if (is_name("false") || is_name("False")) return take(), constant(false);
        if (is_name("none") || is_name("None")) return take(), constant(None{});
        ExpressionPtr name = make(ExpressionKind::kName, now().text);
        take();
        return name;
      }
      default: break;
    }
    if (skip_operator("(")) {
      if (is_operator(")")) return take(), make(ExpressionKind::kTuple);
      ExpressionPtr inner = tuple(true);
      expect_operator(")");
      return inner;
    }
    if (skip_operator("[")) {
      ExpressionPtr list = make(ExpressionKind::kList);
      comma_separated("]", [&] { adopt(*list, expression()); });
      return list;
    }
    if (skip_operator("{")) {
      ExpressionPtr dict = make(ExpressionKind::kDict);
      comma_separated("}", [&] {
        adopt(*dict, expression());
        expect_operator(":");
        adopt(*dict, expression());
      });
      return dict;
    }
    fail_expected("an expression");
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    while (true) {
      if (skip_operator(".")) {
        if (now().kind == TokenKind::kInteger) {
          ExpressionPtr index = constant(take().integer);
          value = make(ExpressionKind::kItem, "", std::move(value), std::move(index));
        } else {
          std::string name = expect_any_name();
          value = make(ExpressionKind::kAttribute, std::move(name), std::move(value));
        }
      } else if (skip_operator("[")) {
        value = subscript(std::move(value));
      } else if (is_operator("(")) {
        value = make(ExpressionKind::kCall, "", std::move(value));
        arguments(*value);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    std::array<ExpressionPtr, 3> bounds;  // of a slice
    std::size_t colons = 0;
    if (!is_operator(":")) bounds[0] = expression();
    while (colons < 2 && skip_operator(":")) {
      ++colons;
      if (!is_operator(":") && !is_operator("]")) bounds[colons] = expression();
    }
    expect_operator("]");
    if (colons == 0) return make(ExpressionKind::kItem, "", std::move(value), std::move(bounds[0]));
    return make(ExpressionKind::kSlice, "", std::move(value), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2]));
  }

  // Items separated by commas, with an optional trailing comma, up to the closing bracket.
  template <class Item>
  void comma_separated(std::string_view end, Item item) {
    bool first = true;
    while (!skip_operator(end)) {
      if (!std::exchange(first, false)) {
        expect_operator(",");
        if (skip_operator(end)) return;
      }
      item();
    }
  }

  // Parses "(a, b, c=d)" into `call`.
  void arguments(Expression& call) {
    expect_operator("(");
    comma_separated(")", [&] {
      if (is_operator("*") || is_operator("**")) fail(fmt::format("unpacked arguments are not supported (got {})", found()));
      if (now().kind == TokenKind::kName && next().kind == TokenKind::kOperator && next().text == "=") {
        std::string name = take().text;
        take();
        call.named.emplace_back(std::move(name), expression());
        measure(call, call.named.back().second);
      } else {
        if (!call.named.empty()) fail_expected("an argument with a name, as those before it");
        adopt(call, expression());
      }
    });
  }

  // Filters and tests after a value. `begun`: the first filter comes without its "|". Without a value they belong to a block,
  // and only filters are allowed.
  ExpressionPtr filters(ExpressionPtr value, bool begun) {
    const bool of_block = value == nullptr;
    while (true) {
      if (begun || skip_operator("|")) {
        begun = false;
        std::string name = expect_any_name();
        if (!has_filter(name)) fail(fmt::format("filter: must be a known one (got '{}')", name));
        value = make(ExpressionKind::kFilter, std::move(name), std::move(value));
        value->line = now().line;
        if (is_operator("(")) arguments(*value);
      } else if (!of_block && skip_name("is")) {
        value = test(std::move(value));
      } else if (!of_block && is_operator("(")) {
        value = make(ExpressionKind::kCall, "", std::move(value));
        arguments(*value);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr value) {
    const bool negated = skip_name("not");
    std::string name = expect_any_name();
    if (!has_test(name)) fail(fmt::format("test: must be a known one (got '{}')", name));
    value = make(ExpressionKind::kTest, std::move(name), std::move(value));
    const bool literal = now().kind == TokenKind::kString || now().kind == TokenKind::kInteger ||
                         now().kind == TokenKind::kFloat || is_operator("[") || is_operator("{");
    const bool word = now().kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and") &&
                      !is_name("if") && !is_name("is") && !is_name("in") && !is_name("not");
    if (is_operator("(")) {
      arguments(*value);
      if (!value->named.empty()) fail("a test takes no arguments with names");
    } else if (literal || word) {
      adopt(*value, postfix(primary()));
    }
    return negated ? make(ExpressionKind::kNot, "", std::move(value)) : std::move(value);
  }

  const std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse_source(std::string_view source) { return Parser(tokens_of(source)).run(); }

}  // namespace windlass::jinja
