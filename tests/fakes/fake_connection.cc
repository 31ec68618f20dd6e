// One client's connection to FakeApiServer: faults, latency and watch streams.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "controller/kube/http_text.h"
#include "tests/fakes/fake_api_internal.h"

namespace windlass::fakes {

using kube::HttpRequest;
using kube::HttpResponse;
using kube::HttpStream;
using nlohmann::json;

namespace {

constexpr std::size_t kMaxLog = 20000;

Error lost(const std::string& what) { return {ErrorCode::kUnavailable, "connection to the API server: " + what}; }

}  // namespace

// A watch. It reads the server's history from its cursor; nothing is copied ahead of time.
class FakeStream final : public HttpStream {
 public:
  FakeStream(FakeConnection& connection, FakeApiServer::Route route)
      : connection_(&connection),
        server_(connection.server_),
        route_(std::move(route)),
        opened_s_(server_.now()),
        last_sent_s_(server_.now()) {
    connection_->streams_.insert(this);
    std::string from = route_.get("resourceVersion");
    if (from.empty() || from == "0") {
      // Without a version: first the state as ADDED events, then the changes.
      for (const auto& [key, object] : server_.state_at(*route_.kind, server_.version_)) {
        if (route_.selects(*object)) ready_ += line("ADDED", *object);
      }
      cursor_ = server_.version_;
    } else {
      cursor_ = std::stoull(from);
    }
    if (!route_.get("timeoutSeconds").empty()) timeout_s_ = std::stod(route_.get("timeoutSeconds"));
    const FaultRates& faults = connection_->faults;
    if (connection_->chance(faults.late_watch)) late_s_ = connection_->random_.uniform(0, faults.late_watch_s);
  }

  ~FakeStream() override {
    if (connection_ != nullptr) connection_->streams_.erase(this);
  }

  int status() const override { return heard_ ? status_ : 0; }

  std::map<std::string, std::string> headers() const override { return {}; }

  Result<Poll> poll() override {
    if (connection_ == nullptr || broken_) return lost("broken pipe");
    if (connection_->partitioned) silent_ = true;
    if (silent_) return Poll{};
    const FaultRates& faults = connection_->faults;
    if (connection_->chance(faults.cut_watch)) {
      broken_ = true;
      return lost("reset by the peer");
    }
    heard_ = true;
    if (!ended_) produce();
    Poll poll;
    if (!ready_.empty() && connection_->chance(faults.split_bytes)) {
      auto part = static_cast<std::size_t>(connection_->random_.integer(0, static_cast<std::int64_t>(ready_.size())));
      poll.bytes = ready_.substr(0, part);
      ready_.erase(0, part);
    } else {
      poll.bytes.swap(ready_);
    }
    poll.finished = ended_ && ready_.empty();
    return poll;
  }

  void answer(const HttpResponse& response) {
    status_ = response.status;
    ready_ = response.body;
    ended_ = true;
  }
  void fall_silent() { silent_ = true; }
  void fall_silent_at(double when_s) { silent_at_s_ = when_s; }
  void cut() { broken_ = true; }
  void forget_connection() { connection_ = nullptr; }

 private:
  std::string line(const std::string& type, const json& object) {
    last_sent_s_ = server_.now();
    std::string text = R"({"object":)" + kube::to_text(object) + R"(,"type":")" + type + R"("})";
    if (connection_->chance(connection_->faults.garble_watch)) text = text.substr(0, text.size() / 2) + "\x01";
    return text + "\n";
  }

  void produce() {
    if (server_.now() >= silent_at_s_) {
      silent_ = true;
      return;
    }
    if (cursor_ < server_.compacted_) {
      ready_ +=
          kube::to_text(
              {{"type", "ERROR"},
               {"object", status_object({410,
                                         "Expired",
                                         fmt::format("too old resource version: {} ({})", cursor_, server_.compacted_ + 1),
                                         {}})}}) +
          "\n";
      ended_ = true;
      return;
    }
    auto first =
        std::lower_bound(server_.history_.begin(), server_.history_.end(), cursor_ + 1,
                         [](const FakeApiServer::Change& change, std::uint64_t version) { return change.version < version; });
    for (; first != server_.history_.end(); ++first) {
      if (first->at_s + late_s_ > server_.now()) break;
      cursor_ = first->version;
      if (first->resource != route_.kind->resource) continue;
      bool was = first->before && route_.selects(*first->before);
      bool is = first->type != "DELETED" && route_.selects(*first->object);
      if (!was && !is) continue;
      // If an object stops matching the selector, this watcher sees DELETED; if it starts to match, ADDED.
      const std::string event = line(!was ? "ADDED" : is ? "MODIFIED" : "DELETED", *first->object);
      ready_ += event;
      if (connection_->chance(connection_->faults.duplicate_event)) ready_ += event;
    }
    if (first == server_.history_.end() && route_.get("allowWatchBookmarks") == "true" &&
        server_.now() >= last_sent_s_ + server_.options_.bookmark_every_s) {
      cursor_ = server_.version_;
      ready_ +=
          line("BOOKMARK", {{"apiVersion", route_.kind->resource.api_version()},
                            {"kind", route_.kind->resource.kind},
                            {"metadata", {{"resourceVersion", std::to_string(cursor_)}, {"creationTimestamp", nullptr}}}});
    }
    if (server_.now() >= opened_s_ + timeout_s_ || connection_->chance(connection_->faults.end_watch)) ended_ = true;
  }

  FakeConnection* connection_;
  FakeApiServer& server_;
  FakeApiServer::Route route_;
  double opened_s_;
  double last_sent_s_;
  double timeout_s_ = 1800;
  double silent_at_s_ = 1e300;
  double late_s_ = 0;
  std::uint64_t cursor_ = 0;
  int status_ = 200;
  std::string ready_;
  bool heard_ = false;  // the response head has arrived
  bool ended_ = false;  // the server has closed the stream; ready_ may still hold bytes
  bool broken_ = false;
  bool silent_ = false;
};

FakeConnection::FakeConnection(FakeApiServer& server, std::string name, std::uint64_t seed)
    : server_(server), name_(std::move(name)), random_(seed, "fake connection " + name_) {}

FakeConnection::~FakeConnection() {
  for (FakeStream* stream : streams_) stream->forget_connection();
}

std::unique_ptr<FakeConnection> FakeApiServer::connect(std::string name) {
  return std::unique_ptr<FakeConnection>(new FakeConnection(*this, std::move(name), options_.seed));
}

bool FakeConnection::chance(double probability) { return probability > 0 && random_.uniform() < probability; }

void FakeConnection::route(std::string url_prefix, std::function<Result<HttpResponse>(const HttpRequest&)> handler) {
  unroute(url_prefix);
  routes_.emplace_back(std::move(url_prefix), std::move(handler));
}

void FakeConnection::unroute(const std::string& url_prefix) {
  std::erase_if(routes_, [&](const auto& route) { return route.first == url_prefix; });
}

void FakeConnection::note(const HttpRequest& request, int status) {
  if (log_.size() >= kMaxLog) log_.erase(log_.begin(), log_.begin() + kMaxLog / 2);
  log_.push_back({request.method, request.url, request.body, status, server_.now()});
}

Result<HttpResponse> FakeConnection::exchange(const HttpRequest& request) {
  auto elapse = [&](double seconds) {
    if (seconds <= 0) return;
    if (server_.on_elapse) {
      server_.on_elapse(seconds);
    } else {
      server_.set_now(server_.now() + seconds);
    }
  };
  if (partitioned) {
    if (faults.latency_s > 0) elapse(request.timeout_s);
    return Error{ErrorCode::kDeadlineExceeded, "connection to the API server: no answer in time"};
  }
  double latency_s = faults.latency_s > 0 ? random_.uniform(0, 2 * faults.latency_s) : 0;
  double there_s = latency_s * (latency_s > 0 ? random_.uniform() : 0);
  if (there_s > request.timeout_s || chance(faults.drop_before) || (drop_request && drop_request(request))) {
    elapse(std::min(there_s, request.timeout_s));
    return lost("reset before the request was sent");
  }
  elapse(there_s);
  std::function<Result<HttpResponse>(const HttpRequest&)> handler;
  for (const auto& [prefix, candidate] : routes_) {
    if (!handler && request.url.starts_with(prefix)) handler = candidate;
  }
  Result<HttpResponse> response = HttpResponse{};
  if (handler) {
    response = handler(request);
  } else if (!request.url.starts_with(server_.url())) {
    return Error{ErrorCode::kUnavailable, request.method + " " + request.url + ": connection refused"};
  } else if (chance(faults.error_429)) {
    response = refusal_response({429, "TooManyRequests", "too many requests, please try again later", {}});
    response->headers["retry-after"] = std::to_string(faults.retry_after_s);
  } else if (chance(faults.error_500)) {
    response = refusal_response({500, "InternalError", "Internal error occurred: etcdserver: leader changed", {}});
  } else if (chance(faults.error_503)) {
    response = refusal_response({503, "ServiceUnavailable", "apiserver not ready", {}});
  } else {
    bool is_list = request.method == "GET" && chance(faults.stale_list);
    response = server_.handle(name_, request, is_list);
  }
  if (latency_s > request.timeout_s) {
    elapse(request.timeout_s - there_s);
    return Error{ErrorCode::kDeadlineExceeded, "connection to the API server: no answer in time"};
  }
  elapse(latency_s - there_s);
  if (!handler && chance(faults.drop_after)) return lost("reset while waiting for the answer");
  return response;
}

Result<HttpResponse> FakeConnection::send(const HttpRequest& request) {
  Result<HttpResponse> response = exchange(request);
  note(request, response.ok() ? response->status : 0);
  return response;
}

Result<std::unique_ptr<HttpStream>> FakeConnection::stream(const HttpRequest& request) {
  if (partitioned || chance(faults.refuse_watch) || (drop_request && drop_request(request))) {
    note(request, 0);
    return lost("refused");
  }
  std::optional<FakeApiServer::Route> route =
      request.url.starts_with(server_.url()) ? server_.parse(request.url) : std::nullopt;
  HttpResponse refusal = refusal_response({404, "NotFound", "the server could not find the requested resource", {}});
  bool refused = !route;
  if (!refused) {
    HttpRequest probe = request;  // the same checks (the token) as for any request
    probe.url = server_.url() + "/readyz";
    if (HttpResponse checked = server_.handle(name_, probe, false); checked.status != 200) {
      refusal = checked;
      refused = true;
    } else if (chance(faults.error_500)) {
      refusal = refusal_response({500, "InternalError", "Internal error occurred", {}});
      refused = true;
    } else if (std::string from = route->get("resourceVersion");
               chance(faults.gone_watch) ||
               (!from.empty() && from != "0" && std::stoull(from) < server_.compacted_ && chance(0.5))) {
      // A real server sends this in the response or as the first event; both happen here.
      refusal = refusal_response({410, "Expired", "too old resource version: " + from, {}});
      refused = true;
    }
  }
  note(request, refused ? refusal.status : 200);
  if (refused && !route) route = FakeApiServer::Route{&server_.kinds_.front(), "", "", "", {}};
  auto stream = std::make_unique<FakeStream>(*this, *route);
  if (refused) stream->answer(refusal);
  if (!refused && chance(faults.half_open_watch)) stream->fall_silent_at(server_.now() + random_.uniform(0, 120));
  return std::unique_ptr<HttpStream>(std::move(stream));
}

int FakeConnection::open_streams() const { return static_cast<int>(streams_.size()); }

void FakeConnection::cut_streams(bool half_open) {
  for (FakeStream* stream : streams_) half_open ? stream->fall_silent() : stream->cut();
}

}  // namespace windlass::fakes
