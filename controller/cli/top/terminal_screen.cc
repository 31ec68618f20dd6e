// Sets the terminal's modes and reads keys and signals; see terminal_screen.h.
#include "controller/cli/top/terminal_screen.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace windlass::cli {
namespace {

// xterm's control sequences (ctlseqs), which all current terminals support: the alternate screen, the cursor, line wrapping.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr int kEscapeMs = 50;  // the rest of a key's sequence arrives within this time; otherwise a person pressed ESC

const char* begin_of(ScreenLine::Style style) {
  switch (style) {
    case ScreenLine::Style::kBold: return "\x1b[1m";
    case ScreenLine::Style::kDim: return "\x1b[2m";
    case ScreenLine::Style::kReverse: return "\x1b[7m";
    case ScreenLine::Style::kPlain: break;
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<TerminalScreen>> TerminalScreen::open(int input_fd, int output_fd) {
  if (isatty(output_fd) == 0) return Error{ErrorCode::kUnavailable, "the output is not a terminal"};
  std::unique_ptr<TerminalScreen> screen(new TerminalScreen(input_fd, output_fd));
  screen->signals_ = signalfd(-1, &screen->held_.set(), SFD_CLOEXEC);
  if (screen->signals_ < 0) return Error{ErrorCode::kUnavailable, fmt::format("reading signals: {}", std::strerror(errno))};
  screen->enter();
  return screen;
}

TerminalScreen::TerminalScreen(int input_fd, int output_fd) : output_(output_fd) {
  if (tcgetattr(input_fd, &before_) == 0) input_ = input_fd;
}

TerminalScreen::~TerminalScreen() {
  if (signals_ < 0) return;
  leave();
  close(signals_);
}

void TerminalScreen::enter() {
  if (input_ >= 0) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z still send signals
    tcsetattr(input_, TCSADRAIN, &raw);
  }
  write_all(std::string(kEnter));
}

void TerminalScreen::leave() {
  write_all(std::string(kLeave));
  if (input_ >= 0) tcsetattr(input_, TCSADRAIN, &before_);
}

void TerminalScreen::write_all(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(output_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return;  // the terminal is gone; wait() reports that
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
}

TerminalScreen::Size TerminalScreen::size() const {
  winsize found{};
  if (ioctl(output_, TIOCGWINSZ, &found) != 0 || found.ws_col == 0 || found.ws_row == 0) return {};
  return {found.ws_col, found.ws_row};
}

void TerminalScreen::draw(const std::vector<ScreenLine>& lines) {
  std::string frame = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* begin = begin_of(lines[i].style);
    frame += fmt::format("{}{}{}{}\x1b[K", i == 0 ? "" : "\r\n", begin, lines[i].text, *begin != 0 ? "\x1b[0m" : "");
  }
  write_all(frame + "\x1b[J");
}

bool TerminalScreen::input_within(int milliseconds) const {
  pollfd one{input_, POLLIN, 0};
  return poll(&one, 1, milliseconds) > 0;
}

ScreenEvent TerminalScreen::read_key() {
  unsigned char first = 0;
  if (read(input_, &first, 1) != 1) return {ScreenEvent::Kind::kEnd};
  if (first != 0x1b) return {ScreenEvent::Kind::kKey, first};
  std::string rest;
  while (rest.size() < 8 && input_within(kEscapeMs)) {
    char next = 0;
    if (read(input_, &next, 1) != 1) break;
    rest += next;
    if (rest.size() > 1 && next >= '@') break;  // a final byte ends the sequence; the first byte is '[' or 'O'
  }
  constexpr std::pair<std::string_view, Key> kSequences[] = {{"", kKeyEscape},     {"[A", kKeyUp},   {"OA", kKeyUp},
                                                             {"[B", kKeyDown},     {"OB", kKeyDown}, {"[5~", kKeyPageUp},
                                                             {"[6~", kKeyPageDown}};
  for (const auto& [sequence, key] : kSequences) {
    if (rest == sequence) return {ScreenEvent::Kind::kKey, key};
  }
  return {ScreenEvent::Kind::kKey, 0};  // an unused key
}

ScreenEvent TerminalScreen::read_signal() {
  signalfd_siginfo info{};
  if (read(signals_, &info, sizeof info) != sizeof info) return {ScreenEvent::Kind::kEnd};
  if (info.ssi_signo == SIGWINCH) return {ScreenEvent::Kind::kSize};
  if (info.ssi_signo != SIGTSTP) return {ScreenEvent::Kind::kEnd};
  leave();
  raise(SIGSTOP);
  enter();  // resumed by SIGCONT
  return {ScreenEvent::Kind::kSize};
}

ScreenEvent TerminalScreen::wait(double seconds) {
  pollfd both[] = {{signals_, POLLIN, 0}, {input_, POLLIN, 0}};
  const int found = poll(both, 2, static_cast<int>(std::ceil(std::clamp(seconds, 0.0, 3600.0) * 1000)));
  if (found > 0 && both[0].revents != 0) return read_signal();
  if (found > 0 && both[1].revents != 0) return read_key();
  return {};
}

}  // namespace windlass::cli
