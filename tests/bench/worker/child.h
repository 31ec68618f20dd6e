// Child processes that a benchmark measures against; each ends with its parent. Linux only.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/result.h"

namespace windlass::worker {

// Ends the process when destroyed.
class Child {
 public:
  explicit Child(pid_t id) : id_(id) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }

 private:
  pid_t id_;
};

struct StartedChild {
  std::unique_ptr<Child> child;
  int port = 0;
};

// Runs `be` in a child process, which reports its listening port once it is ready and then never returns. Call this before
// starting any thread. Error: kInternal.
[[nodiscard]] inline Result<StartedChild> start_child(
    const std::function<void(const std::function<void(int port)>& tell)>& be) {
  std::array<int, 2> told{};
  if (::pipe(told.data()) != 0) return Error{ErrorCode::kInternal, "pipe: cannot be created"};
  const pid_t id = ::fork();
  if (id == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    be([&](int port) {
      if (::write(told[1], &port, sizeof(port)) != sizeof(port)) std::_Exit(1);
    });
    std::_Exit(1);
  }
  ::close(told[1]);
  StartedChild started;
  if (id > 0) started.child = std::make_unique<Child>(id);
  const bool ready = id > 0 && ::read(told[0], &started.port, sizeof(started.port)) == sizeof(started.port);
  ::close(told[0]);
  if (!ready) return Error{ErrorCode::kInternal, id < 0 ? "process: cannot be started" : "child: must become ready"};
  return started;
}

}  // namespace windlass::worker
