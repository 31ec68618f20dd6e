// KwokCluster: a real control plane whose nodes and pods KWOK simulates, with a process that answers for every worker.
//
// Nodes carry GPUs of three AcceleratorClasses: fast, medium and slow. Pods become ready after a start-up time that depends
// only on the seed and the pod's name, on addresses of 127.64.0.0/10, where windlass-fake-worker listens. Used from one thread.
// Everything ends with the object.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"
#include "tests/cluster/harness/control_plane.h"
#include "tests/cluster/harness/process.h"

namespace windlass::testing {

inline constexpr const char* kSimulatedGpu = "nvidia.com/gpu";
inline constexpr std::array<const char*, 3> kSimulatedClasses = {"fast", "middle", "slow"};

struct KwokOptions {
  int nodes = 200;
  int gpus_per_node = 8;
  int pods_per_node = 110;
  double acceleration = 1;    // everything runs this many times as fast as the GPUs' figures say
  double start_min_s = 2;     // a pod's time from creation to ready
  double start_spread_s = 2;  // added to it, uniform
  bool links = true;          // GPUs of a node are linked: a worker may use several
  bool answer = true;         // start windlass-fake-worker
  std::uint64_t seed = 1;
};

// A Windlass program started here, with its addresses.
struct Program {
  std::string name;
  std::string url;
  std::string admin_url;   // gateways
  std::string credential;  // controllers: "JTI=..." in the audit log
  std::unique_ptr<Process> process;

  [[nodiscard]] bool leads() const;  // controllers
};

class KwokCluster {
 public:
  // Whether KWOK is among the tools; an error says why not.
  [[nodiscard]] static Result<void> available();

  [[nodiscard]] static Result<std::unique_ptr<KwokCluster>> start(const KwokOptions& options);
  ~KwokCluster();
  KwokCluster(const KwokCluster&) = delete;
  KwokCluster& operator=(const KwokCluster&) = delete;

  [[nodiscard]] ControlPlane& plane() { return *plane_; }
  [[nodiscard]] const KwokOptions& options() const { return options_; }

  // Returns once pods can be created in the namespaces.
  [[nodiscard]] Result<void> create_namespaces(const std::vector<std::string>& names);
  // Creates a ModelService; `spec` is merged over the defaults of this cluster's services.
  [[nodiscard]] Result<void> create_service(const std::string& name, const nlohmann::json& spec,
                                            const std::string& name_space = "default");
  // The ModelServices of namespace "default".
  [[nodiscard]] std::vector<nlohmann::json> services() const;
  [[nodiscard]] std::vector<nlohmann::json> workers() const;  // pods of services that are not terminating

  [[nodiscard]] Result<Program> start_controller(const std::string& name, const std::vector<std::string>& more = {});
  [[nodiscard]] Result<Program> start_gateway(const std::string& name, const std::vector<const Program*>& controllers,
                                              const std::vector<std::string>& more = {});
  [[nodiscard]] std::string log_of(const std::string& name) const { return plane_->folder() + "/" + name + ".log"; }

  // A counter of windlass-fake-worker: "pods" that answer, pods "waiting" that have an address and do not answer yet, requests
  // "in_flight", and requests "broken" because their worker ended.
  [[nodiscard]] std::int64_t of_fake_workers(const char* count) const;
  [[nodiscard]] std::string tails() const;

 private:
  explicit KwokCluster(const KwokOptions& options) : options_(options) {}
  [[nodiscard]] Result<void> install();
  [[nodiscard]] Result<void> create_nodes();
  [[nodiscard]] Result<void> create_classes();
  [[nodiscard]] Result<std::unique_ptr<Process>> launch(const std::string& name, std::vector<std::string> argv,
                                                        const std::string& stdout_path = "");

  KwokOptions options_;
  std::unique_ptr<ControlPlane> plane_;
  std::string account_;
  std::unique_ptr<Process> kwok_;
  std::unique_ptr<Process> fake_worker_;
  std::vector<std::string> logs_;
};

}  // namespace windlass::testing
