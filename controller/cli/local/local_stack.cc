// Starts and stops the local controller and gateway; see local_stack.h.
#include "controller/cli/local/local_stack.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controller/cli/console/text_file.h"
#include "controller/runtime/worker_records.h"
#include "metrics/host/clock.h"
#include "metrics/host/whole_file.h"
#include "metrics/net/host_port.h"

namespace windlass::cli {
namespace fs = std::filesystem;
namespace {

constexpr double kGatewayPatienceS = 35;  // its own drain timeout is 30 s
constexpr double kControllerPatienceS = 20;
constexpr double kOrphanPatienceS = 5;

Result<void> make_folders(const std::string& directory) {
  for (const char* name : {"objects", "logs"}) {
    std::error_code error;
    fs::create_directories(fs::path(directory) / name, error);
    // A folder made by an earlier version may be readable by others.
    if (!error) fs::permissions(fs::path(directory) / name, fs::perms::owner_all, error);
    if (error)
      return Error{ErrorCode::kPermissionDenied,
                   fmt::format("--dir: must be a writable folder (cannot create {}/{}: {})", directory, name, error.message())};
  }
  return {};
}

// Makes the folder's objects match the files and removes those of an earlier run. Writes each file completely and then renames
// it, since a controller may read it at any time.
Result<void> place_objects(const LocalStackOptions& options) {
  const fs::path objects = fs::path(options.directory) / "objects";
  std::set<std::string> names;
  std::error_code error;
  for (const std::string& file : options.files) {
    std::string name = fs::path(file).filename().string();
    for (int i = 2; !names.insert(name).second; ++i) name = fmt::format("{}-{}", i, fs::path(file).filename().string());
    const fs::path target = objects / name;
    if (fs::equivalent(file, target, error)) continue;  // already in place: `up -f .windlass/objects/tiny.yaml`
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, "a YAML file"));
    WINDLASS_RETURN_IF_ERROR(write_whole_file(target, text));
  }
  for (const auto& [file, text] : options.made) {
    std::string name = file;
    while (!names.insert(name).second) name = "measured-" + name;
    WINDLASS_RETURN_IF_ERROR(write_whole_file((objects / name).string(), text));
  }
  for (const auto& entry : fs::directory_iterator(objects, error)) {
    if (!names.count(entry.path().filename().string())) fs::remove(entry.path(), error);
  }
  return {};
}

// Opens a listening socket at ADDRESS:PORT.
Result<int> open_listener(const std::string& listen) {
  const auto parsed = net::parse_host_port(listen);
  const std::string host = !parsed.ok() ? "" : parsed->host == "localhost" ? "127.0.0.1" : parsed->host;
  in6_addr any = {};  // holds either family; getaddrinfo() would accept "8" as 0.0.0.8
  const bool is_address = inet_pton(AF_INET, host.c_str(), &any) == 1 || inet_pton(AF_INET6, host.c_str(), &any) == 1;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (!is_address || parsed->port == "0" || getaddrinfo(host.c_str(), parsed->port.c_str(), &hints, &found) != 0) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--listen: must be an IP address and a port such as 127.0.0.1:8080 or [::1]:8080 (got '{}')", listen)};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, freeaddrinfo);
  const int socket = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(socket, address->ai_addr, address->ai_addrlen) == 0 && ::listen(socket, SOMAXCONN) == 0) return socket;
  const int why = errno;
  close(socket);
  return Error{ErrorCode::kAlreadyExists,
               fmt::format("--listen: must be a free address (got {}: {}); choose another port", listen, std::strerror(why))};
}

// Whether a process has ended. Our children are not reaped here, so that their ids are not reused.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0) return info.si_pid == pid;
  return kill(pid, 0) != 0;
}

}  // namespace

Result<std::unique_ptr<LocalStack>> LocalStack::start(const LocalStackOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string controller, sibling_program("windlass-controller"));
  WINDLASS_ASSIGN_OR_RETURN(const std::string gateway, sibling_program("windlass-gateway"));
  WINDLASS_ASSIGN_OR_RETURN(const std::string worker, sibling_program("windlass-worker"));
  std::unique_ptr<LocalStack> stack(new LocalStack);
  WINDLASS_ASSIGN_OR_RETURN(stack->listener_, open_listener(options.listen));
  ::umask(077);  // objects hold the services' env and logs hold model output: private to this user
  WINDLASS_RETURN_IF_ERROR(make_folders(options.directory));

  stack->directory_ = options.directory;
  const std::string lock_path = options.directory + "/lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return system_error("--dir: opening " + lock_path);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return Error{
        ErrorCode::kAlreadyExists,
        fmt::format("--dir: must be a folder that no other `windlass up` uses (got {}); stop that one or choose another folder",
                    options.directory)};
  }
  stack->lock_ = lock;
  WINDLASS_RETURN_IF_ERROR(place_objects(options));

  WINDLASS_ASSIGN_OR_RETURN(stack->controller_port_, HeldPort::take());
  WINDLASS_ASSIGN_OR_RETURN(stack->admin_port_, HeldPort::take());
  const std::string controller_listen = fmt::format("127.0.0.1:{}", stack->controller_port_.number());
  const std::string admin_listen = fmt::format("127.0.0.1:{}", stack->admin_port_.number());
  stack->endpoints_ = {"http://" + controller_listen, "http://" + options.listen, {"http://" + admin_listen}};

  std::vector<std::string> controller_argv = {controller, "--store", "dir:" + options.directory, "--listen", controller_listen};
  const auto with = [&controller_argv](std::initializer_list<std::string> words) {
    controller_argv.insert(controller_argv.end(), words);
  };
  if (options.servers.empty()) {
    with({"--runtime", "local", "--worker-binary", worker, "--keep-workers"});
  } else {
    const std::string file = options.directory + "/servers.json";
    WINDLASS_RETURN_IF_ERROR(write_whole_file(file, controller::to_json(options.servers)));
    with({"--runtime", "attached", "--servers", file});
  }
  if (options.gpus > 0) with({"--local-gpus", std::to_string(options.gpus)});
  // Become the parent of orphaned workers when a controller crashes.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string logs = options.directory + "/logs/";
  const double now_s = monotonic_s();
  WINDLASS_ASSIGN_OR_RETURN(
      stack->controller_,
      SupervisedProcess::start({"windlass-controller", std::move(controller_argv), logs + "controller.log"}, now_s));
  WINDLASS_ASSIGN_OR_RETURN(
      stack->gateway_,
      SupervisedProcess::start({"windlass-gateway",
                                {gateway, "--id", "local", "--listen-fd", std::to_string(stack->listener_), "--admin-listen",
                                 admin_listen, "--controller", stack->endpoints_.controller_url},
                                logs + "gateway.log",
                                stack->listener_},
                               now_s));
  WINDLASS_RETURN_IF_ERROR(write_whole_file(endpoints_path(options.directory), to_json(stack->endpoints_)));
  return stack;
}

LocalStack::~LocalStack() {
  std::error_code error;
  if (listener_ >= 0) close(listener_);
  if (lock_ >= 0) {
    fs::remove(endpoints_path(directory_), error);
    close(lock_);
  }
}

std::optional<std::string> LocalStack::trouble() {
  for (auto* program : {&*controller_, &*gateway_}) {
    if (program->ended()) return program->last_words();
  }
  return std::nullopt;
}

std::string LocalStack::tend(double now_s) {
  std::string news = controller_->tend(now_s) + gateway_->tend(now_s);
  reap_orphans();
  return news;
}

// Reaps children that have ended and that we adopted. The children we started are left to their owners.
void LocalStack::reap_orphans() {
  for (;;) {
    siginfo_t ended{};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    if (ended.si_pid == controller_->pid() || ended.si_pid == gateway_->pid()) return;
    waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

// Stops workers whose controller is gone.
void LocalStack::end_orphans() {
  const auto records = controller::WorkerRecords::open(fs::path(directory_) / "workers");
  if (!records.ok()) return;
  std::vector<pid_t> left;
  for (const controller::WorkerRecord& record : records->read()) {
    // A child's id is not reused before we reap it.
    if (record.pid > 0 && controller::start_ticks_of(record.pid) == record.start_ticks) left.push_back(record.pid);
    records->erase(record.worker.name_space, record.worker.name);
  }
  for (const pid_t pid : left) kill(pid, SIGTERM);
  const double deadline = monotonic_s() + kOrphanPatienceS;
  const auto all_ended = [&left] { return std::all_of(left.begin(), left.end(), has_ended); };
  while (!all_ended() && monotonic_s() < deadline) usleep(20'000);
  for (const pid_t pid : left) {
    if (kill(pid, 0) != 0) continue;  // not our child, and gone: its id may belong to another process
    kill(pid, SIGKILL);
    kill(-pid, SIGKILL);  // the whole process group
    waitpid(pid, nullptr, 0);
  }
}

bool LocalStack::end(SupervisedProcess& program, double patience_s, const std::function<bool()>& hurry) {
  if (program.ended()) return program.ended_well();
  program.signal(SIGTERM);
  const double deadline = monotonic_s() + patience_s;
  while (!program.ended()) {
    if (monotonic_s() > deadline || hurry()) {
      program.signal(SIGKILL);
      break;
    }
  }
  while (!program.ended()) usleep(10'000);
  return program.ended_well();
}

bool LocalStack::stop(const std::function<bool()>& hurry) {
  std::error_code error;
  fs::remove(endpoints_path(directory_), error);
  // Close the socket so that new clients are refused instead of waiting for nothing.
  close(std::exchange(listener_, -1));
  // Stop the gateway first: its requests still need the workers.
  const bool gateway_well = end(*gateway_, kGatewayPatienceS, hurry);
  const bool controller_well = end(*controller_, kControllerPatienceS, hurry);
  if (!controller_well) end_orphans();
  return gateway_well && controller_well;
}

}  // namespace windlass::cli
