// Fetches the data of the live view; see observer.h.
#include "controller/cli/live/observer.h"

#include <fmt/format.h>

#include "controller/kube/curl_transport.h"
#include "planner/policy/json.h"

namespace windlass::cli {
namespace {

constexpr double kTimeoutS = 5;

std::unique_ptr<kube::HttpTransport> transport_to(const Access& access) {
  kube::CurlOptions options;
  options.tls.ca_pem = access.ca_pem;
  options.tls.server_name = access.server_name;
  return std::make_unique<kube::CurlTransport>(std::move(options));
}

}  // namespace

Observer::Observer(Endpoints endpoints) : Observer(endpoints, transport_to(endpoints.access)) {}

Observer::Observer(Endpoints endpoints, std::unique_ptr<kube::HttpTransport> transport)
    : endpoints_(std::move(endpoints)), transport_(std::move(transport)) {}

kube::HttpRequest Observer::request_of(const std::string& url) const {
  kube::HttpRequest request;
  request.url = url;
  request.timeout_s = kTimeoutS;
  if (!endpoints_.access.token.empty()) request.headers["Authorization"] = "Bearer " + endpoints_.access.token;
  return request;
}

Result<std::string> Observer::get(const std::string& url) {
  WINDLASS_ASSIGN_OR_RETURN(kube::HttpResponse response, transport_->send(request_of(url)));
  if (response.status == 401) {
    return Error{ErrorCode::kPermissionDenied,
                 fmt::format("GET {}: must answer 200 (got 401); give the installation's token with --token-file", url)};
  }
  if (response.status != 200) {
    return Error{ErrorCode::kUnavailable, fmt::format("GET {}: must answer 200 (got {})", url, response.status)};
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
  for (const char* path : {"/metrics", "/latencies"}) {
    for (const auto& url : endpoints_.gateway_admin_urls) requests.push_back(request_of(url + path));
  }
  std::map<std::string, metrics::Exposition> gateways;
  const auto responses = transport_->send_all(requests);
  const auto page_of = [&](std::size_t i) -> std::optional<metrics::Exposition> {
    if (!responses[i].ok() || responses[i]->status != 200) return std::nullopt;
    auto page = metrics::parse_exposition(responses[i]->body);
    return page.ok() ? std::optional(std::move(page).value()) : std::nullopt;
  };
  const std::size_t count = endpoints_.gateway_admin_urls.size();
  for (std::size_t i = 0; i < count; ++i) {
    auto page = page_of(i);
    if (!page) continue;
    // Older gateways have no such page; their histograms are used instead.
    if (auto latencies = page_of(count + i)) metrics::add_latency_bins(*page, std::move(*latencies));
    gateways.emplace(endpoints_.gateway_admin_urls[i], std::move(*page));
  }
  view.observe(now_s, latest.snapshot, latest.plan, gateways);
  return {};
}

}  // namespace windlass::cli
