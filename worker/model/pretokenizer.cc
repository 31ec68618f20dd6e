// Steps that change a piece store the new text in Pieces::owned, whose elements never move.
#include "worker/model/pretokenizer.h"

#include <algorithm>
#include <cstdint>

namespace windlass::worker {
namespace {

using PieceKind = PretokenizerStep::Kind;

std::string utf8_of(std::uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3FU))};  // the alphabet ends at U+0143
}

std::string_view keep(std::string text, Pretokenizer::Pieces& pieces) { return pieces.owned.emplace_back(std::move(text)); }

std::string in_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(2 * text.size());
  for (const char c : text) out += byte_alphabet()[static_cast<unsigned char>(c)];
  return out;
}

std::string_view with_symbols(const PretokenizerStep& spec, std::string_view text, bool first, Pretokenizer::Pieces& pieces) {
  std::string out;
  const bool has_one = text.starts_with(' ') || text.starts_with(spec.symbol);
  const bool prepends = spec.prepend == PrependScheme::kAlways || (spec.prepend == PrependScheme::kFirst && first);
  if (prepends && !has_one) out += spec.symbol;
  for (const char c : text) {
    if (c == ' ') {
      out += spec.symbol;
    } else {
      out += c;
    }
  }
  return keep(std::move(out), pieces);
}

}  // namespace

const std::vector<std::string>& byte_alphabet() {
  static const auto* const kAlphabet = [] {
    auto* alphabet = new std::vector<std::string>(256);
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      (*alphabet)[byte] = utf8_of(printable ? byte : next++);
    }
    return alphabet;
  }();
  return *kAlphabet;
}

Result<Pretokenizer> Pretokenizer::make(std::vector<PretokenizerStep> steps, bool raw_bytes) {
  Pretokenizer pretokenizer;
  pretokenizer.raw_bytes_ = raw_bytes;
  for (PretokenizerStep& step : steps) {
    std::optional<TextPattern> pattern;
    if (step.cuts) {
      auto made = TextPattern::make(step.pattern);
      if (!made.ok()) return made.error().within(step.where);
      pattern.emplace(std::move(made).value());
    }
    pretokenizer.steps_.push_back({std::move(step), std::move(pattern)});
  }
  return pretokenizer;
}

bool Pretokenizer::removes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.spec.behavior == SplitBehavior::kRemoved; });
}

Pretokenizer::Pieces Pretokenizer::split(std::string_view text, bool first) const {
  Pieces pieces;
  if (!text.empty()) pieces.list.push_back(text);
  bool begins = first;  // whether the first piece is still at the beginning of the whole text
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const auto& [spec, pattern] = steps_[i];
    std::vector<std::string_view> finer;
    for (std::size_t at = 0; at < pieces.list.size(); ++at) {
      std::string_view piece = pieces.list[at];
      if (spec.kind == PieceKind::kByteLevel && spec.prefix_space && !piece.starts_with(' ')) {
        piece = keep(" " + std::string(piece), pieces);
      } else if (spec.kind == PieceKind::kMetaspace) {
        piece = with_symbols(spec, piece, begins && at == 0, pieces);
      }
      const std::size_t before = finer.size();
      if (pattern) {
        pattern->split(piece, spec.behavior, spec.invert, finer);
      } else {
        finer.push_back(piece);
      }
      // After a Removed piece at the beginning, the rest no longer begins the text.
      if (at == 0) begins = begins && finer.size() > before && finer[before].data() == piece.data();
    }
    if (spec.kind == PieceKind::kByteLevel && !(raw_bytes_ && i + 1 == steps_.size())) {
      for (std::string_view& piece : finer) piece = keep(in_byte_alphabet(piece), pieces);
    }
    pieces.list = std::move(finer);
  }
  return pieces;
}

}  // namespace windlass::worker
