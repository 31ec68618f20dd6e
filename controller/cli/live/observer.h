// Observer: reads a running Windlass over HTTP (the controller's last snapshot and plan, the gateways' metrics). Changes
// nothing there. Owns its transport; single-threaded.
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

  // The controller's last decision. kUnavailable while it has made none.
  [[nodiscard]] Result<Decision> decision();

  // decision() and the gateways' metrics, taken into `view`.
  [[nodiscard]] Result<void> observe(double now_s, LiveView& view);

  // GET of controller or gateway paths until one answers 200: "is it up yet?". False on anything else.
  [[nodiscard]] bool answers(const std::string& url);

 private:
  [[nodiscard]] kube::HttpRequest request_of(const std::string& url) const;
  [[nodiscard]] Result<std::string> get(const std::string& url);

  Endpoints endpoints_;
  std::unique_ptr<kube::HttpTransport> transport_;
};

}  // namespace windlass::cli
