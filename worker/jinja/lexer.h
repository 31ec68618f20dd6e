// From a template's source to tokens, with white space as Hugging Face's environment treats it: the line's end after a block is
// dropped (trim_blocks), and so is the white space before a block that begins a line (lstrip_blocks).
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
  std::string text;  // a string's value; an operator or a name as it stands there
  std::int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// The last token is kEnd. Throws TemplateError.
[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

}  // namespace windlass::jinja
