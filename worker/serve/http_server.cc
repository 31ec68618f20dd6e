// Routes requests to handlers, enforces limits and sends refusals; see http_server.h.
#include "worker/serve/http_server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <list>
#include <random>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "metrics/net/http_service.h"
#include "metrics/security/files.h"
#include "metrics/security/secrets.h"
#include "planner/base/percent.h"
#include "worker/parallel/chain_steps.h"
#include "worker/parallel/kv_stream.h"
#include "worker/parallel/kv_wire.h"
#include "worker/serve/chain_http.h"
#include "worker/serve/duty.h"
#include "worker/serve/exchange.h"
#include "worker/serve/kv_http.h"
#include "worker/serve/request_input.h"
#include "worker/serve/side_threads.h"
#include "worker/serve/target.h"

namespace windlass::worker {
namespace {

using nlohmann::ordered_json;

constexpr int kHttpThreads = 8;
// High, because gateways and other workers of a chain use one connection per request.
constexpr net::HttpLimits kLimits{
    .head_bytes = 32U << 10U, .body_bytes = kMaxBodyBytes, .connections = 8192, .connections_per_peer = 4096};
// Limit of all request bodies in memory together; clients that respect the number of concurrent requests stay below it.
constexpr std::size_t kMaxBodiesBytes = std::size_t{256} << 20U;
// Larger bodies go to side threads: tokenizing megabytes takes seconds, which would block the threads that serve everyone.
constexpr std::size_t kLargeBodyBytes = 32U << 10U;
constexpr int kSideThreads = 2;

// Keeps the served model alive; HttpServer::withdraw() waits until none is left.
using Lease = std::shared_ptr<const Served>;

// Replaces invalid UTF-8, which a served name may contain.
std::string printed(const ordered_json& value) { return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

std::string role_body(Role role) { return ordered_json{{"role", to_string(role)}}.dump(); }

std::int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(HttpServerOptions o, const metrics::Registry& r, const metrics::WorkerMetrics& m, const Clock& c)
      : options(std::move(o)),
        registry(r),
        metrics(m),
        clock(c),
        created(unix_now_s()),
        duty(options.role, options.some_blocks) {}

  using Token = std::shared_ptr<void>;
  const HttpServerOptions options;
  const metrics::Registry& registry;
  const metrics::WorkerMetrics& metrics;
  const Clock& clock;
  const std::int64_t created;
  Duty duty;
  std::atomic<std::uint64_t> next_response{1};
  std::shared_ptr<std::atomic<int>> open = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<net::HttpService> service;
  SideThreads* side = nullptr;                     // set while the server listens
  int stream_port = 0;                             // set before the server listens; 0: no streams
  int step_port = 0;                               // likewise for steps of chains
  mutable std::mutex mutex;                        // protects the members below
  Lease serving;                                   // null while nothing is served
  std::shared_ptr<std::promise<void>> given_back;  // fulfilled when the last lease ends
  std::list<std::weak_ptr<Exchange>> exchanges;
  std::mt19937_64 seeds{std::random_device{}()};

  [[nodiscard]] Lease current() const {
    const std::scoped_lock lock(mutex);
    return serving;
  }
  Token make_token() const {
    ++*open;
    return {nullptr, [count = open](void*) { --*count; }};
  }

  [[nodiscard]] net::HttpServer::Options service_options();
  [[nodiscard]] std::size_t max_body(std::string_view target) const;
  [[nodiscard]] std::optional<net::Refusal> admit(const net::http::request_header<>& head) const;
  void handle(const net::ServerCall& call);
  void route(const net::ServerCall& call, std::string body, const Token& token);
  void answer_post(const net::ServerCall& call, Target target, std::string body, const Token& token);
  void answer_get(const net::ServerCall& call, Target target, const Token& token);
  void generate(const net::ServerCall& call, Endpoint endpoint, const std::string& body, const Token& token);
  void begin_chain(const net::ServerCall& call, Endpoint endpoint, const Lease& lease, const ApiRequest& api,
                   std::vector<GenerationRequest> choices, const Token& token);
  void start(const net::ServerCall& call, Endpoint endpoint, const Lease& lease, const ApiRequest& api,
             std::vector<GenerationRequest> choices, const Token& token);
  void chain_call(const net::ServerCall& call, ChainVerb verb, std::string body, const Token& token);
  [[nodiscard]] bool may_change(const net::ServerCall& call, const char* what, const Token& token);
  void change_role(const net::ServerCall& call, const std::string& body, const Token& token);
  void change_blocks(const net::ServerCall& call, const std::string& body, const Token& token);
  void refuse_for_blocks(const net::ServerCall& call, const ServedBlocks& loaded, const Token& token);
  void refuse_for_phase(const net::ServerCall& call, Phase now, const Token& token);
  void tokenize(const net::ServerCall& call, bool encode, const std::string& body, const Token& token);
  [[nodiscard]] ApiModel against(const ServedModel& loaded) const;
  void refuse(const net::ServerCall& call, const ApiError& error, const Token& token, const std::string& rejected = "",
              const std::string& allow = "");
  // Runs `answer`; if it throws, answers 500.
  void guarded(const net::ServerCall& call, const Token& token, const std::function<void()>& answer);
  // Handles requests that need the tokenizer.
  void take(const net::ServerCall& call, const std::string& path, const std::string& body, const Token& token);
  ordered_json model_entry() const;
  // The stage that computes steps received over connections; null if there is none.
  std::shared_ptr<ChainStage> stage() const;
  [[nodiscard]] std::string ready_body(Phase now) const;
  // The current source of keys and values, for streams and GET /kv.
  KvSource kv_source() const;
};

void HttpServer::Impl::refuse(const net::ServerCall& call, const ApiError& error, const Token& token,
                              const std::string& rejected, const std::string& allow) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (!rejected.empty()) {
    headers.emplace_back("X-Windlass-Rejected", rejected);
    headers.emplace_back("Retry-After", "1");
    metrics.requests_finished("rejected").add(1);
  }
  if (!allow.empty()) headers.emplace_back("Allow", allow);
  if (duty.phase() == Phase::kDraining) headers.emplace_back("Connection", "close");
  if (const std::string id = request_id_of(call); !id.empty()) headers.emplace_back("X-Request-Id", id);
  send_response(call, error.status, error_body(error), "application/json", headers, token);
}

void HttpServer::Impl::handle(const net::ServerCall& call) {
  const Token token = make_token();
  guarded(call, token, [&] { route(call, std::move(call.body()), token); });
}

// A step of a chain contains hidden states, which may be larger than any text.
std::size_t HttpServer::Impl::max_body(std::string_view target) const {
  if (chain_verb_of(target) != ChainVerb::kStep) return kMaxBodyBytes;
  const Lease lease = current();
  return lease && lease->blocks ? std::max(kMaxBodyBytes, max_step_bytes(lease->blocks->config.hidden_size)) : kMaxBodyBytes;
}

// Checks the caller's token before the body is read. /role and /blocks check another token later, in may_change().
std::optional<net::Refusal> HttpServer::Impl::admit(const net::http::request_header<>& head) const {
  if (options.caller_token.empty()) return std::nullopt;
  const std::string_view target(head.target().data(), head.target().size());
  const std::string_view path = target.substr(0, target.find('?'));
  for (const std::string_view open : {"/health", "/ready", "/metrics", "/v1/models", "/role", "/blocks"}) {
    if (path == open) return std::nullopt;
  }
  const auto shown = head[net::http::field::authorization];
  if (security::same_secret(security::bearer({shown.data(), shown.size()}), options.caller_token)) return std::nullopt;
  net::Refusal refused;
  refused.status = 401;
  refused.code = "unauthorized";
  refused.message =
      "Authorization: must be 'Bearer TOKEN' with this worker's token (got none or a different one); send requests to the "
      "gateway";
  return refused;
}

net::HttpServer::Options HttpServer::Impl::service_options() {
  net::HttpServer::Options out;
  out.limits = kLimits;
  out.limits.connections = net::connections_within_file_limit(kLimits.connections);
  out.memory = std::make_shared<net::MemoryBudget>(kMaxBodiesBytes);
  out.max_body = [this](const net::http::request_header<>& head) {
    return max_body({head.target().data(), head.target().size()});
  };
  out.admit = [this](const net::http::request_header<>& head) { return admit(head); };
  out.refusal_body = [](const net::Refusal& refused) {
    return error_body(
        {refused.status, refused.message, refused.status < 500 ? "invalid_request_error" : "server_error", "", refused.code});
  };
  return out;
}

void HttpServer::Impl::guarded(const net::ServerCall& call, const Token& token, const std::function<void()>& answer) {
  std::string why = "an exception that is not a std::exception";
  try {
    return answer();
  } catch (const std::exception& e) {
    why = e.what();
  } catch (...) {  // an exception of any type ends one request, not the worker
  }
  spdlog::warn("request failed: {}", why);
  try {
    refuse(call, {500, "this worker failed to read or answer the request", "server_error"}, token);
  } catch (const std::exception&) {
    // Already answered, or the client has left.
  }
}

void HttpServer::Impl::route(const net::ServerCall& call, std::string body, const Token& token) {
  const Target target = target_of(call.path());
  const std::string& method = call.method();
  if (target == Target::kUnknown) {
    return refuse(call,
                  {404,
                   fmt::format("path: must be /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize, "
                               "/health, /ready, /metrics, /role, /blocks, /kv/SESSION or /chain/VERB (got {})",
                               call.path()),
                   "invalid_request_error", "", "not_found"},
                  token);
  }
  if (!allows(target, method)) {
    const std::string allowed(methods_of(target));
    return refuse(call,
                  {405, fmt::format("method: must be one of {} for {} (got {})", allowed, call.path(), method),
                   "invalid_request_error", "", "method_not_allowed"},
                  token, "", allowed);
  }
  if (method == "POST") return answer_post(call, target, std::move(body), token);
  answer_get(call, target, token);
}

void HttpServer::Impl::answer_post(const net::ServerCall& call, Target target, std::string body, const Token& token) {
  const std::string& path = call.path();
  if (target == Target::kChain) return chain_call(call, *chain_verb_of(path), std::move(body), token);
  if (target == Target::kRole) return change_role(call, body, token);
  if (target == Target::kBlocks) return change_blocks(call, body, token);
  if (body.size() <= kLargeBodyBytes) return take(call, path, body, token);
  const bool posted = side->post([self = shared_from_this(), call, path, body = std::move(body), token] {
    self->guarded(call, token, [&] { self->take(call, path, body, token); });
  });
  if (!posted) refuse(call, {503, "too many large requests are waiting", "server_error", "", "full"}, token, "full");
}

void HttpServer::Impl::answer_get(const net::ServerCall& call, Target target, const Token& token) {
  const auto json = [&](const std::string& body) { send_response(call, 200, body, "application/json", {}, token); };
  switch (target) {
    case Target::kKv: {
      const KvSource from = kv_source();
      if (from.exports == nullptr)
        return refuse(call, {404, "this worker has no sessions now", "server_error", "", "loading"}, token);
      return answer_kv(call, from.exports, from.taken, token, stream_port);
    }
    case Target::kRole: return json(role_body(duty.role()));
    case Target::kBlocks: return json(duty.blocks_body());
    case Target::kMetrics: return send_response(call, 200, registry.exposition(), metrics::kExpositionContentType, {}, token);
    case Target::kModels: return json(printed({{"object", "list"}, {"data", ordered_json::array({model_entry()})}}));
    case Target::kModel: {
      const std::string name = percent_decoded(std::string_view(call.path()).substr(kModelPath.size())).value_or("");
      if (name == options.served_name) return json(printed(model_entry()));
      return refuse(
          call,
          {404,
           fmt::format("model: must be '{}', which this worker serves (got '{}')", options.served_name, name.substr(0, 200)),
           "invalid_request_error", "model", "model_not_found"},
          token);
    }
    case Target::kHealth: return json(R"({"status":"ok"})");
    default: {
      const Phase now = duty.phase();
      return send_response(call, now == Phase::kReady ? 200 : 503, ready_body(now), "application/json", {}, token);
    }
  }
}

std::string HttpServer::Impl::ready_body(Phase now) const {
  ordered_json body = {{"status", texts_of(now).status}};
  if (now == Phase::kLoading && options.progress != nullptr) {
    const LoadProgressNow progress = options.progress->now();
    body["stage"] = to_string(progress.stage);
    body["read_bytes"] = progress.read_bytes;
    body["total_bytes"] = progress.total_bytes;
  }
  return body.dump();
}

KvSource HttpServer::Impl::kv_source() const {
  const Lease lease = current();
  if (!lease || !lease->model) return {};
  return {{lease, lease->model->exports.get()}, [served = std::weak_ptr<const Served>(lease)](const std::string& session) {
            if (const Lease still = served.lock()) still->model->engine->taken(session);
          }};
}

ordered_json HttpServer::Impl::model_entry() const {
  ordered_json entry = {{"id", options.served_name}, {"object", "model"}, {"created", created}, {"owned_by", "windlass"}};
  if (const Lease lease = current()) {
    entry["max_model_len"] =
        lease->model ? lease->model->engine->options().max_context_tokens : lease->blocks->stage->options().max_tokens;
  }
  return entry;
}

ApiModel HttpServer::Impl::against(const ServedModel& loaded) const {
  return {loaded.served_name,       loaded.texts->tokenizer, *loaded.texts->chat,
          loaded.engine->options(), loaded.config,           unix_now_s()};
}

void HttpServer::Impl::tokenize(const net::ServerCall& call, bool encode, const std::string& body, const Token& token) {
  const Lease lease = current();
  if (lease && lease->blocks) return refuse_for_blocks(call, *lease->blocks, token);
  if (!lease) {
    return refuse(call, {503, "this worker is loading and has no tokenizer now", "server_error", "", "loading"}, token);
  }
  const ApiModel model = against(*lease->model);
  const auto answer = encode ? tokenize_body(body, model) : detokenize_body(body, model);
  if (const auto* error = std::get_if<ApiError>(&answer)) return refuse(call, *error, token);
  send_response(call, 200, std::get<std::string>(answer), "application/json", {}, token);
}

void HttpServer::Impl::generate(const net::ServerCall& call, Endpoint endpoint, const std::string& body, const Token& token) {
  const Phase now = duty.phase();
  const Lease lease = current();
  if (lease && lease->blocks) return refuse_for_blocks(call, *lease->blocks, token);
  if (now != Phase::kReady || !lease) return refuse_for_phase(call, now, token);
  const ServedModel& loaded = *lease->model;
  std::uint64_t seed = 0;
  {
    const std::scoped_lock lock(mutex);
    seed = seeds();
  }
  auto parsed = parse_request(endpoint, body, against(loaded), seed);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return refuse(call, *error, token);
  ApiRequest& api = std::get<ApiRequest>(parsed);
  const auto sessions = sessions_of(call, static_cast<std::size_t>(api.choices));
  if (const auto* error = std::get_if<ApiError>(&sessions)) return refuse(call, *error, token);
  std::vector<GenerationRequest> choices = choices_of(api);
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i].kv = std::get<std::vector<KvSession>>(sessions)[i];
  if (loaded.chains != nullptr) return begin_chain(call, endpoint, lease, api, std::move(choices), token);
  start(call, endpoint, lease, api, std::move(choices), token);
}

void HttpServer::Impl::refuse_for_phase(const net::ServerCall& call, Phase now, const Token& token) {
  const PhaseTexts texts = texts_of(now == Phase::kReady ? Phase::kChanging : now);  // ready: a change has just begun or ended
  refuse(call, {503, fmt::format("this worker {} and accepts no requests", texts.why), "server_error", "", texts.rejected},
         token, texts.rejected);
}

void HttpServer::Impl::refuse_for_blocks(const net::ServerCall& call, const ServedBlocks& loaded, const Token& token) {
  const ChainStageOptions& is = loaded.stage->options();
  refuse(call,
         {503,
          fmt::format("this worker serves only blocks {}:{} of {}: send requests to the first worker of its chain",
                      is.blocks.first, is.blocks.end, is.model.layers),
          "server_error", "", "role"},
         token, "role");
}

void HttpServer::Impl::take(const net::ServerCall& call, const std::string& path, const std::string& body, const Token& token) {
  if (path == "/tokenize" || path == "/detokenize") return tokenize(call, path == "/tokenize", body, token);
  generate(call, path == "/v1/completions" ? Endpoint::kCompletions : Endpoint::kChatCompletions, body, token);
}

void HttpServer::Impl::chain_call(const net::ServerCall& call, ChainVerb verb, std::string body, const Token& token) {
  const Lease lease = current();
  if (lease && lease->blocks) return answer_chain(call, *lease->blocks->stage, verb, std::move(body), token, step_port);
  // Sessions exist only on workers with a stage. Report those of a keep call as over, so that the caller stops immediately.
  if (verb == ChainVerb::kKeep) {
    const auto names = sessions_from(body);
    return send_chain_answer(call, names.ok() ? sessions_over(*names) : ChainAnswer{400, "", names.error().message}, token);
  }
  if (!lease) return send_chain_answer(call, {503, "loading", "this worker is loading"}, token);
  const BlockRange is = lease->model->blocks;
  send_chain_answer(
      call,
      {409, "",
       fmt::format("blocks: must start after the model's first to serve other workers of a chain (got {}:{} here)", is.first,
                   is.end)},
      token);
}

std::shared_ptr<ChainStage> HttpServer::Impl::stage() const {
  const Lease lease = current();
  return lease && lease->blocks ? std::shared_ptr<ChainStage>(lease, lease->blocks->stage.get()) : nullptr;
}

// Reserves room at all workers of the chain before the request starts.
void HttpServer::Impl::begin_chain(const net::ServerCall& call, Endpoint endpoint, const Lease& lease, const ApiRequest& api,
                                   std::vector<GenerationRequest> choices, const Token& token) {
  const ServedModel& loaded = *lease->model;
  const std::string header = call.header(kChainHeader);
  auto hops = header.empty() ? Result<std::vector<std::string>>(loaded.next_hops) : hops_from(header);
  if (!hops.ok()) return refuse(call, bad_header(kChainHeader, header, "HOST:PORT,HOST:PORT..."), token);
  if (hops->empty()) {
    return refuse(
        call,
        {503,
         fmt::format("{}: must name the workers of the other blocks, because this worker serves only blocks {}:{} of {} "
                     "(got nothing, and no --next at its start)",
                     kChainHeader, loaded.blocks.first, loaded.blocks.end, loaded.config.layers),
         "server_error", "", "role"},
        token, "role");
  }
  const EngineOptions& limits = loaded.engine->options();
  std::vector<std::string> sessions;
  std::int64_t tokens = 0;
  for (GenerationRequest& choice : choices) {
    if (choice.kv.sends() || choice.kv.receives()) {
      return refuse(call,
                    {400, fmt::format("{} and {}: must not be set for a worker that serves only blocks {}:{} (got one of them)",
                                      kPhaseHeader, kPrefilledHeader, loaded.blocks.first, loaded.blocks.end)},
                    token);
    }
    if (const auto fit = Engine::check(limits, loaded.config.vocab_size, choice); !fit.ok())
      return refuse(call, {400, fit.error().message}, token);
    choice.chain = new_session_id();
    sessions.push_back(choice.chain);
    const auto prompt = static_cast<std::int64_t>(choice.prompt.size());
    tokens = std::max(tokens, prompt + std::min(choice.max_tokens, limits.max_context_tokens - prompt));
  }
  loaded.chains->reserve(
      std::move(sessions), std::move(hops).value(), tokens,
      [self = shared_from_this(), call, endpoint, lease, api, choices = std::move(choices),
       token](const Result<void>& reserved) mutable {
        self->guarded(call, token, [&] {
          if (reserved.ok()) return self->start(call, endpoint, lease, api, std::move(choices), token);
          const bool full = reserved.error().code == ErrorCode::kResourceExhausted;
          const std::string why = full ? "full" : "chain";
          spdlog::debug("the chain cannot be used now: {}", reserved.error().message);
          self->refuse(
              call, {503, fmt::format("the chain cannot be used now: {}", reserved.error().message), "server_error", "", why},
              token, why);
        });
      });
}

namespace {

// Releases its sessions when destroyed, unless taken_over() was called.
class HeldSessions {
 public:
  explicit HeldSessions(ChainSessions* chains) : chains_(chains) {}
  ~HeldSessions() {
    for (const std::string& name : names_) chains_->release(name);
  }
  HeldSessions(const HeldSessions&) = delete;
  HeldSessions& operator=(const HeldSessions&) = delete;

  void add(const std::string& name) { names_.push_back(name); }
  [[nodiscard]] bool any() const { return !names_.empty(); }
  void taken_over() { names_.clear(); }

 private:
  ChainSessions* chains_;
  std::vector<std::string> names_;
};

// Pairs each choice with the sink of its tokens. Sinks may refer to `loaded`: its engine, which calls them, is destroyed first.
std::vector<std::pair<GenerationRequest, EngineLoop::Sink>> with_sinks(std::vector<GenerationRequest> choices, bool sends,
                                                                       const std::shared_ptr<Exchange>& exchange,
                                                                       const ServedModel& loaded) {
  std::vector<std::pair<GenerationRequest, EngineLoop::Sink>> all;
  for (GenerationRequest& choice : choices) {
    const int index = static_cast<int>(all.size());
    if (sends) loaded.exports->open(choice.kv.id, choice.prompt, [exchange] { exchange->begun(); });
    const std::string session = sends ? choice.kv.id : "";
    const std::string chain = choice.chain;
    all.emplace_back(std::move(choice), [exchange, index, session, chain, &loaded](const TokenEvent& event) {
      if (event.finish && !session.empty()) loaded.exports->close(session);
      if (event.finish && !chain.empty()) loaded.chains->release(chain);
      exchange->on_event(index, event);
    });
  }
  return all;
}

}  // namespace

void HttpServer::Impl::start(const net::ServerCall& call, Endpoint endpoint, const Lease& lease, const ApiRequest& api,
                             std::vector<GenerationRequest> choices, const Token& token) {
  const ServedModel& loaded = *lease->model;
  EngineLoop& engine = *loaded.engine;
  HeldSessions chained(loaded.chains.get());
  for (const GenerationRequest& choice : choices) {
    if (!choice.chain.empty()) chained.add(choice.chain);
  }
  const bool sends = choices.front().kv.sends();
  const Role is = duty.role();
  if (is == (sends ? Role::kDecode : Role::kPrefill) && call.header(kMixedPoolHeader).empty()) {
    return refuse(
        call,
        {503,
         fmt::format("role: must be unified or {} to accept {} (got {})", to_string(sends ? Role::kPrefill : Role::kDecode),
                     sends ? "prompts for other workers" : "whole requests", to_string(is)),
         "server_error", "", "role"},
        token, "role");
  }
  const std::uint64_t number = next_response.fetch_add(1);
  const std::string id =
      fmt::format("{}-{:x}-{}", endpoint == Endpoint::kChatCompletions ? "chatcmpl" : "cmpl", created, number);
  std::vector<std::string> sent;
  for (const GenerationRequest& choice : choices) {
    if (sends) sent.push_back(choice.kv.id);
  }
  auto exchange = std::make_shared<Exchange>(Exchange::Parts{
      call,
      ResponseFormat(
          endpoint, id, loaded.served_name, unix_now_s(), api.stream && api.include_usage,
          [texts = loaded.texts](std::int32_t token_id) { return texts->tokenizer.special_text(token_id); }, api.choices_each),
      request_id_of(call), api.stream && !sends, api.include_usage, api.choices,
      chained.any() && !call.header(kChainHeader).empty(), sessions_text(sent), clock.now_s(), options.request_timeout_s,
      token});
  const auto taken = engine.submit_all(with_sinks(std::move(choices), sends, exchange, loaded));
  if (!taken.ok()) {
    for (const std::string& session : sent) loaded.exports->close(session);
    const bool full = taken.error().code == ErrorCode::kResourceExhausted;
    const bool draining = taken.error().code == ErrorCode::kFailedPrecondition;
    if (!full && !draining) return refuse(call, {400, taken.error().message}, token);
    if (draining) return refuse_for_phase(call, duty.phase(), token);
    return refuse(call, {503, taken.error().message, "server_error", "", "full"}, token, "full");
  }
  chained.taken_over();  // by the sinks, which receive the end of every choice
  {
    const std::scoped_lock lock(mutex);
    exchanges.push_back(exchange);
  }
  exchange->accepted([held = std::shared_ptr<EngineLoop>(lease, &engine), ids = *taken] {
    for (const RequestId each : ids) held->cancel(each, "the client left or another choice failed");
  });
}

// Returns whether the caller has one of the tokens that allow it; if not, sends a refusal.
bool HttpServer::Impl::may_change(const net::ServerCall& call, const char* what, const Token& token) {
  if (options.token_file.empty() && options.duty_token.empty()) {
    refuse(call,
           {403, fmt::format("--token-file or {}: must be given at this worker's start to change its {} (got nothing)",
                             kDutyTokenVariable, what)},
           token);
    return false;
  }
  const std::string header = call.header("Authorization");
  const std::string_view shown = security::bearer(header);
  if (!options.duty_token.empty() && security::same_secret(shown, options.duty_token)) return true;
  const ApiError wrong{401, "Authorization: must be 'Bearer TOKEN' with a token for changes (got none or a different one)"};
  if (options.token_file.empty()) {
    refuse(call, wrong, token);
    return false;
  }
  const auto file = security::read_file(options.token_file);
  const auto expected = file.ok() ? security::parse_token(*file) : Result<std::string>(file.error());
  if (!expected.ok()) {
    spdlog::error("--token-file: {}", expected.error().message);
    refuse(call, {500, "this worker cannot read its --token-file", "server_error"}, token);
    return false;
  }
  if (!security::same_secret(shown, *expected)) {
    refuse(call, wrong, token);
    return false;
  }
  return true;
}

void HttpServer::Impl::change_role(const net::ServerCall& call, const std::string& body, const Token& token) {
  if (const auto fixed = duty.fixed_role()) return refuse(call, *fixed, token);
  if (!may_change(call, "role", token)) return;
  const auto wanted = role_in(body);
  if (const auto* error = std::get_if<ApiError>(&wanted)) return refuse(call, *error, token);
  const Role role = std::get<Role>(wanted);
  const auto changed = duty.change_role(role);
  if (const auto* error = std::get_if<ApiError>(&changed)) return refuse(call, *error, token);
  const Role before = std::get<Role>(changed);
  if (before != role) spdlog::info("role: changed from {} to {}", to_string(before), to_string(role));
  send_response(call, 200, role_body(role), "application/json", {}, token);
}

// Leaves the change and the answer to main's thread. Answers here if the worker already has these blocks.
void HttpServer::Impl::change_blocks(const net::ServerCall& call, const std::string& body, const Token& token) {
  if (!may_change(call, "blocks", token)) return;
  if (options.fixed_blocks) return refuse(call, {403, *options.fixed_blocks}, token);
  const auto wanted = blocks_in(body);
  if (const auto* error = std::get_if<ApiError>(&wanted)) return refuse(call, *error, token);
  const auto asked = duty.ask({std::get<BlockRange>(wanted), call, token});
  if (const auto* error = std::get_if<ApiError>(&asked)) return refuse(call, *error, token);
  if (!std::get<bool>(asked)) send_response(call, 200, duty.blocks_body(), "application/json", {}, token);
}

HttpServer::HttpServer(HttpServerOptions options, const metrics::Registry& registry, const metrics::WorkerMetrics& metrics,
                       const Clock& clock)
    : impl_(std::make_shared<Impl>(std::move(options), registry, metrics, clock)) {}

HttpServer::~HttpServer() { static_cast<void>(close(0)); }

Result<void> HttpServer::open() {
  const HttpServerOptions& options = impl_->options;
  auto streams = KvStreamServer::open(options.host, [impl = std::weak_ptr<Impl>(impl_)] {
    const auto self = impl.lock();
    return self ? self->kv_source() : KvSource();
  });
  if (streams.ok()) {
    streams_ = std::move(streams).value();
    impl_->stream_port = streams_->port();
  } else {
    spdlog::warn("keys and values are sent over HTTP only: {}", streams.error().message);
  }
  auto steps = ChainStepServer::open(options.host, [impl = std::weak_ptr<Impl>(impl_)] {
    const auto self = impl.lock();
    return self ? self->stage() : nullptr;
  });
  if (steps.ok()) {
    steps_ = std::move(steps).value();
    impl_->step_port = steps_->port();
  } else {
    spdlog::warn("steps of chains are received over HTTP only: {}", steps.error().message);
  }
  side_ = std::make_unique<SideThreads>(kSideThreads);
  impl_->side = side_.get();
  impl_->service = std::make_unique<net::HttpService>(
      impl_->service_options(),
      [impl = std::weak_ptr<Impl>(impl_)](const net::ServerCall& call) {
        if (const auto self = impl.lock()) self->handle(call);
      },
      kHttpThreads);
  return impl_->service->open({options.host, std::to_string(options.port)});
}

void HttpServer::serve(const Served& served) {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->given_back = std::make_shared<std::promise<void>>();
    impl_->serving = Lease(&served, [all = impl_->given_back](const Served*) { all->set_value(); });
  }
  impl_->duty.serve(served.range(), served.layers());
}

std::optional<BlockRange> HttpServer::wanted_blocks() const { return impl_->duty.wanted_blocks(); }

void HttpServer::begin_change() { impl_->duty.begin_change(); }

std::future<void> HttpServer::withdraw() {
  Lease ours;  // perhaps the last lease: must end after the lock
  std::future<void> given_back;
  {
    const std::scoped_lock lock(impl_->mutex);
    given_back = impl_->given_back->get_future();
    ours.swap(impl_->serving);
  }
  return given_back;
}

void HttpServer::changed(const std::optional<Error>& failure) {
  const auto asked = impl_->duty.changed();
  if (!asked) return;
  if (!failure) return send_response(asked->call, 200, impl_->duty.blocks_body(), "application/json", {}, asked->token);
  const std::string found = to_string(asked->blocks);
  impl_->refuse(asked->call,
                {500, fmt::format("blocks: must be a range that this worker can serve (got {}): {}", found, failure->message),
                 "server_error"},
                asked->token);
}

void HttpServer::drain() {
  if (const auto asked = impl_->duty.drain()) impl_->refuse(asked->call, no_change(Phase::kDraining), asked->token);
}

void HttpServer::tick(const Served* served) {
  std::vector<std::shared_ptr<Exchange>> live;
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->exchanges.remove_if([&](const std::weak_ptr<Exchange>& weak) {
      auto exchange = weak.lock();
      if (!exchange || exchange->finished()) return true;
      live.push_back(std::move(exchange));
      return false;
    });
  }
  const double now_s = impl_->clock.now_s();
  if (served != nullptr && served->model) {
    const ServedModel* model = served->model.get();
    for (const auto& [session, silent_s] : model->exports->tick()) {
      spdlog::warn("session {}: its keys and values are discarded, because no worker asked for them in {:g} s",
                   session_in_log(session), silent_s);
      model->engine->abandoned(session);
    }
    if (model->chains != nullptr) model->chains->tick();
  }
  if (served != nullptr && served->blocks) served->blocks->stage->tick();
  for (const auto& exchange : live) exchange->tick(now_s);
}

int HttpServer::open_exchanges() const { return impl_->open->load(); }

bool HttpServer::close(double limit_s) {
  streams_.reset();
  steps_.reset();
  return impl_->service == nullptr || impl_->service->close(limit_s);
}

}  // namespace windlass::worker
