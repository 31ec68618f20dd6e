// Tests restarts of programs: when, how often, and the messages.
#include "controller/cli/local/supervised_process.h"

#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace windlass::cli {
namespace {

using testing::HasSubstr;

class Supervised : public testing::Test {
 protected:
  ~Supervised() override { std::filesystem::remove(log_); }

  SupervisedProcess start(const std::string& script) {
    return SupervisedProcess::start({"shell", {"/bin/sh", "-c", script}, log_}, 0).value();
  }
  static void wait_for_end(SupervisedProcess& program) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!program.ended() && std::chrono::steady_clock::now() < deadline) poll(nullptr, 0, 5);
    ASSERT_TRUE(program.ended());
  }

  const std::string log_ =
      (std::filesystem::temp_directory_path() / ("windlass-supervised-" + std::to_string(getpid()) + ".log")).string();
};

// Given a program that runs; expects no restart.
TEST_F(Supervised, ARunningProgramIsLeftAlone) {
  SupervisedProcess program = start("sleep 60");
  const pid_t pid = program.pid();
  EXPECT_EQ(program.tend(1000), "");
  EXPECT_EQ(program.pid(), pid);
}

// Given a program that always fails; expects an immediate restart, then after 1, 2, 4 s up to 30 s, each with its last output.
TEST_F(Supervised, DelaysDouble) {
  SupervisedProcess program = start("echo why; exit 3");
  wait_for_end(program);
  double now_s = 10;
  EXPECT_EQ(program.tend(now_s), "shell exited with status 3; restarting it.\n");
  for (const double delay_s : {1, 2, 4, 8, 16, 30, 30}) {
    wait_for_end(program);
    const pid_t dead = program.pid();
    EXPECT_THAT(program.tend(now_s),
                testing::AllOf(HasSubstr("shell exited with status 3; its log " + log_ + " ends with:"), HasSubstr("  why\n"),
                               HasSubstr("in " + std::to_string(int(delay_s)) + " s")));
    EXPECT_EQ(program.tend(now_s + delay_s - 0.01), "");
    EXPECT_EQ(program.pid(), dead) << "before its time";
    now_s += delay_s;
    EXPECT_EQ(program.tend(now_s), "");
    EXPECT_NE(program.pid(), dead);
  }
}

// Given a program that failed twice and then ran for a minute; expects an immediate restart again.
TEST_F(Supervised, AStableProgramRestartsImmediately) {
  SupervisedProcess program = start("exit 1");
  wait_for_end(program);
  (void)program.tend(0);
  wait_for_end(program);
  (void)program.tend(0);
  EXPECT_EQ(program.tend(1), "");
  wait_for_end(program);
  EXPECT_EQ(program.tend(61), "shell exited with status 1; restarting it.\n");
}

}  // namespace
}  // namespace windlass::cli
