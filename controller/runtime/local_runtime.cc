// Starts worker processes, signals them and waits for them; see local_runtime.h.
#include "controller/runtime/local_runtime.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {  // missing in glibc 2.36
#include <sys/pidfd.h>
}

#include "controller/runtime/engine_args.h"
#include "controller/runtime/engine_drain.h"
#include "controller/runtime/engine_probes.h"
#include "controller/runtime/local_engine.h"
#include "controller/runtime/local_model.h"
#include "controller/runtime/pod.h"
#include "metrics/host/held_port.h"
#include "metrics/host/spawn.h"

namespace windlass::controller {
namespace {

constexpr double kStopGraceS = 5;  // when this program itself ends
constexpr double kTermGraceS = 5;  // for another project's engine, from the end of its drain to SIGKILL
constexpr int kMaxFailedStarts = 3;
constexpr const char* kLoopback = "127.0.0.1";

bool is_ours(const Launch& spec) { return spec.engine == "Windlass"; }

// The command line of a worker, like that of a pod, except for devices: a process has no GPU of its own, so spec.engine.args
// must select one.
Result<std::vector<std::string>> command_of(const Launch& spec, const std::string& binary, const std::string& model, int port) {
  Launch without_devices = spec;
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

std::string random_token() {
  constexpr int kWords = 8;  // of 32 bits
  std::random_device random;
  std::string token;
  for (int i = 0; i < kWords; ++i) token += fmt::format("{:08x}", random());
  return token;
}

// A process that is not our child, held by a pidfd, which cannot come to refer to another process.
class AdoptedProcess {
 public:
  // nullopt: it is gone, or its id has been reused.
  static std::optional<AdoptedProcess> find(pid_t pid, long long start_ticks) {
    if (pid <= 0) return std::nullopt;
    AdoptedProcess found(::pidfd_open(pid, 0));
    if (found.fd_ < 0 || start_ticks_of(pid) != start_ticks || found.ended()) return std::nullopt;
    return found;
  }
  AdoptedProcess(AdoptedProcess&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  AdoptedProcess& operator=(AdoptedProcess&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~AdoptedProcess() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] bool ended() const {
    pollfd one{fd_, POLLIN, 0};
    return ::poll(&one, 1, 0) > 0;
  }
  void signal(int number) const { (void)::pidfd_send_signal(fd_, number, nullptr, 0); }

 private:
  explicit AdoptedProcess(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace

struct LocalRuntime::Process {
  Launch spec;  // for an adopted process: only its name, engine and drain timeout
  Worker worker;
  HeldPort port;
  std::vector<std::string> command;
  pid_t pid = -1;
  long long start_ticks = 0;              // if there are records
  std::optional<AdoptedProcess> adopted;  // none: it is our child
  bool stopping = false;
  bool told = false;     // SIGTERM was sent
  double kill_at_s = 0;  // monotonic; while stopping
  bool killed = false;
  int crashes = 0;
  double restart_at_s = 0;  // monotonic; set while it is down and not stopping
  bool given_up = false;    // it is not restarted any more
  std::string log;
  long log_begin = 0;  // where this start's output begins

  void signal(int number) const {
    if (pid <= 0) return;
    if (adopted) {
      adopted->signal(number);
    } else {
      ::kill(pid, number);
    }
  }

  // Kills its whole process group, because an engine's own child processes may not end with it.
  void kill_all() const {
    signal(SIGKILL);
    if (pid > 0) ::kill(-pid, SIGKILL);
  }

  // Whether the process has ended. The exit status is known only for a child. Its own child processes are killed.
  struct End {
    std::optional<int> status;
  };
  [[nodiscard]] std::optional<End> take_end() {
    if (pid <= 0) return std::nullopt;
    End end;
    if (adopted) {
      if (!adopted->ended()) return std::nullopt;
      ::kill(-pid, SIGKILL);
    } else {
      siginfo_t ended{};  // not reaped yet: until then nobody else can get its process group's id
      if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != pid)
        return std::nullopt;
      ::kill(-pid, SIGKILL);
      int status = 0;
      ::waitpid(pid, &status, 0);
      end.status = status;
    }
    pid = -1;
    return end;
  }
};

LocalRuntime::LocalRuntime(LocalRuntimeOptions options, kube::HttpTransport& transport, std::optional<WorkerRecords> records)
    : options_(std::move(options)), transport_(transport), records_(std::move(records)), duty_token_(random_token()) {
  if (!records_) return;
  for (const WorkerRecord& record : records_->read()) adopt(record);
}

LocalRuntime::~LocalRuntime() {
  for (auto& [key, process] : processes_) {
    // Some engines drop their requests at a second signal.
    if (!process->told) process->signal(SIGTERM);
  }
  const auto all_gone = [&] {
    bool gone = true;
    for (auto& [key, process] : processes_) {
      (void)process->take_end();
      gone = gone && process->pid <= 0;
    }
    return gone;
  };
  constexpr int kStepsPerSecond = 50;
  for (int i = 0; i < static_cast<int>(kStopGraceS * kStepsPerSecond) && !all_gone(); ++i) ::usleep(1000000 / kStepsPerSecond);
  for (auto& [key, process] : processes_) {
    if (process->pid > 0) {
      process->kill_all();
      if (!process->adopted) ::waitpid(process->pid, nullptr, 0);
    }
    if (records_) records_->erase(key.first, key.second);
  }
}

void LocalRuntime::adopt(const WorkerRecord& record) {
  auto found = AdoptedProcess::find(record.pid, record.start_ticks);
  if (!found) {
    records_->erase(record.worker.name_space, record.worker.name);
    return;
  }
  auto process = std::make_unique<Process>();
  process->spec.name = record.worker.name;
  process->spec.engine = record.engine;
  process->spec.drain_timeout_s = record.drain_timeout_s;
  process->worker = record.worker;
  process->pid = record.pid;
  process->start_ticks = record.start_ticks;
  process->adopted = std::move(found);
  process->stopping = record.stopping;
  process->told = record.sent_sigterm;
  process->kill_at_s = record.kill_at_s;
  process->log = record.log;
  processes_.emplace(Key{record.worker.name_space, record.worker.name}, std::move(process));
}

bool LocalRuntime::save(const Process& process) {
  if (!records_) return true;
  const auto written = records_->write({process.worker, process.spec.engine, process.log, process.spec.drain_timeout_s,
                                        process.pid, process.start_ticks, process.stopping, process.told, process.kill_at_s});
  problem_ = written.ok() ? std::string() : written.error().message;
  return written.ok();
}

void LocalRuntime::step(Instant now) {
  now_ = now;
  for (auto& [key, process] : processes_) {
    reap(*process);
    if (process->stopping && process->pid > 0 && !process->killed && now.monotonic_s >= process->kill_at_s) {
      process->kill_all();
      process->killed = true;
    }
    if (process->stopping && process->pid > 0 && !process->told && now.monotonic_s >= process->kill_at_s - kTermGraceS) {
      tell_to_end(*process);
    }
    const bool over = process->stopping || process->given_up || process->worker.finished;
    if (!over && process->pid <= 0 && now.monotonic_s >= process->restart_at_s) {
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
  const auto end = process.take_end();
  if (!end) return;
  process.worker.ready = false;
  process.worker.ready_s.reset();
  if (process.stopping) {
    process.worker.finished = true;
  } else if (!end->status) {
    process.worker.finished = true;
    process.worker.failed = true;
    process.worker.trouble = planner::WorkerTrouble::kFailed;
    process.worker.message = fmt::format("{} has ended; its log is {}", process.spec.name, process.log);
  } else {
    const int status = *end->status;
    note_crash(process, WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                            : fmt::format("exited with status {}", WEXITSTATUS(status)));
  }
}

void LocalRuntime::note_crash(Process& process, const std::string& how) {
  ++process.crashes;
  const double wait_s = std::min(options_.restart_backoff_max_s,
                                 options_.restart_backoff_s * static_cast<double>(1 << std::min(process.crashes - 1, 10)));
  process.restart_at_s = now_.monotonic_s + wait_s;
  process.worker.failed = true;
  process.worker.trouble = process.crashes > 1 ? planner::WorkerTrouble::kCrashLoop : planner::WorkerTrouble::kFailed;
  process.worker.message = fmt::format("{} {} ({} times); its log is {}; next start in {:.0f} s", process.spec.name, how,
                                       process.crashes, process.log, wait_s);
  if (!is_ours(process.spec)) note_failed_start(process, how);
}

// An engine that has never become ready will hardly do so in a further start. Report the end of its log and stop restarting it
// until its spec changes.
void LocalRuntime::note_failed_start(Process& process, const std::string& how) {
  const std::string words = last_words(process.log, process.log_begin);
  if (!words.empty()) process.worker.message += "; last log lines: " + words;
  Starts& starts = starts_[process.worker.spec_hash];
  if (starts.ever_ready || ++starts.failed < kMaxFailedStarts) return;
  process.given_up = true;
  starts.verdict =
      fmt::format("spec.engine: {} {} in each of {} starts; it is not started again until the spec changes; its log is {}{}{}",
                  process.command.front(), how, starts.failed, process.log, words.empty() ? "" : "; last log lines: ", words);
  process.worker.message = starts.verdict;
}

void LocalRuntime::tell_to_end(Process& process) {
  process.told = true;
  process.signal(SIGTERM);
  (void)save(process);
}

void LocalRuntime::probe_all() {
  std::vector<Process*> asked;
  std::vector<kube::HttpRequest> requests;
  for (auto& [key, process] : processes_) {
    if (process->pid <= 0 || process->told) continue;
    asked.push_back(process.get());
    kube::HttpRequest request;
    const char* page =
        process->stopping ? engine_load_page(process->spec.engine) : probe_paths(process->spec.engine, {}).readiness;
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
    const bool news = ready && !worker.ready;
    if (news) worker.ready_s = now_.wall_s;
    // A missing answer does not make a busy worker unready; only an answer other than 200 does.
    if (ready || answers[i].ok()) worker.ready = ready;
    if (ready) {
      if (!is_ours(asked[i]->spec)) starts_[worker.spec_hash].ever_ready = true;
      worker.failed = false;
      worker.trouble = planner::WorkerTrouble::kNone;
      worker.message.clear();
    }
    if (news) (void)save(*asked[i]);
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

Result<void> LocalRuntime::check(const Launch& spec) {
  if (is_ours(spec)) return {};
  const auto starts = starts_.find(spec.hash());
  if (starts != starts_.end() && !starts->second.verdict.empty())
    return Error{ErrorCode::kInvalidArgument, starts->second.verdict};
  WINDLASS_ASSIGN_OR_RETURN(const std::string path, local_model(spec.model_uri, options_.model_root));
  const auto command = command_of(spec, options_.worker_binary, path, 1);
  return command.ok() ? Result<void>{} : Result<void>{command.error()};
}

Result<void> LocalRuntime::create(const Launch& spec) {
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
  worker.stages = spec.stages;
  worker.stage = spec.stage;
  worker.max_concurrency = spec.max_concurrency;
  worker.spec_hash = spec.hash();
  if (is_ours(spec)) worker.duty_token = duty_token_;
  worker.created_s = now_.wall_s;
  worker.uid = fmt::format("{}-{}", ::getpid(), ++incarnations_);
  WINDLASS_RETURN_IF_ERROR(start(*process));
  processes_.emplace(key, std::move(process));
  return {};
}

Result<void> LocalRuntime::start(Process& process) {
  const Launch& spec = process.spec;
  WINDLASS_ASSIGN_OR_RETURN(const std::string folder, local_model(spec.model_uri, options_.model_root));
  WINDLASS_ASSIGN_OR_RETURN(process.port, HeldPort::take());
  const int port = process.port.number();
  WINDLASS_ASSIGN_OR_RETURN(process.command, command_of(spec, options_.worker_binary, folder, port));
  process.worker.address = fmt::format("{}:{}", kLoopback, port);

  std::vector<std::pair<std::string, std::string>> variables;
  for (const WorkerEnv& one : spec.env) {
    if (one.secret || one.config_map) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format(
              "spec.engine.env: must have a plain value for {} on this machine (got a reference to a Secret or ConfigMap)",
              one.name)};
    }
    variables.emplace_back(one.name, one.value);
  }
  if (!process.worker.duty_token.empty()) variables.emplace_back(kDutyToken, process.worker.duty_token);
  process.log = options_.log_directory + "/" + spec.name + ".log";
  const std::string& log = process.log;
  std::error_code no_log;
  const auto size = std::filesystem::file_size(log, no_log);
  process.log_begin = no_log ? 0 : static_cast<long>(size);
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return Error{ErrorCode::kUnavailable, fmt::format("cannot write {}: {}", log, std::strerror(errno))};

  process.worker.finished = false;
  Spawn child{.program = process.command.front(),
              .argv = process.command,
              .environment = environment_with(variables),
              .out = log_fd,
              .err = log_fd,
              .group = Spawn::Group::kOwn};  // so that Ctrl-C in a terminal reaches only us, and we drain first
  bool unrecorded = false;
  if (records_) {
    // The process starts to run only once its record is written; after a crash of ours nobody would find it otherwise.
    child.before = [&](pid_t pid) -> Result<void> {
      process.pid = pid;
      process.start_ticks = start_ticks_of(pid);
      unrecorded = !save(process);
      if (!unrecorded) return {};
      return Error{ErrorCode::kUnavailable, problem_};
    };
  } else {
    child.death_signal = SIGTERM;
  }
  const auto started = spawn(child);
  ::close(log_fd);
  process.pid = started.value_or(-1);
  if (started.ok()) return {};
  if (records_) records_->erase(spec.name_space, spec.name);
  if (!unrecorded) {  // A program that cannot run is retried like one that exits immediately.
    note_crash(process, fmt::format("cannot run: {}", started.error().message));
    return {};
  }
  return Error{ErrorCode::kUnavailable, fmt::format("cannot start {}: {}", spec.name, started.error().message)};
}

Result<LocalRuntime::Process*> LocalRuntime::find(const Worker& worker) {
  const auto found = processes_.find({worker.name_space, worker.name});
  if (found == processes_.end() || found->second->worker.uid != worker.uid) {
    return Error{ErrorCode::kNotFound, fmt::format("worker {}/{} is gone", worker.name_space, worker.name)};
  }
  return found->second.get();
}

Result<void> LocalRuntime::begin_drain(const Worker& worker, Instant now) {
  WINDLASS_ASSIGN_OR_RETURN(Process* const process, find(worker));
  if (process->worker.draining_since_s) return {};
  process->worker.draining_since_s = now.wall_s;
  (void)save(*process);
  return {};
}

Result<void> LocalRuntime::begin_role_change(const Worker& worker, const std::string& role, Instant now) {
  WINDLASS_ASSIGN_OR_RETURN(Process* const process, find(worker));
  const std::string before = process->worker.role;
  process->spec.role = process->worker.role = role;  // also of a restarted process
  process->worker.changing_role_since_s = now.wall_s;
  if (save(*process)) return {};
  // A next controller must find the mark before the worker changes.
  process->spec.role = process->worker.role = before;
  process->worker.changing_role_since_s.reset();
  return Error{ErrorCode::kUnavailable, problem_};
}

Result<void> LocalRuntime::end_role_change(const Worker& worker) {
  WINDLASS_ASSIGN_OR_RETURN(Process* const process, find(worker));
  process->worker.changing_role_since_s.reset();
  (void)save(*process);
  return {};
}

Result<void> LocalRuntime::terminate(const Worker& worker, std::optional<double> grace_s) {
  WINDLASS_ASSIGN_OR_RETURN(Process* const found, find(worker));
  Process& process = *found;
  if (process.stopping) return {};
  process.stopping = true;
  process.worker.terminating = true;
  process.worker.ready = false;
  process.kill_at_s = now_.monotonic_s + grace_s.value_or(process.spec.drain_timeout_s);
  if (process.pid <= 0) {
    process.worker.finished = true;
  } else if (is_ours(process.spec) || !process.worker.ready_s) {
    tell_to_end(process);
  } else {
    (void)save(process);  // Other projects' engines cut their streams at SIGTERM, so it is sent only once no request is left.
  }
  return {};
}

Result<void> LocalRuntime::release(const Worker& worker) {
  const auto found = processes_.find({worker.name_space, worker.name});
  if (found == processes_.end() || found->second->worker.uid != worker.uid) return {};
  if (!found->second->worker.finished) {
    return Error{ErrorCode::kFailedPrecondition, fmt::format("worker {}/{} still runs", worker.name_space, worker.name)};
  }
  processes_.erase(found);
  if (records_) records_->erase(worker.name_space, worker.name);
  return {};
}

}  // namespace windlass::controller
