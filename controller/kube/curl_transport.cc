// send() and send_each() run on the caller's thread; streams run on one I/O thread.
#include "controller/kube/curl_transport.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>

#include "controller/kube/curl_transfer.h"
#include "metrics/host/clock.h"

namespace windlass::kube {
namespace {

constexpr std::size_t kMaxIdleConnections = 64;
constexpr int kMaxPoll_ms = 1000;

// "http://10.0.0.1:9400/metrics" -> "http://10.0.0.1:9400".
std::string_view origin_of(std::string_view url) {
  const auto scheme = url.find("://");
  return url.substr(0, url.find('/', scheme == std::string_view::npos ? 0 : scheme + 3));
}

void init_curl_once() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

// Collects a whole response.
class WholeResponse final : public CurlTransfer::Receiver {
 public:
  // `left_for_all`: bytes that this and the other responses under way may still use together; outlives this.
  WholeResponse(std::size_t max_bytes, std::size_t& left_for_all) : max_bytes_(max_bytes), left_for_all_(left_for_all) {}

  void on_head(int status, std::map<std::string, std::string> headers) override {
    response.status = status;
    response.headers = std::move(headers);
  }
  Take on_bytes(const char* data, std::size_t size) override {
    const bool fits = response.body.size() + size <= max_bytes_;
    if (!fits || size > left_for_all_) {
      too_large =
          fits ? "the responses together are too large" : fmt::format("the response has more than {} bytes", max_bytes_);
      left_for_all_ += response.body.size();
      response.body = {};
      return Take::kStop;
    }
    left_for_all_ -= size;
    response.body.append(data, size);
    return Take::kTaken;
  }

  HttpResponse response;
  std::string too_large;  // the reason; empty: it is not too large

 private:
  std::size_t max_bytes_;
  std::size_t& left_for_all_;
};

// Shared by the I/O thread and the reader of one stream.
struct StreamState final : public CurlTransfer::Receiver {
  StreamState(std::size_t max_bytes, std::function<void()> notify) : max_bytes_(max_bytes), notify_(std::move(notify)) {}

  void on_head(int status, std::map<std::string, std::string> headers) override {
    {
      std::lock_guard lock(mutex);
      this->status = status;
      this->headers = std::move(headers);
    }
    tell();
  }

  Take on_bytes(const char* data, std::size_t size) override {
    bool was_empty;
    {
      std::lock_guard lock(mutex);
      if (cancelled) return Take::kStop;
      was_empty = buffer.empty();
      if (!was_empty && buffer.size() + size > max_bytes_) {
        paused = true;  // libcurl keeps these bytes and delivers them again
        return Take::kPause;
      }
      buffer.append(data, size);
    }
    if (was_empty) tell();
    return Take::kTaken;
  }

  void end(std::optional<Error> why) {
    {
      std::lock_guard lock(mutex);
      if (finished || error) return;
      if (why) {
        error = std::move(why);
      } else {
        finished = true;
      }
    }
    tell();
  }

  std::mutex mutex;
  std::string buffer;
  int status = 0;
  std::map<std::string, std::string> headers;
  bool finished = false;
  bool cancelled = false;
  bool paused = false;
  std::optional<Error> error;

 private:
  void tell() {
    if (notify_) notify_();
  }

  std::size_t max_bytes_;
  std::function<void()> notify_;
};

}  // namespace

class CurlTransport::Impl {
 public:
  explicit Impl(CurlOptions options) : options_(std::move(options)), client_(options_.tls.client) {
    init_curl_once();
    send_multi_ = curl_multi_init();
    stream_multi_ = curl_multi_init();
    curl_multi_setopt(send_multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(kMaxIdleConnections));
  }

  ~Impl() {
    stop();
    curl_multi_cleanup(send_multi_);
    curl_multi_cleanup(stream_multi_);
  }

  void send_each(const std::vector<HttpRequest>& requests, const Take& take);
  Result<std::shared_ptr<StreamState>> open(const HttpRequest& request);

  // Called by the reader's thread; the I/O thread executes the command as soon as it can.
  void close(const std::shared_ptr<StreamState>& state) { command(Command{Command::kClose, state, nullptr, 0}); }
  void resume(const std::shared_ptr<StreamState>& state) { command(Command{Command::kResume, state, nullptr, 0}); }

  void set_client(ClientCertificate client) {
    std::lock_guard lock(client_mutex_);
    client_ = std::move(client);
  }

  void stop() {
    {
      std::lock_guard lock(command_mutex_);
      stopping_ = true;
    }
    curl_multi_wakeup(stream_multi_);
    std::lock_guard lock(thread_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  class Batch;
  struct Command {
    enum Kind { kOpen, kResume, kClose } kind;
    std::shared_ptr<StreamState> state;
    std::unique_ptr<CurlTransfer> transfer;  // kOpen
    double head_deadline_s = 0;              // kOpen
  };
  struct OpenStream {
    std::shared_ptr<StreamState> state;
    std::unique_ptr<CurlTransfer> transfer;
    double head_deadline_s = 0;
  };

  ClientCertificate client() {
    std::lock_guard lock(client_mutex_);
    return client_;
  }

  void command(Command command) {
    {
      std::lock_guard lock(command_mutex_);
      if (stopping_) return;
      commands_.push_back(std::move(command));
    }
    curl_multi_wakeup(stream_multi_);
  }

  void run();
  bool obey_commands();
  void reap();
  double check_heads(double now_s);
  void drop(std::map<StreamState*, OpenStream>::iterator it);

  CurlOptions options_;
  std::mutex client_mutex_;
  ClientCertificate client_;

  std::mutex send_mutex_;  // send_multi_ serves one caller at a time
  CURLM* send_multi_;

  CURLM* stream_multi_;
  std::mutex thread_mutex_;
  std::thread thread_;  // started by the first stream
  std::mutex command_mutex_;
  std::deque<Command> commands_;
  bool stopping_ = false;
  std::map<StreamState*, OpenStream> streams_;  // used by the I/O thread only
};

// The requests of one send_each(), up to the allowed number in flight.
class CurlTransport::Impl::Batch {
 public:
  // REQUIRES: the caller holds send_mutex_ of `all` for the lifetime of this.
  Batch(Impl& all, const std::vector<HttpRequest>& requests, const Take& take, ClientCertificate client)
      : options_(all.options_),
        multi_(all.send_multi_),
        requests_(requests),
        take_(take),
        client_(std::move(client)),
        left_for_all_(options_.max_responses_bytes) {
    // With more hosts than idle connections, a host's connection is gone before it is needed again. libcurl scans all kept
    // connections and addresses for each new connection, so keeping thousands would cost quadratic time.
    std::set<std::string_view> origins;
    for (const HttpRequest& request : requests) origins.insert(origin_of(request.url));
    keep_ = origins.size() <= kMaxIdleConnections;
  }

  void run() {
    while (next_ < requests_.size() || !in_flight_.empty()) {
      while (next_ < requests_.size() && in_flight_.size() < std::max<std::size_t>(1, options_.max_parallel)) begin(next_++);
      if (in_flight_.empty()) continue;
      int running = 0;
      curl_multi_perform(multi_, &running);
      if (!take_ended()) curl_multi_poll(multi_, nullptr, 0, kMaxPoll_ms, nullptr);
    }
  }

 private:
  struct InFlight {
    std::unique_ptr<WholeResponse> receiver;
    std::unique_ptr<CurlTransfer> transfer;
    std::size_t index = 0;
  };

  void begin(std::size_t index) {
    const std::size_t own = requests_[index].max_bytes;
    const std::size_t most = own == 0 ? options_.max_response_bytes : std::min(own, options_.max_response_bytes);
    auto receiver = std::make_unique<WholeResponse>(most, left_for_all_);
    auto transfer = CurlTransfer::make(requests_[index], options_, client_, *receiver, false);
    if (!transfer.ok()) return take_(index, transfer.error());
    CURL* easy = (*transfer)->easy();
    if (!keep_) (*transfer)->keep_nothing();
    if (CURLMcode code = curl_multi_add_handle(multi_, easy); code != CURLM_OK) {
      return take_(index, Error{ErrorCode::kInternal, fmt::format("libcurl: {}", curl_multi_strerror(code))});
    }
    in_flight_[easy] = {std::move(receiver), std::move(*transfer), index};
  }

  // Returns whether any transfer ended.
  bool take_ended() {
    bool some_ended = false;
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      some_ended = true;
      CURLcode code = message->data.result;  // invalid once the handle is removed
      auto it = in_flight_.find(message->easy_handle);
      if (it == in_flight_.end()) continue;
      curl_multi_remove_handle(multi_, it->first);
      const InFlight ended = std::move(it->second);
      in_flight_.erase(it);
      const std::size_t held_bytes = ended.receiver->response.body.size();
      take_(ended.index, result_of(ended, code));
      left_for_all_ += held_bytes;
    }
    return some_ended;
  }

  static Result<HttpResponse> result_of(const InFlight& ended, CURLcode code) {
    if (code == CURLE_OK) return std::move(ended.receiver->response);
    if (ended.receiver->too_large.empty()) return ended.transfer->failure(code);
    return Error{ErrorCode::kResourceExhausted, fmt::format("{}: {}", ended.transfer->what(), ended.receiver->too_large)};
  }

  const CurlOptions& options_;
  CURLM* multi_;
  const std::vector<HttpRequest>& requests_;
  const Take& take_;
  const ClientCertificate client_;
  bool keep_ = true;
  std::size_t left_for_all_;
  std::map<CURL*, InFlight> in_flight_;
  std::size_t next_ = 0;
};

void CurlTransport::Impl::send_each(const std::vector<HttpRequest>& requests, const Take& take) {
  ClientCertificate client = this->client();
  const std::lock_guard lock(send_mutex_);
  Batch(*this, requests, take, std::move(client)).run();
}

Result<std::shared_ptr<StreamState>> CurlTransport::Impl::open(const HttpRequest& request) {
  auto state = std::make_shared<StreamState>(options_.max_stream_buffer_bytes, options_.on_activity);
  auto transfer = CurlTransfer::make(request, options_, client(), *state, true);
  if (!transfer.ok()) return transfer.error();
  {
    std::lock_guard lock(thread_mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  command(Command{Command::kOpen, state, std::move(*transfer), monotonic_s() + request.timeout_s});
  return state;
}

bool CurlTransport::Impl::obey_commands() {
  std::deque<Command> commands;
  {
    std::lock_guard lock(command_mutex_);
    if (stopping_) return false;
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    auto it = streams_.find(command.state.get());
    switch (command.kind) {
      case Command::kOpen: {
        CURLMcode code = curl_multi_add_handle(stream_multi_, command.transfer->easy());
        if (code != CURLM_OK) {
          command.state->end(Error{ErrorCode::kInternal, fmt::format("libcurl: {}", curl_multi_strerror(code))});
          break;
        }
        streams_[command.state.get()] = {command.state, std::move(command.transfer), command.head_deadline_s};
        break;
      }
      case Command::kResume:
        if (it != streams_.end()) curl_easy_pause(it->second.transfer->easy(), CURLPAUSE_CONT);
        break;
      case Command::kClose:
        if (it != streams_.end()) drop(it);
        break;
    }
  }
  return true;
}

void CurlTransport::Impl::drop(std::map<StreamState*, OpenStream>::iterator it) {
  curl_multi_remove_handle(stream_multi_, it->second.transfer->easy());
  streams_.erase(it);
}

void CurlTransport::Impl::reap() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(stream_multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURLcode code = message->data.result;
    auto it = std::find_if(streams_.begin(), streams_.end(),
                           [&](const auto& entry) { return entry.second.transfer->easy() == message->easy_handle; });
    if (it == streams_.end()) continue;
    it->second.state->end(code == CURLE_OK ? std::nullopt : std::optional(it->second.transfer->failure(code)));
    drop(it);
  }
}

// Ends the streams whose head is late. Returns when to check again.
double CurlTransport::Impl::check_heads(double now_s) {
  double next_s = now_s + kMaxPoll_ms / 1000.0;
  for (auto it = streams_.begin(); it != streams_.end();) {
    auto current = it++;
    OpenStream& stream = current->second;
    {
      std::lock_guard lock(stream.state->mutex);
      if (stream.state->status != 0) continue;
    }
    if (now_s < stream.head_deadline_s) {
      next_s = std::min(next_s, stream.head_deadline_s);
      continue;
    }
    stream.state->end(Error{ErrorCode::kDeadlineExceeded, stream.transfer->what() + ": no response within the timeout"});
    drop(current);
  }
  return next_s;
}

void CurlTransport::Impl::run() {
  while (obey_commands()) {
    int running = 0;
    curl_multi_perform(stream_multi_, &running);
    reap();
    double now_s = monotonic_s();
    double next_s = check_heads(now_s);
    curl_multi_poll(stream_multi_, nullptr, 0, std::max(1, static_cast<int>((next_s - now_s) * 1000)), nullptr);
  }
  std::deque<Command> unserved;
  {
    std::lock_guard lock(command_mutex_);
    unserved.swap(commands_);
  }
  Error closed{ErrorCode::kCancelled, "the transport was shut down"};
  for (Command& command : unserved) command.state->end(closed);
  while (!streams_.empty()) {
    streams_.begin()->second.state->end(closed);
    drop(streams_.begin());
  }
}

namespace {

template <class Impl>
class CurlStream final : public HttpStream {
 public:
  CurlStream(std::shared_ptr<Impl> impl, std::shared_ptr<StreamState> state)
      : impl_(std::move(impl)), state_(std::move(state)) {}

  ~CurlStream() override {
    {
      std::lock_guard lock(state_->mutex);
      state_->cancelled = true;
    }
    impl_->close(state_);
  }

  int status() const override {
    std::lock_guard lock(state_->mutex);
    return state_->status;
  }

  std::map<std::string, std::string> headers() const override {
    std::lock_guard lock(state_->mutex);
    return state_->headers;
  }

  Result<Poll> poll() override {
    Poll poll;
    bool resume = false;
    {
      std::lock_guard lock(state_->mutex);
      // Deliver the bytes that arrived before the connection broke.
      if (state_->buffer.empty() && state_->error) return *state_->error;
      poll.bytes.swap(state_->buffer);
      poll.finished = state_->finished;
      resume = std::exchange(state_->paused, false);
    }
    if (resume) impl_->resume(state_);
    return poll;
  }

 private:
  std::shared_ptr<Impl> impl_;
  std::shared_ptr<StreamState> state_;
};

}  // namespace

CurlTransport::CurlTransport(CurlOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

CurlTransport::~CurlTransport() { impl_->stop(); }

Result<HttpResponse> CurlTransport::send(const HttpRequest& request) { return std::move(send_all({request}).front()); }

void CurlTransport::send_each(const std::vector<HttpRequest>& requests, const Take& take) { impl_->send_each(requests, take); }

Result<std::unique_ptr<HttpStream>> CurlTransport::stream(const HttpRequest& request) {
  auto state = impl_->open(request);
  if (!state.ok()) return state.error();
  return std::unique_ptr<HttpStream>(std::make_unique<CurlStream<Impl>>(impl_, std::move(*state)));
}

void CurlTransport::set_client_certificate(ClientCertificate certificate) { impl_->set_client(std::move(certificate)); }

}  // namespace windlass::kube
