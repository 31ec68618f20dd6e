// ICU regular expressions over UTF-8 text.
#include "worker/model/text_pattern.h"

#include <algorithm>

#include <fmt/core.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/utext.h>
#include <unicode/utf8.h>

namespace windlass::worker {
namespace {

// Rewrites what ICU reads differently, outside and inside of brackets.
std::string for_icu(std::string_view pattern) {
  constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    switch (const char next = pattern[++i]) {
      case 's': out += "\\p{White_Space}"; break;
      case 'S': out += "\\P{White_Space}"; break;
      case 'w': out += fmt::format("[{}]", kWord); break;
      case 'W': out += fmt::format("[^{}]", kWord); break;
      case 'h': out += "[0-9A-Fa-f]"; break;
      case 'H': out += "[^0-9A-Fa-f]"; break;
      default: out += '\\'; out += next;
    }
  }
  return out;
}

// ICU's unit of time is some ten thousand backtracking steps. An expression that needs a hundred per byte is made to stall the
// worker ("(a+)+$").
constexpr std::int32_t kLeastSteps = 100;
constexpr std::size_t kBytesOfStep = 100;

std::vector<TextPattern::Range> regex_matches(const icu::RegexPattern& pattern, std::string_view text) {
  std::vector<TextPattern::Range> found;
  UErrorCode status = U_ZERO_ERROR;
  UText utext = UTEXT_INITIALIZER;
  utext_openUTF8(&utext, text.data(), static_cast<std::int64_t>(text.size()), &status);
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern.matcher(status));
  if (U_SUCCESS(status)) {
    matcher->setStackLimit(0,
                           status);  // no stack limit: it would silently cut a text, whose size the body limit already bounds
    matcher->setTimeLimit(kLeastSteps + static_cast<std::int32_t>(text.size() / kBytesOfStep), status);
    matcher->reset(&utext);
    while (U_SUCCESS(status) && matcher->find(status)) {
      const auto begin = static_cast<std::size_t>(matcher->start64(status));
      const auto end = static_cast<std::size_t>(matcher->end64(status));
      // An empty match directly after another match does not count.
      if (begin == end && !found.empty() && found.back().end == begin) continue;
      found.push_back({begin, end});
    }
  }
  utext_close(&utext);
  return found;
}

struct Cut {
  TextPattern::Range range;
  bool match;
};

// Joins each matching cut with the previous one, unless that matches too.
std::vector<Cut> merged(const std::vector<Cut>& cuts, bool forward) {
  std::vector<Cut> out;
  bool after_match = false;
  for (const Cut& cut : cuts) {
    if (cut.match && !after_match && !out.empty()) {
      (forward ? out.back().range.end : out.back().range.begin) = forward ? cut.range.end : cut.range.begin;
    } else {
      out.push_back(cut);
    }
    after_match = cut.match;
  }
  return out;
}

std::vector<Cut> contiguous(const std::vector<Cut>& cuts) {
  std::vector<Cut> out;
  bool after_match = false;
  for (const Cut& cut : cuts) {
    if (cut.match == after_match && !out.empty()) {
      out.back().range.end = cut.range.end;
    } else {
      out.push_back(cut);
    }
    after_match = cut.match;
  }
  return out;
}

}  // namespace

struct TextPattern::Impl {
  std::string literal;
  std::unique_ptr<icu::RegexPattern> regex;  // null: the literal
};

TextPattern::TextPattern(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextPattern::TextPattern(TextPattern&&) noexcept = default;
TextPattern& TextPattern::operator=(TextPattern&&) noexcept = default;
TextPattern::~TextPattern() = default;

Result<TextPattern> TextPattern::make(const PatternSpec& spec) {
  auto impl = std::make_unique<Impl>();
  if (!spec.regex) {
    impl->literal = spec.text;
    return TextPattern(std::move(impl));
  }
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  const auto source = icu::UnicodeString::fromUTF8(for_icu(spec.text));
  constexpr std::uint32_t kFlags = UREGEX_MULTILINE | UREGEX_UNIX_LINES;
  impl->regex.reset(icu::RegexPattern::compile(source, kFlags, where, status));
  if (U_FAILURE(status)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("regular expression '{}': must be valid for ICU (got {})", spec.text, u_errorName(status))};
  }
  return TextPattern(std::move(impl));
}

std::vector<TextPattern::Range> TextPattern::matches(std::string_view text) const {
  if (impl_->regex) return regex_matches(*impl_->regex, text);
  std::vector<Range> found;
  const std::string& literal = impl_->literal;
  if (literal.empty()) return found;
  for (std::size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, at + literal.size()))
    found.push_back({at, at + literal.size()});
  return found;
}

void TextPattern::split(std::string_view text, SplitBehavior behavior, bool invert,
                        std::vector<std::string_view>& pieces) const {
  std::vector<Cut> cuts;
  std::size_t done = 0;
  for (const Range& match : matches(text)) {
    if (match.begin > done) cuts.push_back({{done, match.begin}, invert});
    cuts.push_back({match, !invert});
    done = match.end;
  }
  if (done < text.size()) cuts.push_back({{done, text.size()}, invert});
  switch (behavior) {
    case SplitBehavior::kIsolated: break;
    case SplitBehavior::kRemoved: std::erase_if(cuts, [](const Cut& cut) { return cut.match; }); break;
    case SplitBehavior::kMergedWithPrevious: cuts = merged(cuts, true); break;
    case SplitBehavior::kMergedWithNext:
      std::reverse(cuts.begin(), cuts.end());
      cuts = merged(cuts, false);
      std::reverse(cuts.begin(), cuts.end());
      break;
    case SplitBehavior::kContiguous: cuts = contiguous(cuts); break;
  }
  for (const Cut& cut : cuts) {
    if (cut.range.end > cut.range.begin) pieces.push_back(text.substr(cut.range.begin, cut.range.end - cut.range.begin));
  }
}

}  // namespace windlass::worker
