// Splits a CEL expression into tokens in one pass, with at most two characters of look-ahead.
#include "controller/api/cel/lexer.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

namespace windlass::api::cel {
namespace {

bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Result<std::vector<Token>> run() {
    std::vector<Token> tokens;
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
      Token token;
      token.offset = at_;
      if (at_ == text_.size()) {
        tokens.push_back(token);
        return tokens;
      }
      const char c = text_[at_];
      const bool raw = c == 'r' && (peek(1) == '\'' || peek(1) == '"');
      if (raw || c == '\'' || c == '"') {
        if (raw) ++at_;
        WINDLASS_ASSIGN_OR_RETURN(token.text, string_literal(raw));
        token.kind = TokenKind::kString;
      } else if (letter(c)) {
        token.kind = TokenKind::kIdentifier;
        while (letter(peek(0)) || digit(peek(0))) token.text += text_[at_++];
      } else if (digit(c)) {
        WINDLASS_RETURN_IF_ERROR(number(&token));
      } else {
        WINDLASS_ASSIGN_OR_RETURN(token.text, symbol());
        token.kind = TokenKind::kSymbol;
      }
      tokens.push_back(std::move(token));
    }
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  [[nodiscard]] Error refuse(std::size_t offset, const std::string& what) const {
    return Error{ErrorCode::kInvalidArgument, fmt::format("at character {} of `{}`: {}", offset + 1, text_, what)};
  }

  Result<std::string> string_literal(bool raw) {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    std::string content;
    while (peek(0) != quote) {
      if (at_ >= text_.size()) return refuse(begin, "the string must end with its quote");
      char c = text_[at_++];
      if (c == '\\' && !raw) {
        const char escape = peek(0);
        ++at_;
        switch (escape) {
          case 'n': c = '\n'; break;
          case 't': c = '\t'; break;
          case 'r': c = '\r'; break;
          case '\\':
          case '\'':
          case '"': c = escape; break;
          default: return refuse(at_ - 2, "this escape is not supported");
        }
      }
      content += c;
    }
    ++at_;
    return content;
  }

  Result<void> number(Token* token) {
    const std::size_t begin = at_;
    while (digit(peek(0))) ++at_;
    const bool decimals = peek(0) == '.' && digit(peek(1));
    if (decimals) {
      ++at_;
      while (digit(peek(0))) ++at_;
    }
    if (letter(peek(0))) return refuse(begin, "this form of number is not supported");
    const std::string digits(text_.substr(begin, at_ - begin));
    if (decimals) {
      token->kind = TokenKind::kDouble;
      token->double_value = std::strtod(digits.c_str(), nullptr);
      return {};
    }
    errno = 0;
    token->kind = TokenKind::kInt;
    token->int_value = std::strtoll(digits.c_str(), nullptr, 10);
    if (errno != 0) return refuse(begin, "the integer must fit in 64 bits");
    return {};
  }

  Result<std::string> symbol() {
    for (const std::string_view two : {"<=", ">=", "==", "!=", "&&", "||"}) {
      if (text_.substr(at_).starts_with(two)) {
        at_ += 2;
        return std::string(two);
      }
    }
    const char c = text_[at_];
    if (std::string_view("()[].,?:!-+*/%<>").find(c) == std::string_view::npos) {
      return refuse(at_, fmt::format("must be a symbol of the supported part of CEL (got '{}')", c));
    }
    ++at_;
    return std::string(1, c);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::vector<Token>> lex(std::string_view expression) { return Lexer(expression).run(); }

}  // namespace windlass::api::cel
