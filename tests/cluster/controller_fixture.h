// ControllerTest: a cluster test with Windlass installed: the charts' CRDs and RBAC, a tiny model on a volume, an
// AcceleratorClass, and the real windlass-controller, windlass-gateway and (in pods) windlass-worker programs.
//
// Controllers run as processes of this machine. Each has its own token of the chart's ServiceAccount, so that it may do exactly
// what the chart allows and the audit log can tell controllers apart.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/cluster/cluster_fixture.h"
#include "tests/cluster/harness/load.h"

namespace windlass::testing {

class ControllerTest : public ClusterTest {
 protected:
  // A running controller and its identifiers.
  struct Controller {
    std::string name;
    std::string url;         // "http://127.0.0.1:port"
    std::string credential;  // as in the audit log
    std::unique_ptr<Process> process;

    [[nodiscard]] bool leads() const;
  };

  void SetUp() override;
  void TearDown() override;

  // Renders the chart's rights for a controller that watches only this test's namespace. Controllers started from now on have
  // those rights.
  void narrow_rights();
  // A new token of the controllers' ServiceAccount.
  [[nodiscard]] std::string controller_token() const;
  // Starts a controller under the chart's ServiceAccount and waits until it answers /healthz.
  [[nodiscard]] Controller start_controller(const std::string& name, const std::string& worker_image = kWorkerImage,
                                            const std::vector<std::string>& flags = {});
  // A controller's response to a caller with the installation's token.
  [[nodiscard]] HttpAnswer ask(const Controller& controller, const std::string& target) const;
  // Replaces the installation's token; controllers and gateways read the file again on their own.
  void set_token(const std::string& token) const;
  // Starts a gateway that polls these controllers; returns its public address.
  [[nodiscard]] std::string start_gateway(const std::vector<const Controller*>& controllers);

  // `speed`: bytes of memory and FLOP per second. Nodes with the label windlass.dev/accelerator=NAME belong to it.
  [[nodiscard]] static nlohmann::json accelerator_class(const std::string& name, const std::string& speed,
                                                        const std::string& price = "1");
  // The ModelService "chat" that the tests apply; change it before applying it.
  [[nodiscard]] nlohmann::json model_service() const;
  // The name that clients use.
  [[nodiscard]] std::string served_name() const { return name_space() + "/chat"; }
  void apply_object(const nlohmann::json& object);
  // Applies a merge patch to the spec of "chat".
  void patch_spec(const nlohmann::json& spec);
  [[nodiscard]] nlohmann::json service() const;  // "chat" as it is, or null

  // The worker pods of "chat" that are not being deleted.
  [[nodiscard]] std::vector<nlohmann::json> workers() const;
  [[nodiscard]] std::size_t ready_workers() const;
  // Names and UIDs, to see whether a worker was lost or replaced.
  [[nodiscard]] std::map<std::string, std::string> worker_uids() const;
  // Expects that no two live workers of one service share a pool and slot.
  void expect_no_duplicates() const;
  [[nodiscard]] std::string describe_state() const;

  // Requests that the controllers' ServiceAccount sent to the API server in this test.
  [[nodiscard]] std::vector<AuditEvent> requests() const;
  // The ones that were refused (403).
  [[nodiscard]] std::vector<AuditEvent> refusals() const;

 private:
  // The installation's token, shared by controllers and gateways.
  [[nodiscard]] std::string token_file() const;

  std::string account_;     // the controllers' ServiceAccount
  std::string started_at_;  // RFC 3339; audit events before it belong to other tests
  std::unique_ptr<Process> gateway_;
};

}  // namespace windlass::testing
