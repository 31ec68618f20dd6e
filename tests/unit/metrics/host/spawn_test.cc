// Child processes: what a started program receives, and why one does not start.
#include "metrics/host/spawn.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace windlass {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Ran {
  int status = 0;
  std::string out;
};

// Runs a shell script with these settings; a pipe captures its output.
Ran run(const std::string& script, Spawn what = {}) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  what.program = "/bin/sh";
  what.argv = {"sh", "-c", script};
  what.out = ends[1];
  const auto pid = spawn(what);
  ::close(ends[1]);
  Ran ran;
  char chunk[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], chunk, sizeof chunk)) > 0;) ran.out.append(chunk, static_cast<std::size_t>(got));
  ::close(ends[0]);
  EXPECT_TRUE(pid.ok()) << pid.error().message;
  if (pid.ok()) ran.status = wait_for(*pid);
  return ran;
}

// Given arguments, variables, a folder and streams; expects the program to receive them and its status to be returned.
TEST(Spawn, PassesArgumentsVariablesAndStreams) {
  ::setenv("WINDLASS_SPAWN_TEST", "old", 1);
  Spawn what;
  what.environment = environment_with({{"WINDLASS_SPAWN_TEST", "new"}, {"WINDLASS_SPAWN_MORE", "a=b"}});
  what.in = Spawn::kNull;
  const Ran ran = run("echo \"$WINDLASS_SPAWN_TEST $WINDLASS_SPAWN_MORE $HOME\"; cat; exit 3", what);
  const char* home = std::getenv("HOME");
  EXPECT_EQ(ran.out, std::string("new a=b ") + (home != nullptr ? home : "") + "\n");
  EXPECT_EQ(WEXITSTATUS(ran.status), 3);
  what.folder = "/";
  EXPECT_EQ(run("pwd", what).out, "/\n");
  EXPECT_EQ(run("echo $WINDLASS_SPAWN_TEST").out, "old\n");
  ::unsetenv("WINDLASS_SPAWN_TEST");
}

// Given open descriptors without O_CLOEXEC; expects the program to have only the one it should keep.
TEST(Spawn, KeepsOnlyTheDescriptorsThatAreNamed) {
  const int kept = ::open("/dev/null", O_RDONLY);
  const int other = ::open("/dev/null", O_RDONLY);
  Spawn what;
  what.kept = {kept};
  const auto has = [](int descriptor) {
    return "[ -e /proc/$$/fd/" + std::to_string(descriptor) + " ] && echo yes || echo no; ";
  };
  EXPECT_EQ(run(has(kept) + has(other), what).out, "yes\nno\n");
  ::close(kept);
  ::close(other);
}

// Given each kind of group; expects our group, its own group, and its own session.
TEST(Spawn, SetsTheProcessGroup) {
  // Fields of /proc/PID/stat: process, group and session.
  const std::string ids = "read pid rest < /proc/$$/stat; set -- $rest; echo $pid $4 $5";
  for (const auto group : {Spawn::Group::kOurs, Spawn::Group::kOwn}) {
    Spawn what;
    what.group = group;
    int pid = 0, process_group = 0, session = 0;
    const std::string out = run(ids, what).out;
    ASSERT_EQ(std::sscanf(out.c_str(), "%d %d %d", &pid, &process_group, &session), 3) << out;
    EXPECT_EQ(process_group, group == Spawn::Group::kOurs ? ::getpgrp() : pid);
    EXPECT_EQ(session, ::getsid(0));
  }
}

// Given signals that we block and ignore; expects the program to inherit none of that, and to ignore those that are named.
TEST(Spawn, ResetsSignals) {
  sigset_t term, before;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &term, &before);
  const auto handler = ::signal(SIGHUP, SIG_IGN);
  EXPECT_EQ(WTERMSIG(run("kill -TERM $$; exit 0").status), SIGTERM);
  EXPECT_EQ(WTERMSIG(run("kill -HUP $$; exit 0").status), SIGHUP);
  Spawn what;
  what.ignored_signals = {SIGTERM};
  EXPECT_EQ(run("kill -TERM $$; exit 4", what).status, 4 << 8);
  ::signal(SIGHUP, handler);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

// Given programs that cannot run; expects the reason, and no child left over.
TEST(Spawn, SaysWhyAProgramDoesNotStart) {
  const auto missing = spawn({.program = "/no/such/program", .argv = {"x"}});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "/no/such/program: No such file or directory");
  EXPECT_THAT(spawn({.program = "/etc/passwd", .argv = {"x"}}).error().message, HasSubstr("Permission denied"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// Given a `before` callback; expects it to run with the child's id first, and the program never to start when it fails.
TEST(Spawn, RunsBeforeFirst) {
  std::optional<pid_t> told;
  Spawn what;
  what.before = [&](pid_t pid) -> Result<void> {
    told = pid;
    return {};
  };
  const Ran ran = run("echo $$", what);
  EXPECT_EQ(ran.out, std::to_string(told.value_or(0)) + "\n");
  what.program = "/bin/sh";
  what.argv = {"sh", "-c", "echo it began"};
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  what.out = ends[1];
  what.before = [](pid_t) -> Result<void> { return Error{ErrorCode::kCancelled, "not now"}; };
  const auto refused = spawn(what);
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // nothing was said, and no process is left that could
  ::close(ends[0]);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "not now");
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

// Given a process that starts a program with a death signal, and ends; expects the program to end too.
TEST(Spawn, EndsWithItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto child = spawn({.program = "/bin/sleep", .argv = {"sleep", "infinity"}, .out = ends[1], .death_signal = SIGKILL});
    ::_exit(child.ok() ? 0 : 1);
  }
  ::close(ends[1]);
  EXPECT_EQ(wait_for(parent), 0);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // once no process has the other end
  ::close(ends[0]);
}

}  // namespace
}  // namespace windlass
