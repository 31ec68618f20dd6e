// TextStream: token bytes in, text for the client out. Holds back what is not decided yet.
//
// Two things are undecided while tokens arrive: a UTF-8 sequence whose rest is still to come, and text that may be the
// beginning of a stop string. Bytes that can be no UTF-8 become U+FFFD, one for each maximal subpart (Unicode 15, section 3.9).
// What comes out is always valid UTF-8 and never holds any part of the stop string that ended it. One per request; one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace windlass::worker {

// Turns a stream of bytes into a stream of valid UTF-8.
class Utf8Stream {
 public:
  // Everything decided by these bytes and those before.
  [[nodiscard]] std::string push(std::string_view bytes);
  // The held bytes, as U+FFFD if there are any.
  [[nodiscard]] std::string finish();

 private:
  std::string held_;  // the beginning of a sequence that may still become valid
};

class TextStream {
 public:
  // REQUIRES: no stop string is empty.
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  struct Piece {
    std::string text;
    bool stopped = false;  // a stop string was found; text ends before it, and nothing may be pushed any more
  };
  [[nodiscard]] Piece push(std::string_view token_bytes);
  // What was held back, when generation ends without a stop string.
  [[nodiscard]] std::string finish();

 private:
  Piece match(std::string text);

  std::vector<std::string> stops_;
  Utf8Stream utf8_;
  std::string held_;  // valid UTF-8 that may begin a stop string
};

}  // namespace windlass::worker
