// LocalSystem: Windlass without a cluster, for tests: a tiny model, a store folder, the real windlass-controller with local
// workers and the real windlass-gateway, on free ports of 127.0.0.1. Everything ends with the object. Used from one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"
#include "tests/cluster/harness/process.h"

namespace windlass::testing {

class LocalSystem {
 public:
  // Creates the model and picks the ports; starts nothing. `programs`: the folder of our executables.
  [[nodiscard]] static Result<std::unique_ptr<LocalSystem>> make(const std::string& programs);

  // The ModelService "tiny" with these limits. A test may change it and passes it to write_service().
  [[nodiscard]] nlohmann::json model_service(int min_workers, int max_workers) const;
  void write_service(const nlohmann::json& object) const;

  // Starts the controller and the gateway and waits until both answer. `controller_flags`: additional flags.
  [[nodiscard]] Result<void> start(int local_gpus, const std::vector<std::string>& controller_flags = {});
  // Starts another program, logged to <folder>/<name>.log.
  [[nodiscard]] Result<void> start_program(const std::string& name, const std::vector<std::string>& argv);

  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] const std::string& controller() const { return controller_; }  // "127.0.0.1:port"
  [[nodiscard]] const std::string& gateway() const { return gateway_; }        // the public address
  [[nodiscard]] const std::string& gateway_admin() const { return gateway_admin_; }
  [[nodiscard]] Process& program(const std::string& name) { return *processes_.at(name); }

  // The routing table as the gateway gets it (requested under the gateway's own name); null if there is none.
  [[nodiscard]] nlohmann::json routing_table() const;
  // The addresses of the chains that accept requests.
  [[nodiscard]] std::vector<std::string> serving() const;

  // The last lines of every program's log.
  [[nodiscard]] std::string logs(int lines = 20) const;

 private:
  explicit LocalSystem(std::string programs);

  TempDir folder_;
  std::string programs_;
  std::string controller_;
  std::string gateway_;
  std::string gateway_admin_;
  std::map<std::string, std::unique_ptr<Process>> processes_;
};

}  // namespace windlass::testing
