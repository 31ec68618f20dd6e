// LocalRun: `windlass up` in its own folder with a tiny model, for tests. All programs are real and end with the test.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/cli/console/child_process.h"
#include "controller/cli/live/observer.h"
#include "controller/kube/curl_transport.h"
#include "tests/unit/controller/cli/example_objects.h"

namespace windlass::cli {

// Checks every 50 ms until `condition` holds; false after `patience_s`.
[[nodiscard]] bool eventually(double patience_s, const std::function<bool()>& condition);

class LocalRun {
 public:
  // Creates the model and starts `windlass up` for a service with this number of workers; its gateway listens on `host`. A
  // failure fails the test.
  explicit LocalRun(int workers, std::string host = "127.0.0.1");
  // Uses other objects, whose service is also "tiny", created for a number of workers and a strategy.
  using Objects = std::function<std::string(int workers, const std::string& strategy)>;
  LocalRun(Objects objects, int workers);
  // Runs `windlass attach` with these arguments, in front of servers of a model "tiny".
  explicit LocalRun(std::vector<std::string> attach);
  ~LocalRun();  // sends SIGKILL to `up` if it still runs
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  // Writes the service again with minWorkers = maxWorkers = `workers`, as if a person edited DIR/objects.
  void scale_to(int workers, const std::string& strategy = "Auto");

  // Whether this many workers are ready and none is starting or ending.
  [[nodiscard]] bool at_rest(int workers);
  [[nodiscard]] std::optional<ServiceRow> row();

  [[nodiscard]] std::string gateway_url() const { return "http://" + address(); }
  [[nodiscard]] kube::HttpRequest chat(const std::string& content, int max_tokens, bool stream) const;
  // The gateway's metrics page.
  [[nodiscard]] metrics::Exposition gateway_metrics();
  // The metrics pages of the ready workers with this role, by the controller's last snapshot.
  [[nodiscard]] std::vector<metrics::Exposition> worker_metrics(const std::string& role);

  // Listening ports by name: gateway, gateway admin, controller, and the ready workers.
  [[nodiscard]] std::vector<std::pair<std::string, int>> ports();

  // Starts `up` again in the same folder and on the same port, once the first one has ended.
  void start_again();

  ChildProcess& up() { return *up_; }
  [[nodiscard]] std::string directory() const { return (folder_.path() / "run").string(); }

  // Process ids of this run's live descendants, found by a variable in their environment.
  [[nodiscard]] std::vector<int> processes() const;
  [[nodiscard]] std::string up_log() const;  // the terminal output of `up`
  // The output of `up` and its programs, for failure messages.
  [[nodiscard]] std::string logs() const;

 private:
  [[nodiscard]] std::string address() const { return host_ + ":" + std::to_string(port_); }
  void start(int workers);
  void launch();
  [[nodiscard]] std::string yaml(int workers, const std::string& strategy) const;
  [[nodiscard]] metrics::Exposition metrics_at(const std::string& url);
  // Of the ready workers, with their roles, by the controller's last snapshot.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> worker_addresses();

  TempFolder folder_;
  std::string tag_;
  Objects objects_;                   // empty: the tiny model's
  std::vector<std::string> command_;  // up or attach, with its arguments except folder and port
  std::string host_ = "127.0.0.1";
  int port_ = 0;
  std::optional<ChildProcess> up_;
  kube::CurlTransport transport_;
  std::unique_ptr<Observer> observer_;
  std::optional<Endpoints> endpoints_;
};

// The number of occurrences of `part` in `text`.
[[nodiscard]] int count_of(const std::string& text, const std::string& part);

}  // namespace windlass::cli
