// Tests child processes: their exit status, their log, and that they end with their owner.
#include "controller/cli/console/child_process.h"

#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

namespace windlass::cli {
namespace {

using testing::HasSubstr;

std::string log_path(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("windlass-child-" + name + "-" + std::to_string(getpid()) + ".log"))
      .string();
}

// Polls until it has ended; nullopt after a minute.
std::optional<std::string> end_of(ChildProcess& child) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    if (auto how = child.ended()) return how;
    poll(nullptr, 0, 5);
  }
  return std::nullopt;
}

// Given a program that prints and fails; expects its status and its last lines.
TEST(ChildProcess, StatusAndLogAreKept) {
  const std::string log = log_path("fails");
  auto child = ChildProcess::start("shell", {"/bin/sh", "-c", "echo one; echo two >&2; exit 3"}, log);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(end_of(*child).value_or("still runs"), "exited with status 3");
  EXPECT_FALSE(child->ended_well());
  EXPECT_EQ(child->log_tail(), "  one\n  two\n");
  EXPECT_EQ(child->log_tail(1), "  two\n");
  std::filesystem::remove(log);
}

// Given a program that does not exist; expects an error that names it rather than a child that dies.
TEST(ChildProcess, MissingProgramIsAnError) {
  const std::string log = log_path("missing");
  const auto child = ChildProcess::start("nothing", {"/no/such/program"}, log);
  ASSERT_FALSE(child.ok());
  EXPECT_THAT(child.error().message, HasSubstr("starting nothing: /no/such/program: No such file"));
  std::filesystem::remove(log);
}

// Given a child that would run for a minute; expects a signal to end it and its outcome to say so.
TEST(ChildProcess, SignalEndsIt) {
  const std::string log = log_path("signal");
  auto child = ChildProcess::start("sleeper", {"/bin/sleep", "60"}, log);
  ASSERT_TRUE(child.ok());
  EXPECT_FALSE(child->ended().has_value());
  child->signal(SIGTERM);
  EXPECT_EQ(end_of(*child).value_or("still runs"), "was killed by signal 15");
  std::filesystem::remove(log);
}

// Given an owner that goes out of scope; expects its child to be gone and reaped.
TEST(ChildProcess, EndsWithItsOwner) {
  const std::string log = log_path("owner");
  pid_t pid = 0;
  {
    auto child = ChildProcess::start("sleeper", {"/bin/sleep", "60"}, log);
    ASSERT_TRUE(child.ok());
    pid = child->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
  std::filesystem::remove(log);
}

}  // namespace
}  // namespace windlass::cli
