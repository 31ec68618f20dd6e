// Runs once for each vocabulary token, when the tokenizer is loaded.
#include "worker/model/token_decoder.h"

#include <algorithm>
#include <charconv>

#include "worker/model/bpe.h"

namespace windlass::worker {
namespace {

using DecoderKind = DecoderStep::Kind;

// Limit of a token's growth, after which steps stop; only a file made to exhaust memory exceeds it.
constexpr std::size_t kLongestBytes = 65536;

std::optional<char> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

std::string with_replaced(const TextPattern& pattern, std::string_view with, const std::string& text) {
  std::string out;
  std::size_t done = 0;
  for (const auto& [begin, end] : pattern.matches(text)) {
    out.append(text, done, begin - done);
    out += with;
    done = end;
  }
  return out.append(text, done);
}

// Removes at most `start` and `stop` occurrences.
void strip_ends(const DecoderStep& step, std::string& text) {
  const std::string& what = step.text;
  for (std::size_t i = 0; i < step.start && text.starts_with(what); ++i) text.erase(0, what.size());
  for (std::size_t i = 0; i < step.stop && text.ends_with(what); ++i) text.resize(text.size() - what.size());
}

}  // namespace

Result<TokenDecoder> TokenDecoder::make(std::vector<DecoderStep> steps) {
  TokenDecoder decoder;
  for (DecoderStep& step : steps) {
    std::optional<TextPattern> pattern;
    if (step.kind == DecoderKind::kReplace || step.kind == DecoderKind::kMetaspace || step.kind == DecoderKind::kWordSuffix) {
      auto made = TextPattern::make(step.pattern);
      if (!made.ok()) return made.error().within(step.where);
      pattern.emplace(std::move(made).value());
    }
    decoder.steps_.push_back({std::move(step), std::move(pattern)});
  }
  return decoder;
}

std::string TokenDecoder::bytes_of(std::string_view token, bool added, bool first) const {
  std::string text(token);
  for (const auto& [spec, pattern] : steps_) {
    if (text.size() > kLongestBytes) break;
    switch (spec.kind) {
      case DecoderKind::kByteLevel: {
        std::string bytes;
        if (!added && append_alphabet_bytes(text, bytes)) text = std::move(bytes);
        break;
      }
      case DecoderKind::kByteFallback:
        if (const auto byte = named_byte(text)) text.assign(1, *byte);
        break;
      case DecoderKind::kReplace: text = with_replaced(*pattern, spec.text, text); break;
      case DecoderKind::kMetaspace:
      case DecoderKind::kWordSuffix: text = with_replaced(*pattern, first && spec.first_space ? "" : " ", text); break;
      case DecoderKind::kStrip: strip_ends(spec, text); break;
      case DecoderKind::kStripText: break;
    }
  }
  return text;
}

bool TokenDecoder::drops_first_spaces() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.spec.first_space; });
}

void TokenDecoder::finish(std::string& text) const {
  for (const auto& [spec, pattern] : steps_) {
    if (spec.kind == DecoderKind::kStripText) strip_ends(spec, text);
    if (spec.kind == DecoderKind::kWordSuffix && text.ends_with(' ')) text.pop_back();
  }
}

bool TokenDecoder::shortens() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.spec.kind == DecoderKind::kStrip || (step.spec.kind == DecoderKind::kReplace && step.spec.text != " ");
  });
}

}  // namespace windlass::worker
