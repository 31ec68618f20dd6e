// Splits a template's source into tokens. White space is handled as in Hugging Face's environment: the newline after a block is
// dropped (trim_blocks), and so is white space before a block at the start of a line (lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::jinja {

enum class TokenKind {
  kData,  // text between the tags
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // a string's value; an operator or name as written
  std::int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// The last token is kEnd. Throws TemplateError.
[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

}  // namespace windlass::jinja
