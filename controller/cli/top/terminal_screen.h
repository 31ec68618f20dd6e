// TerminalScreen: full-screen access to the terminal: its alternate screen, single key presses and its size. The destructor
// restores the terminal, and so does stopping the program with Ctrl-Z. SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGWINCH are held
// (HeldSignals) and become events. REQUIRES: one object at a time, on the program's first thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <termios.h>

#include "controller/cli/live/held_signals.h"
#include "planner/base/result.h"

namespace windlass::cli {

struct ScreenLine {
  enum class Style { kPlain, kBold, kDim, kReverse };
  std::string text;  // UTF-8 without control characters
  Style style = Style::kPlain;

  bool operator==(const ScreenLine&) const = default;
};

// A character, or one of the constants below.
using Key = int;
inline constexpr Key kKeyUp = 256, kKeyDown = 257, kKeyPageUp = 258, kKeyPageDown = 259, kKeyEscape = 260;

struct ScreenEvent {
  enum class Kind { kTime, kKey, kSize, kEnd };  // kEnd: a signal asks us to stop, or the terminal is gone
  Kind kind = Kind::kTime;
  Key key = 0;
};

class TerminalScreen {
 public:
  struct Size {
    std::size_t columns = 80;
    std::size_t lines = 24;
  };

  // kUnavailable: the output is not a terminal, or signals cannot be read.
  [[nodiscard]] static Result<std::unique_ptr<TerminalScreen>> open(int input_fd, int output_fd);
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  [[nodiscard]] Size size() const;
  void draw(const std::vector<ScreenLine>& lines);

  // The next event, or kTime if none arrives within `seconds`.
  [[nodiscard]] ScreenEvent wait(double seconds);

 private:
  TerminalScreen(int input_fd, int output_fd);

  void enter();
  void leave();
  void write_all(const std::string& text);
  [[nodiscard]] bool input_within(int milliseconds) const;
  [[nodiscard]] ScreenEvent read_key();
  [[nodiscard]] ScreenEvent read_signal();

  HeldSignals held_{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
  int signals_ = -1;  // a signalfd
  int input_ = -1;    // -1: no keyboard
  int output_;
  termios before_{};  // the input's original settings
};

}  // namespace windlass::cli
