// fork, exec, wait and signals; see local_runtime.h.
#include "controller/runtime/local_runtime.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controller/runtime/engine_args.h"
#include "controller/runtime/engine_drain.h"
#include "controller/runtime/local_engine.h"
#include "controller/runtime/local_model.h"
#include "metrics/host/held_port.h"

namespace windlass::controller {
namespace {

constexpr double kStopGraceS = 5;  // at our own end
constexpr double kTermGraceS = 5;  // of another engine, between the end of its drain and SIGKILL
constexpr int kMaxFailedStarts = 3;
constexpr const char* kLoopback = "127.0.0.1";

bool is_ours(const WorkerSpec& spec) { return spec.engine == "Windlass"; }

// What an engine is told, as a pod of it would be, but for devices: a process has none to itself, so that a GPU is
// for spec.engine.args to ask for.
Result<std::vector<std::string>> command_of(const WorkerSpec& spec, const std::string& binary, const std::string& model,
                                            int port) {
  WorkerSpec without_devices = spec;
  without_devices.resource_name.clear();
  std::string program = binary;
  std::string path = model;
  if (!is_ours(spec)) {
    WINDLASS_ASSIGN_OR_RETURN(program, engine_program(spec));
    WINDLASS_ASSIGN_OR_RETURN(path, engine_model_path(spec, model));
  }
  WINDLASS_ASSIGN_OR_RETURN(EngineCommand engine, engine_command(without_devices, {path, "", false}, {kLoopback, port},
                                                                 engine_version_of_program(spec.engine, program)));
  std::vector<std::string> words = {program};
  // The first word of an image's command is the program's name.
  if (!engine.program.empty()) words.insert(words.end(), engine.program.begin() + 1, engine.program.end());
  words.insert(words.end(), engine.args.begin(), engine.args.end());
  return words;
}

}  // namespace

struct LocalRuntime::Process {
  WorkerSpec spec;
  Worker worker;
  HeldPort port;
  std::vector<std::string> command;
  pid_t pid = -1;
  bool stopping = false;
  bool told = false;     // SIGTERM went out
  double kill_at_s = 0;  // monotonic; while stopping
  bool killed = false;
  int crashes = 0;
  double restart_at_s = 0;  // monotonic; while it is down and not stopping
  bool given_up = false;    // it is not started again
  std::string log;
  long log_begin = 0;  // of this start's words
};

LocalRuntime::LocalRuntime(LocalRuntimeOptions options, kube::HttpTransport& transport)
    : options_(std::move(options)), transport_(transport) {}

LocalRuntime::~LocalRuntime() {
  for (auto& [key, process] : processes_) {
    // Some engines take a second signal for a request to drop everything.
    if (process->pid > 0 && !process->told) ::kill(process->pid, SIGTERM);
  }
  const auto all_gone = [&] {
    bool gone = true;
    for (auto& [key, process] : processes_) {
      if (process->pid > 0 && ::waitpid(process->pid, nullptr, WNOHANG) != 0) process->pid = -1;
      gone = gone && process->pid <= 0;
    }
    return gone;
  };
  constexpr int kStepsPerSecond = 50;
  for (int i = 0; i < static_cast<int>(kStopGraceS * kStepsPerSecond) && !all_gone(); ++i) ::usleep(1000000 / kStepsPerSecond);
  for (auto& [key, process] : processes_) {
    if (process->pid <= 0) continue;
    ::kill(process->pid, SIGKILL);
    ::waitpid(process->pid, nullptr, 0);
  }
}

void LocalRuntime::step(Instant now) {
  now_ = now;
  for (auto& [key, process] : processes_) {
    reap(*process);
    if (process->stopping && process->pid > 0 && !process->killed && now.monotonic_s >= process->kill_at_s) {
      ::kill(process->pid, SIGKILL);
      process->killed = true;
    }
    if (process->stopping && process->pid > 0 && !process->told && now.monotonic_s >= process->kill_at_s - kTermGraceS) {
      tell_to_end(*process);
    }
    if (!process->stopping && !process->given_up && process->pid <= 0 && now.monotonic_s >= process->restart_at_s) {
      if (auto started = start(*process); !started.ok()) {
        process->worker.failed = true;
        process->worker.trouble = planner::WorkerTrouble::kFailed;
        process->worker.message = started.error().message;
        process->restart_at_s = now.monotonic_s + options_.restart_backoff_max_s;
      }
    }
  }
  if (now.monotonic_s >= next_probe_s_) {
    probe_all();
    next_probe_s_ = now.monotonic_s + options_.probe_period_s;
  }
}

void LocalRuntime::reap(Process& process) {
  if (process.pid <= 0) return;
  int status = 0;
  if (::waitpid(process.pid, &status, WNOHANG) != process.pid) return;
  process.pid = -1;
  process.worker.ready = false;
  process.worker.ready_s.reset();
  if (process.stopping) {
    process.worker.finished = true;
    return;
  }
  ++process.crashes;
  const double wait_s = std::min(options_.restart_backoff_max_s,
                                 options_.restart_backoff_s * static_cast<double>(1 << std::min(process.crashes - 1, 10)));
  process.restart_at_s = now_.monotonic_s + wait_s;
  process.worker.failed = true;
  process.worker.trouble = process.crashes > 1 ? planner::WorkerTrouble::kCrashLoop : planner::WorkerTrouble::kFailed;
  const std::string how = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                              : fmt::format("exited with status {}", WEXITSTATUS(status));
  process.worker.message = fmt::format("{} {} ({} times); its log is {}; next start in {:.0f} s", process.spec.name, how,
                                       process.crashes, process.log, wait_s);
  if (!is_ours(process.spec)) note_failed_start(process, how);
}

// An engine that has never answered does so no better the tenth time: its words are told, and it is left alone until its spec
// changes.
void LocalRuntime::note_failed_start(Process& process, const std::string& how) {
  const std::string words = last_words(process.log, process.log_begin);
  if (!words.empty()) process.worker.message += "; its last words: " + words;
  const std::string hash = process.spec.hash();
  Starts& starts = starts_[hash];
  if (starts.ever_ready || ++starts.failed < kMaxFailedStarts) return;
  process.given_up = true;
  starts.verdict =
      fmt::format("spec.engine: {} {} at each of {} starts and is not started again until the spec changes; its log is {}{}{}",
                  process.command.front(), how, starts.failed, process.log, words.empty() ? "" : "; its last words: ", words);
  process.worker.message = starts.verdict;
}

void LocalRuntime::tell_to_end(Process& process) {
  process.told = true;
  if (process.pid > 0) ::kill(process.pid, SIGTERM);
}

void LocalRuntime::probe_all() {
  std::vector<Process*> asked;
  std::vector<kube::HttpRequest> requests;
  for (auto& [key, process] : processes_) {
    if (process->pid <= 0 || process->told) continue;
    asked.push_back(process.get());
    kube::HttpRequest request;
    const char* page = process->stopping        ? engine_load_page(process->spec.engine)
                       : is_ours(process->spec) ? "/ready"
                                                : "/health";
    request.url = fmt::format("http://{}{}", process->worker.address, page);
    request.timeout_s = 2;
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return;
  const auto answers = transport_.send_all(requests);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    Worker& worker = asked[i]->worker;
    if (asked[i]->stopping) {
      if (!answers[i].ok() || answers[i]->status != 200 || !is_busy(answers[i]->body)) tell_to_end(*asked[i]);
      continue;
    }
    const bool ready = answers[i].ok() && answers[i]->status == 200;
    if (ready && !worker.ready) worker.ready_s = now_.wall_s;
    // One slow answer of a busy worker is no reason to take it out: only a refusal is.
    if (ready || answers[i].ok()) worker.ready = ready;
    if (ready) {
      if (!is_ours(asked[i]->spec)) starts_[asked[i]->spec.hash()].ever_ready = true;
      worker.failed = false;
      worker.trouble = planner::WorkerTrouble::kNone;
      worker.message.clear();
    }
  }
}

std::vector<Worker> LocalRuntime::workers() const {
  std::vector<Worker> all;
  for (const auto& [key, process] : processes_) all.push_back(process->worker);
  return all;
}

std::map<std::string, GpuCapacity> LocalRuntime::capacity(const std::vector<ClassSelector>& classes) const {
  std::map<std::string, GpuCapacity> all;
  for (const ClassSelector& one : classes) all[one.name] = GpuCapacity{1, options_.gpus, 0};
  return all;
}

Result<void> LocalRuntime::check(const WorkerSpec& spec) {
  if (is_ours(spec)) return {};
  const auto starts = starts_.find(spec.hash());
  if (starts != starts_.end() && !starts->second.verdict.empty())
    return Error{ErrorCode::kInvalidArgument, starts->second.verdict};
  WINDLASS_ASSIGN_OR_RETURN(const std::string path, local_model(spec.model_uri, options_.model_root));
  const auto command = command_of(spec, options_.worker_binary, path, 1);
  return command.ok() ? Result<void>{} : Result<void>{command.error()};
}

Result<void> LocalRuntime::create(const WorkerSpec& spec) {
  const Key key{spec.name_space, spec.name};
  if (processes_.contains(key)) {
    return Error{ErrorCode::kAlreadyExists, fmt::format("worker {}/{} exists", spec.name_space, spec.name)};
  }
  WINDLASS_RETURN_IF_ERROR(check(spec));
  auto process = std::make_unique<Process>();
  process->spec = spec;
  Worker& worker = process->worker;
  worker.name = spec.name;
  worker.name_space = spec.name_space;
  worker.service = spec.service;
  worker.service_uid = spec.service_uid;
  worker.pool = spec.pool;
  worker.slot = spec.slot;
  worker.role = spec.role;
  worker.accelerator = spec.accelerator;
  worker.gpus = spec.gpus;
  worker.max_concurrency = spec.max_concurrency;
  worker.spec_hash = spec.hash();
  worker.created_s = now_.wall_s;
  worker.uid = fmt::format("{}-{}", ::getpid(), ++incarnations_);
  WINDLASS_RETURN_IF_ERROR(start(*process));
  processes_.emplace(key, std::move(process));
  return {};
}

Result<void> LocalRuntime::start(Process& process) {
  const WorkerSpec& spec = process.spec;
  WINDLASS_ASSIGN_OR_RETURN(const std::string folder, local_model(spec.model_uri, options_.model_root));
  WINDLASS_ASSIGN_OR_RETURN(process.port, HeldPort::take());
  const int port = process.port.number();
  WINDLASS_ASSIGN_OR_RETURN(process.command, command_of(spec, options_.worker_binary, folder, port));
  process.worker.address = fmt::format("{}:{}", kLoopback, port);

  // All memory is made before the fork: between fork and exec only async-signal-safe calls are allowed, for other threads may
  // have held a lock.
  std::vector<char*> argv;
  for (std::string& word : process.command) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> words;  // ours first: the first of two wins
  for (const WorkerEnv& one : spec.env) {
    if (one.secret || one.config_map) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("spec.engine.env: {} refers to a Secret or ConfigMap; processes on this machine can only take values",
                      one.name)};
    }
    words.push_back(one.name + "=" + one.value);
  }
  for (char** entry = environ; *entry != nullptr; ++entry) words.emplace_back(*entry);
  std::vector<char*> envp;
  for (std::string& word : words) envp.push_back(word.data());
  envp.push_back(nullptr);
  process.log = options_.log_directory + "/" + spec.name + ".log";
  const std::string& log = process.log;
  std::error_code no_log;
  const auto size = std::filesystem::file_size(log, no_log);
  process.log_begin = no_log ? 0 : static_cast<long>(size);
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return Error{ErrorCode::kUnavailable, fmt::format("cannot write {}: {}", log, std::strerror(errno))};

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // the parent died between fork and prctl
    ::setpgid(0, 0);                          // Ctrl-C in a terminal is for the parent, which drains first
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(log_fd, STDOUT_FILENO);
    ::dup2(log_fd, STDERR_FILENO);
    ::syscall(SYS_close_range, 3U, ~0U, 0U);  // the server's sockets are not the worker's; libraries open them without CLOEXEC
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  const int reason = errno;
  ::close(log_fd);
  if (pid < 0) return Error{ErrorCode::kUnavailable, fmt::format("cannot start {}: {}", spec.name, std::strerror(reason))};
  process.pid = pid;
  process.worker.finished = false;
  return {};
}

Result<void> LocalRuntime::begin_drain(const Worker& worker, Instant now) {
  const auto found = processes_.find({worker.name_space, worker.name});
  if (found == processes_.end() || found->second->worker.uid != worker.uid) {
    return Error{ErrorCode::kNotFound, fmt::format("worker {}/{} is gone", worker.name_space, worker.name)};
  }
  if (!found->second->worker.draining_since_s) found->second->worker.draining_since_s = now.wall_s;
  return {};
}

Result<void> LocalRuntime::terminate(const Worker& worker, std::optional<double> grace_s) {
  const auto found = processes_.find({worker.name_space, worker.name});
  if (found == processes_.end() || found->second->worker.uid != worker.uid) {
    return Error{ErrorCode::kNotFound, fmt::format("worker {}/{} is gone", worker.name_space, worker.name)};
  }
  Process& process = *found->second;
  if (process.stopping) return {};
  process.stopping = true;
  process.worker.terminating = true;
  process.worker.ready = false;
  process.kill_at_s = now_.monotonic_s + grace_s.value_or(process.spec.drain_timeout_s);
  if (process.pid <= 0) {
    process.worker.finished = true;
  } else if (is_ours(process.spec) || !process.worker.ready_s) {
    tell_to_end(process);
  }  // Another engine cuts its streams when it is told to end: it is told once it has none.
  return {};
}

Result<void> LocalRuntime::release(const Worker& worker) {
  const auto found = processes_.find({worker.name_space, worker.name});
  if (found == processes_.end() || found->second->worker.uid != worker.uid) return {};
  if (!found->second->worker.finished) {
    return Error{ErrorCode::kFailedPrecondition, fmt::format("worker {}/{} still runs", worker.name_space, worker.name)};
  }
  processes_.erase(found);
  return {};
}

}  // namespace windlass::controller
