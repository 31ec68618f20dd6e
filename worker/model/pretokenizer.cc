// ICU regular expressions over UTF-8 text. Offsets are those of the bytes, so bytes that are no UTF-8 survive in their piece.
#include "worker/model/pretokenizer.h"

#include <fmt/core.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/utext.h>

namespace windlass::worker {
namespace {

// ICU's \s leaves out U+000B and U+0085; Oniguruma, which made the reference ids, has all of White_Space.
std::string with_unicode_spaces(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char next = pattern[++i];
    if (next == 's') {
      out += "\\p{White_Space}";
    } else if (next == 'S') {
      out += "\\P{White_Space}";
    } else {
      out += '\\';
      out += next;
    }
  }
  return out;
}

// What ICU counts time in is some ten thousand places to which it may go back. An expression that needs a hundred for each byte
// is one made to hold the worker up ("(a+)+$"): from where it has used up its time, the text is one piece.
constexpr std::int32_t kLeastSteps = 100;
constexpr std::size_t kBytesOfStep = 100;

void split_piece(const icu::RegexPattern& pattern, std::string_view text, std::vector<std::string_view>& pieces) {
  UErrorCode status = U_ZERO_ERROR;
  UText utext = UTEXT_INITIALIZER;
  utext_openUTF8(&utext, text.data(), static_cast<std::int64_t>(text.size()), &status);
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern.matcher(status));
  std::size_t done = 0;
  if (U_SUCCESS(status)) {
    matcher->setStackLimit(0, status);  // the body limit bounds the text; a stack limit would cut it wrongly without a word
    matcher->setTimeLimit(kLeastSteps + static_cast<std::int32_t>(text.size() / kBytesOfStep), status);
    matcher->reset(&utext);
    while (U_SUCCESS(status) && matcher->find(status)) {
      const auto begin = static_cast<std::size_t>(matcher->start64(status));
      const auto end = static_cast<std::size_t>(matcher->end64(status));
      if (begin > done) pieces.push_back(text.substr(done, begin - done));
      if (end > begin) pieces.push_back(text.substr(begin, end - begin));
      done = end;
    }
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
  utext_close(&utext);
}

}  // namespace

struct Pretokenizer::Impl {
  std::vector<std::unique_ptr<icu::RegexPattern>> patterns;
};

Pretokenizer::Pretokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::make(const std::vector<std::string>& patterns) {
  auto impl = std::make_unique<Impl>();
  for (const std::string& pattern : patterns) {
    UErrorCode status = U_ZERO_ERROR;
    UParseError where{};
    const auto source = icu::UnicodeString::fromUTF8(with_unicode_spaces(pattern));
    std::unique_ptr<icu::RegexPattern> compiled(icu::RegexPattern::compile(source, 0, where, status));
    if (U_FAILURE(status)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("regular expression '{}': found {}, allowed is what ICU takes", pattern, u_errorName(status))};
    }
    impl->patterns.push_back(std::move(compiled));
  }
  return Pretokenizer(std::move(impl));
}

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const auto& pattern : impl_->patterns) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) split_piece(*pattern, piece, finer);
    pieces = std::move(finer);
  }
  return pieces;
}

std::string normalize_nfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  if (U_FAILURE(status)) return std::string(text);
  const auto source = icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
  const icu::UnicodeString normal = nfc->normalize(source, status);
  if (U_FAILURE(status)) return std::string(text);
  std::string out;
  normal.toUTF8String(out);
  return out;
}

}  // namespace windlass::worker
