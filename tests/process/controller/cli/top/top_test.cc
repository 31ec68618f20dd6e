// `windlass top` on its own pseudo-terminal, in front of a running Windlass.
#include <array>
#include <fstream>
#include <mutex>
#include <regex>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/free_port.h"
#include "tests/paths.h"
#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kEntered = "\x1b[?1049h";
constexpr const char* kLeft = "\x1b[?1049l";

// A program on a pseudo-terminal, and its output.
class OnTerminal {
 public:
  explicit OnTerminal(std::vector<std::string> command) {
    winsize size{24, 80, 0, 0};
    if (openpty(&master_, &slave_, nullptr, nullptr, &size) != 0) return;
    tcgetattr(slave_, &before_);
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::array<char, 11> term{"TERM=xterm"};
    std::array<char*, 2> environment{term.data(), nullptr};
    pid_ = fork();
    if (pid_ == 0) {
      setsid();
      ioctl(slave_, TIOCSCTTY, 0);
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(slave_, fd);
      close(master_);
      execve(argv[0], argv.data(), environment.data());
      _exit(127);
    }
    reader_ = std::thread([this] { read_all(); });
  }
  ~OnTerminal() {
    if (pid_ > 0 && !status_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(slave_);  // end of file for the reader once the program is gone
    reader_.join();
    close(master_);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void press(const std::string& keys) {
    ASSERT_EQ(write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void resize(unsigned short columns, unsigned short lines) {
    winsize size{lines, columns, 0, 0};
    ASSERT_EQ(ioctl(master_, TIOCSWINSZ, &size), 0);
  }
  void signal(int number) const { kill(pid_, number); }

  [[nodiscard]] std::string written() {
    const std::scoped_lock lock(mutex_);
    return written_;
  }
  // The lines of the last complete frame, without styles.
  [[nodiscard]] std::vector<std::string> frame() {
    const std::string all = written();
    const std::size_t end = all.rfind("\x1b[J");
    const std::size_t begin = end == std::string::npos ? end : all.rfind("\x1b[H", end);
    if (begin == std::string::npos) return {};
    const std::string plain = std::regex_replace(all.substr(begin, end - begin), std::regex("\x1b\\[[0-9;]*[A-Za-z]"), "");
    std::vector<std::string> lines(1);
    for (const char c : plain) {
      if (c == '\n') lines.emplace_back();
      if (c != '\n' && c != '\r') lines.back() += c;
    }
    return lines;
  }
  [[nodiscard]] bool shows(const std::string& text) {
    const auto lines = frame();
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }

  // Its exit code if it has ended.
  [[nodiscard]] std::optional<int> exit_code() {
    if (!status_ && pid_ > 0) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    }
    if (!status_ || !WIFEXITED(*status_)) return std::nullopt;
    return WEXITSTATUS(*status_);
  }
  [[nodiscard]] bool has_its_old_modes() const {
    termios now{};
    tcgetattr(slave_, &now);
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag;
  }

 private:
  void read_all() {
    std::array<char, 4096> bytes{};
    ssize_t got = 0;
    while ((got = read(master_, bytes.data(), bytes.size())) > 0) {
      const std::scoped_lock lock(mutex_);
      written_.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }

  int master_ = -1;
  int slave_ = -1;
  pid_t pid_ = -1;
  termios before_{};
  std::optional<int> status_;
  std::thread reader_;
  std::mutex mutex_;
  std::string written_;
};

std::vector<std::string> top(const std::string& folder) {
  return {build_path() + "/windlass", "top", "--dir", folder, "--interval", "100ms"};
}

// A folder whose endpoints file the test writes.
class Top : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();
  }

  [[nodiscard]] std::string folder() const { return folder_.path().string(); }
  void write_endpoints(const std::string& text) const {
    std::ofstream(endpoints_path(folder()) + ".new") << text;
    std::filesystem::rename(endpoints_path(folder()) + ".new", endpoints_path(folder()));
  }
  [[nodiscard]] std::string live() const {
    std::ifstream in(endpoints_path(run_.directory()));
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  TempFolder folder_;
  LocalRun run_{1};
};

// Given a terminal; expects the service on the alternate screen in 80 columns, a mark at the sort column chosen by a key, a new
// layout when the terminal's size changes, and after q the terminal as before.
TEST_F(Top, FitsTheTerminalAndRestoresIt) {
  OnTerminal terminal(top(run_.directory()));
  ASSERT_TRUE(eventually(60, [&] { return terminal.shows("default/tiny") && terminal.shows("1/1"); })) << terminal.written();
  EXPECT_THAT(terminal.written(), StartsWith(kEntered));
  EXPECT_FALSE(terminal.has_its_old_modes());
  EXPECT_EQ(terminal.frame().size(), 24U);
  terminal.press("r");
  EXPECT_TRUE(eventually(60, [&] { return terminal.shows("REQ/S▼"); })) << terminal.written();
  terminal.resize(100, 30);
  EXPECT_TRUE(eventually(60, [&] { return terminal.frame().size() == 30U && terminal.frame()[0].size() == 100U; }));
  terminal.press("q");
  ASSERT_TRUE(eventually(60, [&] { return terminal.exit_code().has_value(); }));
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_TRUE(eventually(60, [&] { return terminal.written().ends_with(kLeft); })) << terminal.written();
  EXPECT_TRUE(terminal.has_its_old_modes());
}

// Given SIGTERM; expects the terminal as before.
TEST_F(Top, RestoresTheTerminalOnASignal) {
  OnTerminal terminal(top(run_.directory()));
  ASSERT_TRUE(eventually(60, [&] { return terminal.shows("default/tiny"); })) << terminal.written();
  terminal.signal(SIGTERM);
  ASSERT_TRUE(eventually(60, [&] { return terminal.exit_code().has_value(); }));
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_TRUE(terminal.has_its_old_modes());
}

// Given endpoints at which nothing listens, then those of a running controller; expects first the reason why nothing is shown,
// then the service.
TEST_F(Top, FindsAControllerThatHasMoved) {
  write_endpoints(to_json(Endpoints{fmt::format("http://127.0.0.1:{}", free_port()), "", {}}));
  OnTerminal terminal(top(folder()));
  ASSERT_TRUE(eventually(60, [&] { return terminal.shows("no data for"); })) << terminal.written();
  EXPECT_FALSE(terminal.shows("default/tiny"));
  write_endpoints(live());
  EXPECT_TRUE(eventually(60, [&] { return terminal.shows("default/tiny") && !terminal.shows("no data for"); }))
      << terminal.written();
}

}  // namespace
}  // namespace windlass::cli
