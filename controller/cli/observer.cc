// Fetches what the live view shows; see observer.h.
#include "controller/cli/observer.h"

#include <fmt/format.h>

#include "controller/kube/curl_transport.h"
#include "planner/policy/json.h"

namespace windlass::cli {
namespace {

constexpr double kTimeoutS = 5;

}  // namespace

Observer::Observer(Endpoints endpoints)
    : Observer(std::move(endpoints), std::make_unique<kube::CurlTransport>(kube::CurlOptions{})) {}

Observer::Observer(Endpoints endpoints, std::unique_ptr<kube::HttpTransport> transport)
    : endpoints_(std::move(endpoints)), transport_(std::move(transport)) {}

Result<std::string> Observer::get(const std::string& url) {
  kube::HttpRequest request;
  request.url = url;
  request.timeout_s = kTimeoutS;
  WINDLASS_ASSIGN_OR_RETURN(kube::HttpResponse response, transport_->send(request));
  if (response.status != 200) {
    return Error{ErrorCode::kUnavailable, fmt::format("GET {}: found status {}, expected 200", url, response.status)};
  }
  return response.body;
}

bool Observer::answers(const std::string& url) { return get(url).ok(); }

Result<Observer::Decision> Observer::decision() {
  WINDLASS_ASSIGN_OR_RETURN(const std::string snapshot_text, get(endpoints_.controller_url + "/v1/snapshot"));
  WINDLASS_ASSIGN_OR_RETURN(const std::string plan_text, get(endpoints_.controller_url + "/v1/plan"));
  auto snapshot = planner::snapshot_from_json(snapshot_text);
  if (!snapshot.ok()) return snapshot.error().within(endpoints_.controller_url + "/v1/snapshot");
  auto plan = planner::plan_from_json(plan_text);
  if (!plan.ok()) return plan.error().within(endpoints_.controller_url + "/v1/plan");
  return Decision{std::move(snapshot).value(), std::move(plan).value()};
}

Result<void> Observer::observe(double now_s, LiveView& view) {
  WINDLASS_ASSIGN_OR_RETURN(const Decision latest, decision());
  std::vector<kube::HttpRequest> requests;
  for (const auto& url : endpoints_.gateway_admin_urls) {
    kube::HttpRequest request;
    request.url = url + "/metrics";
    request.timeout_s = kTimeoutS;
    requests.push_back(std::move(request));
  }
  std::map<std::string, metrics::Exposition> gateways;
  const auto responses = transport_->send_all(requests);
  for (std::size_t i = 0; i < responses.size(); ++i) {
    if (!responses[i].ok() || responses[i]->status != 200) continue;
    if (auto page = metrics::parse_exposition(responses[i]->body); page.ok()) {
      gateways.emplace(endpoints_.gateway_admin_urls[i], std::move(page).value());
    }
  }
  view.observe(now_s, latest.snapshot, latest.plan, gateways);
  return {};
}

}  // namespace windlass::cli
