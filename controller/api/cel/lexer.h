// Splits a CEL expression into tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::api::cel {

enum class TokenKind { kEnd, kIdentifier, kInt, kDouble, kString, kSymbol };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // identifier, symbol, or the string's content with its escapes resolved
  std::int64_t int_value = 0;
  double double_value = 0;
  std::size_t offset = 0;  // in the expression; for error messages
};

// Symbols: ( ) [ ] . , ? : ! - + * / % < <= > >= == != && ||. Strings: '...' and "..." with escapes, r'...' without. The last
// token is kEnd. The error has the offset and the offending text.
[[nodiscard]] Result<std::vector<Token>> lex(std::string_view expression);

}  // namespace windlass::api::cel
