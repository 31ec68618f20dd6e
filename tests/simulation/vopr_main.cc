// Runs seeds of the whole-system simulation on all cores: `scripts/bench vopr`. Each job is its own process, so that a seed
// which crashes the program is named like any other that fails.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/simulation/vopr.h"

namespace {

using windlass::simulation::describe;
using windlass::simulation::run_seed;
using windlass::simulation::SeedResult;

constexpr const char* kUsage =
    "vopr [--seeds N] [--from S] [--jobs J]   runs N seeds from S in J processes (default: 1000 from 1, one per core)\n"
    "vopr --seed X [--check NAME]             runs one seed and prints what happened before it first failed (NAME, if given)\n";

struct Options {
  std::uint64_t seeds = 1000, from = 1, jobs = std::max(1U, std::thread::hardware_concurrency());
  std::uint64_t only = 0;
  bool one = false;
  std::string check;
};

bool read_number(const char* text, std::uint64_t& into) {
  if (text == nullptr || *text == '\0' || std::strspn(text, "0123456789") != std::strlen(text) || std::strlen(text) > 18)
    return false;
  into = std::strtoull(text, nullptr, 10);
  return true;
}

// Output of one child process. A line is "start SEED", "done SEED REQUESTS SERVED SIMULATED_S WRITES" or "fail TEXT".
struct Child {
  pid_t pid = -1;
  int fd = -1;
  std::uint64_t next = 0;  // the next seed to run
  std::uint64_t running = 0;
  bool in_seed = false;
  std::string rest;
};

void say(int fd, const std::string& line) {
  std::size_t at = 0;
  while (at < line.size()) {
    const ssize_t written = ::write(fd, line.data() + at, line.size() - at);
    if (written <= 0) std::_Exit(3);
    at += static_cast<std::size_t>(written);
  }
}

[[noreturn]] void run_child(int fd, std::uint64_t first, std::uint64_t end, std::uint64_t stride) {
  for (std::uint64_t seed = first; seed < end; seed += stride) {
    say(fd, fmt::format("start {}\n", seed));
    const SeedResult result = run_seed(seed);
    std::string text = describe(result);
    for (char& c : text) {
      if (c == '\n') c = '\1';
    }
    if (!text.empty()) say(fd, fmt::format("fail {} {}\n", seed, text));
    say(fd, fmt::format("done {} {} {} {:.0f} {}\n", seed, result.requests, result.served, result.simulated_s, result.writes));
  }
  std::_Exit(0);
}

bool spawn(Child& child, std::uint64_t end, std::uint64_t stride) {
  int ends[2];
  if (::pipe(ends) != 0) return false;
  std::cout.flush();
  child.pid = ::fork();
  if (child.pid < 0) return false;
  if (child.pid == 0) {
    ::close(ends[0]);
    run_child(ends[1], child.next, end, stride);
  }
  ::close(ends[1]);
  child.fd = ends[0];
  child.in_seed = false;
  return true;
}

int run_one(std::uint64_t seed, const std::string& check) {
  const SeedResult result = run_seed(seed, true, check);
  for (const std::string& note : result.notes) std::cout << note << '\n';
  if (result.violations.empty()) {
    std::cout << fmt::format("seed {}: no violation in {:.0f} s; {} of {} requests served, {} writes\n", seed,
                             result.simulated_s, result.served, result.requests, result.writes);
    return 0;
  }
  std::cout << describe(result);
  return 1;
}

int run_many(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t end = options.from + options.seeds;
  std::vector<Child> children(std::min(options.jobs, options.seeds));
  for (std::size_t i = 0; i < children.size(); ++i) {
    children[i].next = options.from + i;
    if (!spawn(children[i], end, children.size())) {
      std::cerr << "vopr: cannot start a process\n";
      return 2;
    }
  }
  std::uint64_t done = 0, failed = 0;
  double simulated_s = 0;
  long requests = 0, served = 0;
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  double shown_s = 0;
  const auto take = [&](Child& child, const std::string& line) {
    const std::uint64_t seed = std::strtoull(line.c_str() + line.find(' '), nullptr, 10);
    if (line.rfind("start ", 0) == 0) {
      child.running = seed;
      child.in_seed = true;
    } else if (line.rfind("fail ", 0) == 0) {
      ++failed;
      std::string text = line.substr(line.find(' ', 5) + 1);
      for (char& c : text) {
        if (c == '\1') c = '\n';
      }
      std::cout << text << std::flush;
    } else if (line.rfind("done ", 0) == 0) {
      child.in_seed = false;
      ++done;
      long asked = 0, answered = 0;
      double simulated = 0;
      if (std::sscanf(line.c_str(), "done %*s %ld %ld %lf", &asked, &answered, &simulated) == 3) {
        requests += asked;
        served += answered;
        simulated_s += simulated;
      }
    }
  };
  std::size_t live = children.size();
  while (live > 0) {
    std::vector<pollfd> fds;
    for (const Child& child : children) {
      if (child.fd >= 0) fds.push_back({child.fd, POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), 1000);
    for (Child& child : children) {
      const bool ready =
          std::any_of(fds.begin(), fds.end(), [&](const pollfd& one) { return one.fd == child.fd && one.revents != 0; });
      if (child.fd < 0 || !ready) continue;
      char buffer[65536];
      const ssize_t got = ::read(child.fd, buffer, sizeof buffer);
      if (got > 0) {
        child.rest.append(buffer, static_cast<std::size_t>(got));
        for (auto at = child.rest.find('\n'); at != std::string::npos; at = child.rest.find('\n')) {
          take(child, child.rest.substr(0, at));
          child.rest.erase(0, at + 1);
        }
        continue;
      }
      ::close(child.fd);
      child.fd = -1;
      int status = 0;
      ::waitpid(child.pid, &status, 0);
      child.rest.clear();
      if (child.in_seed) {
        ++failed;
        ++done;
        std::cout << fmt::format(
                         "seed {}: the program ended with {} {}\nrun it again with a trace: scripts/bench vopr --seed {}\n",
                         child.running, WIFSIGNALED(status) ? "signal" : "status",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), child.running)
                  << std::flush;
        child.next = child.running + children.size();
        if (child.next < end && spawn(child, end, children.size())) continue;
      }
      --live;
    }
    if (seconds() - shown_s >= 10) {
      shown_s = seconds();
      std::cout << fmt::format("{} of {} seeds, {:.1f} a second, {} failed\n", done, options.seeds,
                               static_cast<double>(done) / seconds(), failed)
                << std::flush;
    }
  }
  std::cout << fmt::format(
      "{} seeds from {}: {} failed; {:.0f} s on {} processes ({:.1f} seeds/s), {:.0f} h simulated, {} of {} requests served\n",
      done, options.from, failed, seconds(), children.size(), static_cast<double>(done) / seconds(), simulated_s / 3600, served,
      requests);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::cout << kUsage;
      return 0;
    }
    if (name == "--check" && i + 1 < argc) {
      options.check = argv[++i];
      continue;
    }
    std::uint64_t* into = name == "--seeds"  ? &options.seeds
                          : name == "--from" ? &options.from
                          : name == "--jobs" ? &options.jobs
                          : name == "--seed" ? &options.only
                                             : nullptr;
    if (into == nullptr || i + 1 >= argc || !read_number(argv[++i], *into)) {
      std::cerr << "vopr: " << name
                << (into == nullptr ? ": must be one of these flags:\n" : ": must be followed by a number:\n") << kUsage;
      return 2;
    }
    options.one = options.one || name == "--seed";
  }
  if (options.seeds == 0 || options.jobs == 0) {
    std::cerr << "vopr: --seeds and --jobs: must be at least 1 (got 0)\n";
    return 2;
  }
  spdlog::set_level(options.one && std::getenv("WINDLASS_VOPR_LOG") != nullptr ? spdlog::level::debug : spdlog::level::off);
  return options.one ? run_one(options.only, options.check) : run_many(options);
}
