// Each step writes a new text, so that source positions can be tracked.
#include "worker/model/normalizer.h"

#include <algorithm>

#include <unicode/bytestream.h>
#include <unicode/edits.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace windlass::worker {
namespace {

using NormalizerKind = NormalizerStep::Kind;

// Limit of a text's growth, after which steps stop; only a file made to exhaust memory exceeds it. U+FDFA grows elevenfold.
constexpr std::size_t kMaxGrowth = 16;
constexpr std::size_t kGrowthOfShort = 1024;
constexpr UChar32 kCapitalIWithDot = 0x130;  // the only letter whose lower case is two characters: "i" and U+0307
constexpr std::string_view kDottedSmallI = "i\u0307";

AlignedText start_like(const AlignedText& from) {
  AlignedText out;
  out.aligned = from.aligned;
  out.text.reserve(from.text.size());
  return out;
}

const icu::Normalizer2* form_of(NormalizerKind kind, UErrorCode& status) {
  switch (kind) {
    case NormalizerKind::kNfd: return icu::Normalizer2::getNFDInstance(status);
    case NormalizerKind::kNfkc: return icu::Normalizer2::getNFKCInstance(status);
    case NormalizerKind::kNfkd: return icu::Normalizer2::getNFKDInstance(status);
    default: return icu::Normalizer2::getNFCInstance(status);
  }
}

AlignedText in_form(NormalizerKind kind, const AlignedText& from) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = form_of(kind, status);
  if (U_FAILURE(status)) return from;
  std::string text;
  icu::StringByteSink<std::string> sink(&text);
  icu::Edits edits;
  const icu::StringPiece source(from.text.data(), static_cast<std::int32_t>(from.text.size()));
  form->normalizeUTF8(0, source, sink, from.aligned ? &edits : nullptr, status);
  if (U_FAILURE(status)) return from;
  AlignedText out = start_like(from);
  if (!from.aligned) {
    out.text = std::move(text);
    return out;
  }
  for (auto it = edits.getFineIterator(); it.next(status) && U_SUCCESS(status);) {
    const auto at = static_cast<std::size_t>(it.sourceIndex());
    if (!it.hasChange()) {
      out.copy(from, at, at + static_cast<std::size_t>(it.oldLength()));
    } else {
      const std::string_view bytes = std::string_view(text).substr(static_cast<std::size_t>(it.destinationIndex()),
                                                                   static_cast<std::size_t>(it.newLength()));
      out.put(bytes, from.origins[std::min(at, from.origins.size() - 1)]);
    }
  }
  return out;
}

// Calls each(code, begin, end) for every character, with a negative code for invalid UTF-8.
template <class Each>
void for_characters(std::string_view text, Each each) {
  const auto length = static_cast<std::int32_t>(text.size());
  for (std::int32_t at = 0; at < length;) {
    const std::int32_t begin = at;
    UChar32 code = 0;
    U8_NEXT(text.data(), at, length, code);
    each(code, static_cast<std::size_t>(begin), static_cast<std::size_t>(at));
  }
}

AlignedText lowercase(const AlignedText& from) {
  AlignedText out = start_like(from);
  for_characters(from.text, [&](UChar32 code, std::size_t begin, std::size_t end) {
    const UChar32 lower = code < 0 ? code : u_tolower(code);
    if (code == kCapitalIWithDot) {
      out.put(kDottedSmallI, from.aligned ? from.origins[begin] : 0);
    } else if (lower == code) {
      out.copy(from, begin, end);
    } else {
      char bytes[U8_MAX_LENGTH];
      std::int32_t length = 0;
      U8_APPEND_UNSAFE(bytes, length, lower);
      out.put(std::string_view(bytes, static_cast<std::size_t>(length)), from.aligned ? from.origins[begin] : 0);
    }
  });
  return out;
}

AlignedText without_accents(const AlignedText& from) {
  AlignedText out = start_like(from);
  for_characters(from.text, [&](UChar32 code, std::size_t begin, std::size_t end) {
    if (code < 0 || (U_GET_GC_MASK(code) & U_GC_M_MASK) == 0) out.copy(from, begin, end);
  });
  return out;
}

AlignedText stripped(const NormalizerStep& step, const AlignedText& from) {
  std::size_t first = from.text.size(), last = 0;
  for_characters(from.text, [&](UChar32 code, std::size_t begin, std::size_t end) {
    if (code >= 0 && u_isUWhiteSpace(code) != 0) return;
    first = std::min(first, begin);
    last = end;
  });
  AlignedText out = start_like(from);
  const std::size_t begin = step.left ? first : 0;
  const std::size_t end = step.right ? last : from.text.size();
  if (begin < end) out.copy(from, begin, end);
  return out;
}

AlignedText prepended(const NormalizerStep& step, AlignedText from) {
  if (from.text.empty()) return from;
  AlignedText out = start_like(from);
  out.put(step.text, from.aligned ? from.origins[0] : 0);
  out.copy(from, 0, from.text.size());
  return out;
}

AlignedText replaced(const NormalizerStep& step, const TextPattern& pattern, const AlignedText& from) {
  AlignedText out = start_like(from);
  std::size_t done = 0;
  for (const auto& [begin, end] : pattern.matches(from.text)) {
    out.copy(from, done, begin);
    out.put(step.text, from.aligned && !from.origins.empty() ? from.origins[std::min(begin, from.origins.size() - 1)] : 0);
    done = end;
  }
  out.copy(from, done, from.text.size());
  return out;
}

}  // namespace

void AlignedText::put(std::string_view bytes, std::size_t origin) {
  text += bytes;
  if (aligned) origins.insert(origins.end(), bytes.size(), static_cast<std::uint32_t>(origin));
}

void AlignedText::copy(const AlignedText& from, std::size_t begin, std::size_t end) {
  text.append(from.text, begin, end - begin);
  if (!aligned) return;
  origins.insert(origins.end(), from.origins.begin() + static_cast<std::ptrdiff_t>(begin),
                 from.origins.begin() + static_cast<std::ptrdiff_t>(end));
}

Result<Normalizer> Normalizer::make(std::vector<NormalizerStep> steps) {
  Normalizer normalizer;
  for (NormalizerStep& step : steps) {
    std::optional<TextPattern> pattern;
    if (step.kind == NormalizerKind::kReplace) {
      auto made = TextPattern::make(step.pattern);
      if (!made.ok()) return made.error().within(step.where);
      pattern.emplace(std::move(made).value());
    }
    normalizer.steps_.push_back({std::move(step), std::move(pattern)});
  }
  return normalizer;
}

AlignedText Normalizer::normalize(std::string_view text, bool align) const {
  AlignedText now;
  now.text = text;
  now.aligned = align;
  for (std::size_t i = 0; align && i < text.size(); ++i) now.origins.push_back(static_cast<std::uint32_t>(i));
  for (const Step& step : steps_) {
    if (now.text.empty() || now.text.size() > kMaxGrowth * text.size() + kGrowthOfShort) break;
    switch (step.spec.kind) {
      case NormalizerKind::kLowercase: now = lowercase(now); break;
      case NormalizerKind::kStripAccents: now = without_accents(now); break;
      case NormalizerKind::kStrip: now = stripped(step.spec, now); break;
      case NormalizerKind::kPrepend: now = prepended(step.spec, std::move(now)); break;
      case NormalizerKind::kReplace: now = replaced(step.spec, *step.pattern, now); break;
      default: now = in_form(step.spec.kind, now);
    }
  }
  return now;
}

bool Normalizer::prepends() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.spec.kind == NormalizerKind::kPrepend; });
}

bool Normalizer::shortens() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const NormalizerStep& spec = step.spec;
    const bool grows =
        spec.kind == NormalizerKind::kReplace && !spec.pattern.regex && spec.text.size() >= spec.pattern.text.size();
    return spec.kind != NormalizerKind::kPrepend && !grows;
  });
}

std::string normalize_nfc(std::string_view text) {
  AlignedText from;
  from.text = text;
  return in_form(NormalizerKind::kNfc, from).text;
}

}  // namespace windlass::worker
