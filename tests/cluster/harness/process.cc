// Implements process.h.
#include "tests/cluster/harness/process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics/host/spawn.h"

namespace windlass::testing {
namespace {

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::stringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = folder + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

int status_of(int raw) { return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw); }

std::vector<std::string> environment_of(const ProcessOptions& options) {
  if (!options.clean_env) return environment_with({options.env.begin(), options.env.end()});
  std::map<std::string, std::string> env = options.env;
  for (const char* name : {"PATH", "HOME"}) {
    if (const char* value = std::getenv(name)) env.emplace(name, value);
  }
  std::vector<std::string> texts;
  texts.reserve(env.size());
  for (const auto& [name, value] : env) texts.push_back(fmt::format("{}={}", name, value));
  return texts;
}

}  // namespace

Result<std::unique_ptr<Process>> Process::start(const ProcessOptions& options) {
  if (options.argv.empty()) return Error{ErrorCode::kInvalidArgument, "starting a process: argv is empty"};
  const std::string program = find_program(options.argv[0]);
  if (program.empty()) return Error{ErrorCode::kNotFound, fmt::format("program '{}' is not on the PATH", options.argv[0])};
  const std::string log = options.log_path.empty() ? "/dev/null" : options.log_path;
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const int in = ::open(options.stdin_path.c_str(), O_RDONLY | O_CLOEXEC);
  const int err = ::open(log.c_str(), flags, 0600);
  const int out = options.stdout_path.empty() ? err : ::open(options.stdout_path.c_str(), flags, 0600);
  const auto close_all = [&] {
    if (in >= 0) ::close(in);
    if (err >= 0) ::close(err);
    if (out >= 0 && out != err) ::close(out);
  };
  if (in < 0 || out < 0 || err < 0) {
    const std::string why = std::strerror(errno);
    close_all();
    return Error{ErrorCode::kInternal, fmt::format("opening the files of '{}': {}", program, why)};
  }
  const auto child = spawn({.program = program,
                            .argv = options.argv,
                            .environment = environment_of(options),
                            .folder = options.working_dir,
                            .in = in,
                            .out = out,
                            .err = err,
                            .group = Spawn::Group::kOwn,
                            .death_signal = SIGKILL});
  close_all();
  if (!child.ok()) return child.error().within("starting a process");
  return std::unique_ptr<Process>(new Process(*child, options.log_path));
}

Process::~Process() {
  if (!poll()) {
    ::kill(-pid_, SIGKILL);
    int raw = 0;
    while (::waitpid(pid_, &raw, 0) < 0 && errno == EINTR) {
    }
  }
}

void Process::signal(int number) const { ::kill(pid_, number); }

std::optional<int> Process::poll() {
  if (exit_status_) return exit_status_;
  int raw = 0;
  if (::waitpid(pid_, &raw, WNOHANG) == pid_) exit_status_ = status_of(raw);
  return exit_status_;
}

std::optional<int> Process::wait(std::chrono::milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!poll() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return exit_status_;
}

int Process::stop(std::chrono::milliseconds grace) {
  if (!poll()) {
    ::kill(pid_, SIGTERM);
    ::kill(pid_, SIGCONT);  // a stopped process could not end
    if (!wait(grace)) {
      ::kill(-pid_, SIGKILL);
      (void)wait(std::chrono::seconds(10));
    }
  }
  return exit_status_.value_or(-1);
}

std::string CommandResult::describe() const {
  return fmt::format("exit status {}\n--- stdout\n{}\n--- stderr\n{}\n", exit_status, out, err);
}

CommandResult run_command(const std::vector<std::string>& argv, const std::string& input,
                          const std::map<std::string, std::string>& env, std::chrono::milliseconds deadline) {
  TempDir folder("windlass-run-");
  write_text_file(folder.file("in"), input);
  ProcessOptions options;
  options.argv = argv;
  options.env = env;
  options.stdin_path = folder.file("in");
  options.stdout_path = folder.file("out");
  options.log_path = folder.file("err");
  CommandResult result;
  auto process = Process::start(options);
  if (!process.ok()) {
    result.err = process.error().message;
    return result;
  }
  const std::optional<int> status = (*process)->wait(deadline);
  if (!status) (void)(*process)->stop(std::chrono::milliseconds(100));
  result.exit_status = status.value_or(124);
  result.out = read_text_file(folder.file("out"));
  result.err = read_text_file(folder.file("err"));
  return result;
}

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
}

std::string tail_of_file(const std::string& path, int lines) {
  const std::string text = read_text_file(path);
  std::size_t at = text.size();
  while (at > 0 && lines > 0) {
    const std::size_t newline = text.rfind('\n', at >= 2 ? at - 2 : 0);
    --lines;
    if (newline == std::string::npos || at < 2) return text;
    at = newline + 1;
  }
  return text.substr(at);
}

TempDir::TempDir(const std::string& prefix) {
  std::string name = (std::filesystem::temp_directory_path() / (prefix + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    fmt::print(stderr, "making a temporary folder {}: {}\n", name, std::strerror(errno));
    std::abort();
  }
  path_ = name;
}

TempDir::~TempDir() {
  if (std::getenv("WINDLASS_TEST_KEEP") != nullptr) {
    fmt::print(stderr, "kept: {}\n", path_);
    return;
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace windlass::testing
