// YamlReader reads one map of a YAML text by key. It checks numbers and choices and refuses unknown keys.
//
//   YamlMistake mistake;
//   YamlReader reader(root, "", mistake);
//   model.blocks = reader.whole("blocks", 1, 1000);
//   reader.finish();
//   if (!mistake.what.empty()) return mistake.error(source);
//
// It reports the first error in reading order: "SOURCE:LINE: PATH: must be ... (got ...)". After an error, reads return
// values that are in range, and the caller discards the result. Borrows the tree. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/base/yaml_tree.h"

namespace windlass {

// The first error, and where it is.
struct YamlMistake {
  int line = 0;
  std::string what;             // empty: no error
  bool pass_over_keys = false;  // unknown keys are allowed

  void keep(int at, std::string message) {
    if (what.empty()) *this = {at, std::move(message), pass_over_keys};
  }
  // REQUIRES: there is an error.
  [[nodiscard]] Error error(const std::string& source) const;
};

struct NumberRange {
  double low;
  double high;
};

// Parses a plain decimal number as JSON writes it; also "+1", ".5" and "5.". None for anything else: NaN, infinities, 0x10,
// 1_000, "007" (7 or 56, depending on the version of YAML) and numbers that a double cannot hold.
[[nodiscard]] std::optional<double> plain_number(const YamlValue& value);

class YamlReader {
 public:
  // `path` is prepended to the keys in messages: "servers[2]". `notes` receives the text of note(); null: discard it.
  YamlReader(const YamlValue& value, std::string path, YamlMistake& mistake, std::vector<std::string>* notes = nullptr);
  // A reader for the member `key`, or for item `i` of the list `key`, that shares the error and the notes.
  [[nodiscard]] YamlReader inside(const char* key, const YamlValue& value) const;
  [[nodiscard]] YamlReader item(const char* key, const YamlValue& list, std::size_t i) const;

  // The member's value, or null if the key is missing. finish() reports keys that were never asked for.
  const YamlValue* find(const char* key);
  // The same, but a missing key is an error.
  const YamlValue* require(const char* key, std::string_view allowed);

  // A number within the range. A missing key is an error, unless `otherwise` is given.
  double number(const char* key, NumberRange range);
  std::int64_t whole(const char* key, std::int64_t low, std::int64_t high,
                     std::optional<std::int64_t> otherwise = std::nullopt);
  // Printable text of 1 to `max_bytes` bytes.
  static constexpr std::size_t kMaxTextBytes = 4096;
  std::string text(const char* key, std::string_view what, std::size_t max_bytes = kMaxTextBytes);
  // Index of the word found among these.
  std::size_t choice(const char* key, std::span<const char* const> allowed,
                     std::optional<std::size_t> otherwise = std::nullopt);
  // true or false; false if the key is missing.
  bool flag(const char* key);
  // A duration with its unit ("500ms"), in seconds, within the range.
  double duration_s(const char* key, NumberRange range_s);
  // A list of `fewest` to `most` items; `of` describes them: "maps with name and gpus". Null if it is missing or refused.
  const YamlValue* list(const char* key, std::size_t fewest, std::size_t most, std::string_view of, bool required);

  void refuse(const char* key, const YamlValue& found, std::string_view allowed);
  // Refuses a key if it is present; `allowed` says what the key belongs to.
  void refuse(const char* key, std::string_view allowed);
  void belongs(const char* key, std::string_view to);
  // Reports an error of this map, of a key at the map's line, or of a key at its own line: "must be ... (got ...)".
  void wrong(const std::string& what) { mistake_.keep(value_.line, path_.empty() ? what : path_ + ": " + what); }
  void wrong(const char* key, const std::string& what) { wrong_at(value_.line, key, what); }
  void wrong_at(int line, const std::string& key, const std::string& what) { mistake_.keep(line, path_of(key) + ": " + what); }
  [[nodiscard]] bool ok() const { return mistake_.what.empty(); }

  // Notes the default used for a missing key.
  void note(const char* key, std::string_view value);

  // Reports keys that were never read.
  void finish();

  [[nodiscard]] std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  [[nodiscard]] int line() const { return value_.line; }
  [[nodiscard]] const std::vector<YamlMember>& members() const { return value_.members; }

 private:
  const YamlValue& value_;
  std::string path_;
  YamlMistake& mistake_;
  std::vector<std::string>* notes_;
  std::vector<std::string> keys_;
};

// Parses a plain number with its unit: "90s", "500ms", "5us", "1.5h", "20ns", "2m". None for anything else.
[[nodiscard]] std::optional<double> duration_seconds(std::string_view text);

// The shortest such text, rounded: 0.5 -> "500ms", 120 -> "120s".
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace windlass
