// Draws and erases the line; see progress_line.h.
#include "controller/cli/console/progress_line.h"

#include <ostream>

#include "metrics/host/clock.h"

namespace windlass::cli {
namespace {

constexpr double kAfter_s = 1;
constexpr double kEvery_s = 0.2;
constexpr const char* kClear = "\r\x1b[K";

}  // namespace

ProgressLine::ProgressLine(Console& console) : console_(console), begin_s_(monotonic_s()) {}

ProgressLine::~ProgressLine() {
  if (drawn_) console_.err << kClear << std::flush;
}

void ProgressLine::tell(const std::function<std::string(double elapsed_s)>& line) {
  if (!console_.err_terminal) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const double now_s = monotonic_s();
  if (!lock.owns_lock() || now_s - begin_s_ < kAfter_s || now_s - last_s_ < kEvery_s) return;
  last_s_ = now_s;
  drawn_ = true;
  console_.err << kClear << line(now_s - begin_s_) << std::flush;
}

}  // namespace windlass::cli
