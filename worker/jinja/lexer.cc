// Follows Jinja's own lexer, in one pass: text between tags, and the tokens inside them.
#include "worker/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/core.h>
#include <unicode/utf8.h>

#include "worker/jinja/value.h"

namespace windlass::jinja {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";
// Longer ones first.
constexpr std::array<std::string_view, 27> kOperators = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                                         "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "!"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<signed char>(c) < 0;
}

// Converts all line ends to "\n" and drops the last one.
std::string with_plain_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

void append_code(std::string& out, std::uint32_t code) {
  char bytes[4];
  std::int32_t length = 0;
  UBool failed = 0;
  U8_APPEND(bytes, length, 4, static_cast<UChar32>(code), failed);
  if (failed != 0) throw TemplateError{fmt::format("a string: the escape {:#x} is not a character", code)};
  out.append(bytes, static_cast<std::size_t>(length));
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError{message, line_}; }
  [[nodiscard]] bool here(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }

  Token& add(TokenKind kind, std::string text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    return token;
  }

  void skip(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  // Skips white space.
  void skip_space() {
    const std::size_t end = std::min(source_.find_first_not_of(kSpaces, at_), source_.size());
    skip(end - at_);
  }

  // Reads text up to the next tag, and that tag.
  void read_data() {
    std::size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == source_.size()) tag = source_.size();
      if (tag == source_.size() || source_[tag + 1] == '%' || source_[tag + 1] == '{' || source_[tag + 1] == '#') break;
      ++tag;
    }
    std::string text = source_.substr(at_, tag - at_);
    const bool last = tag == source_.size();
    const char kind = last ? '\0' : source_[tag + 1];
    const char sign =
        tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : '\0';
    std::string kept = text;
    if (!last && sign == '-') {
      kept.resize(kept.find_last_not_of(kSpaces) + 1);  // npos + 1 is 0
    } else if (!last && sign != '+' && kind != '{') {
      const std::size_t line = kept.rfind('\n') + 1;  // 0: none
      const bool blank = line < kept.size() && kept.find_first_not_of(kSpaces, line) == std::string::npos;
      if (blank && (line > 0 || line_starting_)) kept.resize(line);
    }
    if (!kept.empty()) add(TokenKind::kData, kept);
    skip(text.size());
    if (last) return;
    skip(sign == '\0' ? 2 : 3);
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, "");
    while (!read_end(kind == '%')) read_token();
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment is not closed: '#}' is missing");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    skip(end + 2 - at_);
    after_block(sign == '-' ? '-' : sign == '+' ? '+' : '\0');
  }

  // Drops what trim_blocks or a minus sign remove after a block or comment.
  void after_block(char sign) {
    const std::size_t from = at_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && here("\n")) {
      skip(1);
    }
    line_starting_ = at_ > from && source_[at_ - 1] == '\n';
  }

  // Reads a whole raw block as text, if one begins here.
  bool read_raw() {
    const std::size_t name = source_.find_first_not_of(kSpaces, at_);
    if (name == std::string::npos || source_.compare(name, 3, "raw") != 0) return false;
    const std::size_t end = source_.find_first_not_of(kSpaces, name + 3);
    if (end == std::string::npos) return false;
    const bool strips = source_[end] == '-';
    if (source_.compare(end + (strips ? 1 : 0), 2, "%}") != 0) return false;
    skip(end + (strips ? 3 : 2) - at_);
    if (strips) skip_space();
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      std::size_t word = tag + 2;
      const char sign = word < source_.size() ? source_[word] : '\0';
      if (sign == '-' || sign == '+') ++word;
      word = std::min(source_.find_first_not_of(kSpaces, word), source_.size());
      if (source_.compare(word, 6, "endraw") != 0) continue;
      std::size_t close = std::min(source_.find_first_not_of(kSpaces, word + 6), source_.size());
      const char closing = close < source_.size() && (source_[close] == '-' || source_[close] == '+') ? source_[close] : '\0';
      if (closing != '\0') ++close;
      if (source_.compare(close, 2, "%}") != 0) continue;
      std::string text = source_.substr(at_, tag - at_);
      if (sign == '-') {
        text.resize(text.find_last_not_of(kSpaces) + 1);
      } else if (sign != '+') {
        const std::size_t line = text.rfind('\n') + 1;
        if (line > 0 && text.find_first_not_of(kSpaces, line) == std::string::npos) text.resize(line);
      }
      if (!text.empty()) add(TokenKind::kData, text);
      skip(close + 2 - at_);
      after_block(closing);
      return true;
    }
    fail("a raw block is not closed: '{% endraw %}' is missing");
  }

  // Reads the end of a tag, if it is here.
  bool read_end(bool block) {
    skip_space();
    if (at_ >= source_.size()) fail(fmt::format("a tag is not closed: '{}' is missing", block ? "%}" : "}}"));
    const std::string_view end = block ? "%}" : "}}";
    const char sign = source_[at_] == '-' || (block && source_[at_] == '+') ? source_[at_] : '\0';
    if (!std::string_view(source_).substr(at_ + (sign == '\0' ? 0 : 1)).starts_with(end)) return false;
    if (!open_.empty()) {
      if (sign != '\0' || !block) return false;  // "}}" may close two dicts
      fail(fmt::format("expected '{}' (got '{}')", open_.back(), end));
    }
    add(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, "");
    skip(end.size() + (sign == '\0' ? 0 : 1));
    if (block) {
      after_block(sign);
    } else {
      if (sign == '-') skip_space();
      line_starting_ = source_[at_ - 1] == '\n';
    }
    return true;
  }

  void read_token() {
    const char c = source_[at_];
    if (begins_name(c)) return read_name();
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string();
    for (const std::string_view text : kOperators) {
      if (!here(text)) continue;
      if (text == "!") break;
      add(TokenKind::kOperator, std::string(text));
      if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open_.empty() || open_.back() != c) {
          fail(fmt::format("expected {} (got '{}')", open_.empty() ? "no closing bracket" : std::string(1, open_.back()), c));
        }
        open_.pop_back();
      }
      return skip(text.size());
    }
    fail(fmt::format("expected an expression (got '{}')", source_.substr(at_, character_starts(source_.substr(at_, 4))[1])));
  }

  void read_name() {
    std::size_t end = at_;
    while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenKind::kName, source_.substr(at_, end - at_));
    skip(end - at_);
  }

  void read_number() {
    std::string digits;
    std::size_t end = at_;
    const auto take = [&] {
      while (end < source_.size() &&
             (is_digit(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() && is_digit(source_[end + 1])))) {
        if (source_[end] != '_') digits += source_[end];
        ++end;
      }
    };
    take();
    bool whole = true;
    // "1.x" is an attribute, "1.5" a number; an exponent needs digits.
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      whole = false;
      digits += source_[end++];
      take();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t after = end + 1;
      if (after < source_.size() && (source_[after] == '-' || source_[after] == '+')) ++after;
      if (after < source_.size() && is_digit(source_[after])) {
        whole = false;
        digits += source_.substr(end, after - end);
        end = after;
        take();
      }
    }
    Token& token = add(whole ? TokenKind::kInteger : TokenKind::kFloat, digits);
    const char* last = digits.data() + digits.size();
    const auto result =
        whole ? std::from_chars(digits.data(), last, token.integer) : std::from_chars(digits.data(), last, token.number);
    if (result.ec != std::errc() || result.ptr != last) fail(fmt::format("number: must fit 64 bits (got {})", digits));
    skip(end - at_);
  }

  // Handles escapes like Python; unknown ones stay as written.
  void read_string() {
    const char quote = source_[at_];
    std::string text;
    std::size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 == source_.size()) {
        text += source_[i];
        continue;
      }
      const char c = source_[++i];
      static constexpr std::string_view kNames = "ntrabfv\\'\"";
      static constexpr std::string_view kMeanings = "\n\t\r\a\b\f\v\\'\"";
      if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
        text += kMeanings[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        i += read_escape(text, i + 1, digits, 16);
      } else if (c >= '0' && c <= '7') {
        std::size_t digits = 1;
        while (digits < 3 && i + digits < source_.size() && source_[i + digits] >= '0' && source_[i + digits] <= '7') ++digits;
        i += read_escape(text, i, digits, 8) - 1;
      } else if (c != '\n') {  // a backslash before a newline removes both
        text += '\\';
        text += c;
      }
    }
    if (i >= source_.size()) fail(fmt::format("a string is not closed: {} is missing", quote));
    add(TokenKind::kString, text);
    skip(i + 1 - at_);
  }

  std::size_t read_escape(std::string& text, std::size_t from, std::size_t digits, int base) {
    std::uint32_t code = 0;
    const char* begin = source_.data() + from;
    const char* end = begin + std::min(digits, source_.size() - std::min(from, source_.size()));
    if (const auto read = std::from_chars(begin, end, code, base); read.ptr != begin + digits)
      fail(fmt::format("a string: '\\{}' must have {} digits", source_.substr(from - 1, digits + 1), digits));
    append_code(text, code);
    return digits;
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the next text begins a line or the template
  std::string open_;           // closing brackets expected, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace windlass::jinja
