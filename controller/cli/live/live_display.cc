// Draws the live table or prints its changes; see live_display.h.
#include "controller/cli/live/live_display.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

namespace windlass::cli {

void LiveDisplay::redraw(const std::string& text) {
  if (drawn_lines_ > 0) console_.out << fmt::format("\x1b[{}A\x1b[J", drawn_lines_);
  // Cut long lines: wrapped ones would make the count of drawn lines wrong.
  console_.out << "\x1b[?7l" << text << "\x1b[?7h" << std::flush;
  drawn_lines_ = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void LiveDisplay::show(double elapsed_s, const std::vector<ServiceRow>& rows, const std::string& note) {
  said_.clear();
  if (console_.terminal) {
    redraw(table_text(rows) + (note.empty() ? "" : note + "\n"));
    return;
  }
  for (const ServiceRow& row : rows) {
    Shown& shown = shown_[row.title()];
    const std::string state = state_text(row);
    if (shown.state == state && elapsed_s - shown.at_s < quiet_period_s_) continue;
    const bool news = !row.trouble.empty() && shown.trouble != row.trouble;
    shown = {state, elapsed_s, row.trouble};
    console_.out << fmt::format("{:6.1f}s  {}\n", elapsed_s, line_text(row));
    if (news) console_.out << fmt::format("{:>9}{}\n", "", row.trouble);
    console_.out << std::flush;
  }
}

void LiveDisplay::announce(const std::string& lines) {
  if (drawn_lines_ > 0) console_.out << fmt::format("\x1b[{}A\x1b[J", drawn_lines_);
  drawn_lines_ = 0;
  console_.out << lines << std::flush;
}

void LiveDisplay::say(const std::string& message) {
  if (console_.terminal) {
    redraw(message + "\n");
  } else if (message != said_) {
    console_.out << message << "\n" << std::flush;
  }
  said_ = message;
}

}  // namespace windlass::cli
