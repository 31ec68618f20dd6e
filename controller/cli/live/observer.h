// Observer: reads the state of a running Windlass over HTTP: the controller's last snapshot and plan, and the gateways'
// metrics. Read-only. Owns its transport; single-threaded.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "controller/cli/live/endpoints.h"
#include "controller/cli/live/live_view.h"
#include "controller/kube/http_transport.h"
#include "planner/base/result.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

class Observer {
 public:
  explicit Observer(Endpoints endpoints);
  // For tests: over any transport.
  Observer(Endpoints endpoints, std::unique_ptr<kube::HttpTransport> transport);

  struct Decision {
    planner::Snapshot snapshot;
    planner::Plan plan;
  };

  // The controller's last decision. kUnavailable if it has made none yet.
  [[nodiscard]] Result<Decision> decision();

  // Passes decision() and the gateways' metrics to `view`.
  [[nodiscard]] Result<void> observe(double now_s, LiveView& view);

  // Whether one GET of `url` answers 200.
  [[nodiscard]] bool answers(const std::string& url);

 private:
  [[nodiscard]] kube::HttpRequest request_of(const std::string& url) const;
  [[nodiscard]] Result<std::string> get(const std::string& url);

  Endpoints endpoints_;
  std::unique_ptr<kube::HttpTransport> transport_;
};

}  // namespace windlass::cli
