// TextStream: turns token bytes into text for the client, and holds back text that is not yet final.
//
// Two things can be undecided: a UTF-8 sequence that is incomplete, and text that may be the start of a stop string. Invalid
// bytes become U+FFFD, one per maximal subpart (Unicode 15, section 3.9). The output is always valid UTF-8 and never contains
// any part of the stop string that ended it. One per request; one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace windlass::worker {

// Turns a stream of bytes into a stream of valid UTF-8.
class Utf8Stream {
 public:
  // Returns all text that these bytes make final.
  [[nodiscard]] std::string push(std::string_view bytes);
  // Returns U+FFFD for bytes still held, if any.
  [[nodiscard]] std::string finish();

 private:
  std::string held_;  // start of a sequence that may still become valid
};

class TextStream {
 public:
  // REQUIRES: no stop string is empty.
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  struct Piece {
    std::string text;
    bool stopped = false;  // a stop string was found; the text ends before it, and push() must not be called again
  };
  [[nodiscard]] Piece push(std::string_view token_bytes);
  // Returns the text held back, when generation ends without a stop string.
  [[nodiscard]] std::string finish();

 private:
  Piece match(std::string text);

  std::vector<std::string> stops_;
  Utf8Stream utf8_;
  std::string held_;  // valid UTF-8 that may begin a stop string
};

}  // namespace windlass::worker
