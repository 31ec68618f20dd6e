// ControllerTest: a cluster test with Windlass in it: the charts' CRDs and RBAC, a tiny model on a volume, an AcceleratorClass,
// and the real windlass-controller, windlass-gateway and (in pods) windlass-worker programs.
//
// Controllers run as processes of this machine, each with a token of its own of the chart's ServiceAccount, so that they may do
// exactly what the chart allows and the audit log can tell them apart.
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
  // A running controller, and what names it.
  struct Controller {
    std::string name;
    std::string url;         // "http://127.0.0.1:port"
    std::string credential;  // as the audit log has it
    std::unique_ptr<Process> process;

    [[nodiscard]] bool leads() const;
  };

  void SetUp() override;
  void TearDown() override;

  // Renders the chart's rights for a controller that watches this test's namespace alone and has the controllers that are
  // started from here on act under them.
  void narrow_rights();
  // A new token of the ServiceAccount that controllers run under.
  [[nodiscard]] std::string controller_token() const;
  // Starts a controller under the chart's ServiceAccount and waits until it answers /healthz.
  [[nodiscard]] Controller start_controller(const std::string& name, const std::string& worker_image = kWorkerImage,
                                            const std::vector<std::string>& flags = {});
  // What a controller answers to whoever has the installation's token.
  [[nodiscard]] HttpAnswer ask(const Controller& controller, const std::string& target) const;
  // Gives the installation another token; controllers and gateways read it again by themselves.
  void set_token(const std::string& token) const;
  // Starts a gateway that polls those controllers; returns its public address.
  [[nodiscard]] std::string start_gateway(const std::vector<const Controller*>& controllers);

  // The ModelService that the tests apply, named "chat"; change it before applying it.
  [[nodiscard]] nlohmann::json model_service() const;
  // What clients call it.
  [[nodiscard]] std::string served_name() const { return name_space() + "/chat"; }
  void apply_object(const nlohmann::json& object);
  // A merge patch to the spec of "chat".
  void patch_spec(const nlohmann::json& spec);
  [[nodiscard]] nlohmann::json service() const;  // "chat" as it is, or null

  // The worker pods of "chat" that are not being deleted.
  [[nodiscard]] std::vector<nlohmann::json> workers() const;
  [[nodiscard]] std::size_t ready_workers() const;
  // Names and uids, to see whether a worker was lost or replaced.
  [[nodiscard]] std::map<std::string, std::string> worker_uids() const;
  // No two live workers of one service, pool and slot.
  void expect_no_duplicates() const;
  [[nodiscard]] std::string describe_state() const;

  // What the API server was asked in this test by the ServiceAccount that controllers run under.
  [[nodiscard]] std::vector<AuditEvent> requests() const;
  // Those of them that it refused (403).
  [[nodiscard]] std::vector<AuditEvent> refusals() const;

 private:
  // With the installation's token, which controllers and gateways have.
  [[nodiscard]] std::string token_file() const;

  std::string account_;     // that controllers run under
  std::string started_at_;  // RFC 3339; audit events before it belong to other tests
  std::unique_ptr<Process> gateway_;
};

}  // namespace windlass::testing
