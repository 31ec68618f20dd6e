// Implements local_run.h: starts and observes a whole local Windlass.
#include "tests/process/controller/cli/local/local_run.h"

#include <chrono>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include "metrics/host/clock.h"
#include "tests/free_port.h"
#include "tests/paths.h"

namespace windlass::cli {
namespace {

constexpr const char* kTagVariable = "WINDLASS_TEST_RUN";

// Reads as much as possible: a process's files disappear when it ends.
std::string read_all(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

bool eventually(double patience_s, const std::function<bool()>& condition) {
  const double deadline = monotonic_s() + patience_s;
  while (!condition()) {
    if (monotonic_s() > deadline) return false;
    poll(nullptr, 0, 50);
  }
  return true;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

LocalRun::LocalRun(int workers, std::string host)
    : tag_(folder_.path().filename().string()), host_(std::move(host)), transport_(kube::CurlOptions{.max_parallel = 16}) {
  const std::string binaries = build_path();
  const auto made =
      run_program({binaries + "/windlass", "model", "init", "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads",
                   "2", "--intermediate", "128", "--max-context", "512", (folder_.path() / "model").string()});
  EXPECT_TRUE(made.ok() && *made == 0) << "windlass model init failed";
  start(workers);
}

LocalRun::LocalRun(Objects objects, int workers)
    : tag_(folder_.path().filename().string()),
      objects_(std::move(objects)),
      transport_(kube::CurlOptions{.max_parallel = 16}) {
  start(workers);
}

LocalRun::LocalRun(std::vector<std::string> attach)
    : tag_(folder_.path().filename().string()), transport_(kube::CurlOptions{.max_parallel = 16}) {
  command_ = std::move(attach);
  command_.insert(command_.begin(), "attach");
  port_ = windlass::free_port();
  launch();
}

void LocalRun::start(int workers) {
  port_ = host_ == "[::1]" ? free_port_of_both_families() : windlass::free_port();
  command_ = {"up", "-f", folder_.file("tiny.yaml", yaml(workers, "Auto")), "--gpus", "4"};
  launch();
}

void LocalRun::start_again() { launch(); }

void LocalRun::launch() {
  std::vector<std::string> words = {build_path() + "/windlass"};
  words.insert(words.end(), command_.begin(), command_.end());
  words.insert(words.end(), {"--dir", directory(), "--listen", address()});
  setenv(kTagVariable, tag_.c_str(), 1);
  auto up = ChildProcess::start("windlass " + command_.front(), words, (folder_.path() / "up.log").string());
  unsetenv(kTagVariable);
  EXPECT_TRUE(up.ok()) << up.error().message;
  if (up.ok()) up_.emplace(std::move(up).value());
}

LocalRun::~LocalRun() {
  up_.reset();
  // A failed test's processes must not disturb the next test.
  for (const int pid : processes()) {
    kill(-pid, SIGKILL);  // together with the processes that an engine started
    kill(pid, SIGKILL);
  }
}

std::string LocalRun::yaml(int workers, const std::string& strategy) const {
  if (objects_) return objects_(workers, strategy);
  std::string text = replaced(kTinyYaml, "file:///nonexistent/windlass-model", "file://" + (folder_.path() / "model").string());
  // Chains need a link between their servers.
  const std::string link = "  interNodeLink: {bandwidthBytesPerSecond: 1G, latencyMicroseconds: 100}\n";
  if (strategy == "Chained") text = replaced(text, "  gpusPerNode: 4\n", "  gpusPerNode: 4\n" + link);
  return text + fmt::format(
                    "  scaling: {{strategy: {}, minWorkers: {}, maxWorkers: {}, drainTimeout: 60s, behavior: {{scaleDown: "
                    "{{stabilizationWindow: 0s}}}}}}\n",
                    strategy, workers, workers);
}

void LocalRun::scale_to(int workers, const std::string& strategy) {
  const auto target = std::filesystem::path(directory()) / "objects" / "tiny.yaml";
  const std::string draft = folder_.file("tiny.yaml.draft", yaml(workers, strategy));
  std::filesystem::rename(draft, target);
}

std::optional<ServiceRow> LocalRun::row() {
  if (!observer_) {
    EndpointOptions options;
    options.directory = directory();
    const auto endpoints = options.resolve();
    if (!endpoints.ok()) return std::nullopt;
    endpoints_ = *endpoints;
    observer_ = std::make_unique<Observer>(*endpoints);
  }
  LiveView view;
  if (!observer_->observe(monotonic_s(), view).ok()) {
    observer_.reset();  // the file may be an earlier run's
    return std::nullopt;
  }
  if (view.rows().size() != 1) return std::nullopt;
  return view.rows()[0];
}

bool LocalRun::at_rest(int workers) {
  const auto now = row();
  return now && now->desired == workers && now->ready == workers && now->starting == 0 && now->draining == 0;
}

kube::HttpRequest LocalRun::chat(const std::string& content, int max_tokens, bool stream) const {
  kube::HttpRequest request;
  request.method = "POST";
  request.url = gateway_url() + "/v1/chat/completions";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = nlohmann::json{{"model", "tiny"},
                                {"temperature", 0},
                                {"max_tokens", max_tokens},
                                {"stream", stream},
                                {"messages", {{{"role", "user"}, {"content", content}}}}}
                     .dump();
  request.timeout_s = 120;
  return request;
}

metrics::Exposition LocalRun::gateway_metrics() {
  if (!endpoints_ && !row()) return {};
  return metrics_at(endpoints_->gateway_admin_urls.at(0));
}

std::vector<std::pair<std::string, std::string>> LocalRun::worker_addresses() {
  std::vector<std::pair<std::string, std::string>> found;
  if (!endpoints_ && !row()) return found;
  kube::HttpRequest request;
  request.url = endpoints_->controller_url + "/v1/snapshot";
  const auto response = transport_.send(request);
  const auto snapshot = response.ok() ? nlohmann::json::parse(response->body, nullptr, false) : nlohmann::json();
  if (!snapshot.is_object()) return found;
  for (const auto& worker : snapshot.at("services").at(0).at("workers")) {
    if (worker.value("state", "") != "Ready") continue;
    found.emplace_back(worker.at("address").get<std::string>(), worker.value("role", "unified"));
  }
  return found;
}

std::vector<metrics::Exposition> LocalRun::worker_metrics(const std::string& role) {
  std::vector<metrics::Exposition> pages;
  for (const auto& [address, of_role] : worker_addresses()) {
    if (of_role == role) pages.push_back(metrics_at("http://" + address));
  }
  return pages;
}

std::vector<std::pair<std::string, int>> LocalRun::ports() {
  const auto port_of = [](const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); };
  std::vector<std::pair<std::string, int>> all = {{"gateway", port_}};
  if (!endpoints_ && !row()) return all;
  all.emplace_back("gateway admin", port_of(endpoints_->gateway_admin_urls.at(0)));
  all.emplace_back("controller", port_of(endpoints_->controller_url));
  for (const auto& [address, role] : worker_addresses()) all.emplace_back("worker", port_of(address));
  return all;
}

metrics::Exposition LocalRun::metrics_at(const std::string& url) {
  kube::HttpRequest request;
  request.url = url + "/metrics";
  const auto response = transport_.send(request);
  if (!response.ok()) return {};
  auto page = metrics::parse_exposition(response->body);
  return page.ok() ? *page : metrics::Exposition{};
}

std::vector<int> LocalRun::processes() const {
  std::vector<int> found;
  const std::string wanted = std::string(kTagVariable) + "=" + tag_;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_all(entry.path() / "environ").find(wanted) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::string LocalRun::up_log() const { return read_all(folder_.path() / "up.log"); }

std::string LocalRun::logs() const {
  std::string text = "up.log:\n" + up_log();
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::filesystem::path(directory()) / "logs", error)) {
    if (!entry.is_regular_file()) continue;
    const std::string log = read_all(entry.path());
    text += "\n" + entry.path().filename().string() + ":\n" + log.substr(log.size() > 4000 ? log.size() - 4000 : 0);
  }
  return text;
}

}  // namespace windlass::cli
