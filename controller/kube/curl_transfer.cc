// Options and callbacks of one libcurl transfer.
#include "controller/kube/curl_transfer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace windlass::kube {
namespace {

constexpr long kKeepAliveIdle_s = 30;
constexpr long kKeepAliveInterval_s = 15;

long milliseconds(double seconds) { return std::max(1L, std::lround(std::min(seconds, 1e6) * 1000)); }

curl_blob blob_of(const std::string& text) {
  return {const_cast<char*>(text.data()), text.size(), CURL_BLOB_COPY};  // libcurl copies the data and does not write to it
}

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) != CURLUE_OK) return "";
  std::string out = text;
  curl_free(text);
  return out;
}

bool has_line_break(const std::string& text) { return text.find_first_of(std::string("\r\n\0", 3)) != std::string::npos; }

}  // namespace

Result<std::unique_ptr<CurlTransfer>> CurlTransfer::make(const HttpRequest& request, const CurlOptions& options,
                                                         const ClientCertificate& client, Receiver& receiver, bool endless) {
  std::unique_ptr<CurlTransfer> transfer(new CurlTransfer());
  transfer->easy_ = curl_easy_init();
  if (transfer->easy_ == nullptr) return Error{ErrorCode::kInternal, "libcurl: curl_easy_init failed"};
  transfer->receiver_ = &receiver;
  transfer->method_ = request.method;
  transfer->body_ = request.body;
  WINDLASS_RETURN_IF_ERROR(transfer->set_url(request, options));
  WINDLASS_RETURN_IF_ERROR(transfer->set_headers(request));
  transfer->set_method();
  transfer->set_tls(options, client);

  CURL* easy = transfer->easy_;
  curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer.get());
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error_text_);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROXY, options.proxy_url.c_str());  // "" also disables the environment's proxies
  // HTTP/2 would put all watches on one connection, where one paused reader can block the rest.
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, kKeepAliveIdle_s);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, kKeepAliveInterval_s);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(std::min(options.connect_timeout_s, request.timeout_s)));
  if (!endless) curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, milliseconds(request.timeout_s));
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &CurlTransfer::header_callback);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer.get());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &CurlTransfer::write_callback);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer.get());
  return transfer;
}

void CurlTransfer::keep_nothing() {
  curl_easy_setopt(easy_, CURLOPT_FORBID_REUSE, 1L);
  curl_easy_setopt(easy_, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
}

CurlTransfer::~CurlTransfer() {
  if (easy_ != nullptr) curl_easy_cleanup(easy_);
  curl_slist_free_all(header_list_);
  curl_slist_free_all(connect_to_);
}

Result<void> CurlTransfer::set_url(const HttpRequest& request, const CurlOptions& options) {
  std::string shown = request.url.substr(0, request.url.find('?'));
  what_ = request.method + " " + shown;
  std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), &curl_url_cleanup);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, request.url.c_str(), 0) != CURLUE_OK) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a URL scheme://host[:port][/path][?query]", what_)};
  }
  std::string scheme = url_part(url.get(), CURLUPART_SCHEME);
  std::string host = url_part(url.get(), CURLUPART_HOST);
  if ((scheme != "http" && scheme != "https") || host.empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must have the scheme http or https (got '{}')", what_, scheme)};
  }
  if (scheme == "https" && !options.tls.server_name.empty()) {
    // libcurl verifies the name in the URL. So the URL gets that name, and CONNECT_TO points to the real host.
    std::string port = url_part(url.get(), CURLUPART_PORT);
    host_header_ = host + ":" + port;
    connect_to_ = curl_slist_append(nullptr, ("::" + host + ":" + port).c_str());
    curl_easy_setopt(easy_, CURLOPT_CONNECT_TO, connect_to_);
    if (curl_url_set(url.get(), CURLUPART_HOST, options.tls.server_name.c_str(), 0) != CURLUE_OK) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("tls-server-name: must be a host name (got '{}')", options.tls.server_name)};
    }
  }
  curl_easy_setopt(easy_, CURLOPT_URL, url_part(url.get(), CURLUPART_URL).c_str());
  return {};
}

bool CurlTransfer::add_header(const std::string& line) {
  curl_slist* longer = curl_slist_append(header_list_, line.c_str());
  if (longer == nullptr) return false;
  header_list_ = longer;
  return true;
}

Result<void> CurlTransfer::set_headers(const HttpRequest& request) {
  bool has_content_type = false;
  bool ok = true;
  for (const auto& [name, value] : request.headers) {
    // The message omits the value, which may be a token.
    if (name.empty() || has_line_break(name) || name.find(':') != std::string::npos || has_line_break(value)) {
      return Error{ErrorCode::kInvalidArgument,
                   what_ + ": header '" + name.substr(0, name.find_first_of("\r\n")) +
                       "' has characters that no header may have (line break, NUL, or ':' in its name)"};
    }
    if (strcasecmp(name.c_str(), "content-type") == 0) has_content_type = true;
    ok = add_header(value.empty() ? name + ";" : name + ": " + value) && ok;  // "Name;" is libcurl's syntax for an empty header
  }
  if (!host_header_.empty() && request.headers.count("Host") == 0) ok = add_header("Host: " + host_header_) && ok;
  ok = add_header("Expect:") && ok;  // do not wait for 100-continue
  if (!has_content_type) ok = add_header("Content-Type:") && ok;
  if (!ok) return Error{ErrorCode::kInternal, what_ + ": libcurl: out of memory for headers"};
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, header_list_);
  return {};
}

void CurlTransfer::set_method() {
  if (method_ == "HEAD") {
    curl_easy_setopt(easy_, CURLOPT_NOBODY, 1L);
    return;
  }
  if (!body_.empty() || method_ == "POST" || method_ == "PUT" || method_ == "PATCH") {
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body_.size()));
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDS, body_.data());
  }
  if (method_ != "GET" || !body_.empty()) curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, method_.c_str());
}

void CurlTransfer::set_tls(const CurlOptions& options, const ClientCertificate& client) {
  curl_easy_setopt(easy_, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (options.tls.insecure_skip_verify) {
    curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYHOST, 0L);
  } else if (!options.tls.ca_pem.empty()) {
    // Trust only the given CAs, not the system's as well.
    curl_easy_setopt(easy_, CURLOPT_CAINFO, nullptr);
    curl_easy_setopt(easy_, CURLOPT_CAPATH, nullptr);
    curl_blob blob = blob_of(options.tls.ca_pem);
    curl_easy_setopt(easy_, CURLOPT_CAINFO_BLOB, &blob);
  }
  if (!client.certificate_pem.empty()) {
    curl_blob certificate = blob_of(client.certificate_pem);
    curl_easy_setopt(easy_, CURLOPT_SSLCERTTYPE, "PEM");
    curl_easy_setopt(easy_, CURLOPT_SSLCERT_BLOB, &certificate);
    curl_blob key = blob_of(client.private_key_pem);
    curl_easy_setopt(easy_, CURLOPT_SSLKEYTYPE, "PEM");
    curl_easy_setopt(easy_, CURLOPT_SSLKEY_BLOB, &key);
  }
}

std::size_t CurlTransfer::header_callback(char* data, std::size_t size, std::size_t count, void* self) {
  try {
    static_cast<CurlTransfer*>(self)->take_header_line(std::string(data, size * count));
  } catch (...) {
    return 0;  // an exception must not cross libcurl's C frames; returning 0 stops the transfer with CURLE_WRITE_ERROR
  }
  return size * count;
}

void CurlTransfer::take_header_line(std::string line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.pop_back();
  if (line.starts_with("HTTP/")) {
    response_headers_.clear();  // this replaces the headers of an interim or proxy response
    std::size_t space = line.find(' ');
    status_ = space == std::string::npos ? 0 : std::atoi(line.c_str() + space + 1);
  } else if (line.empty()) {
    if (status_ >= 200) receiver_->on_head(status_, response_headers_);
  } else if (std::size_t colon = line.find(':'); colon != std::string::npos) {
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    std::string value = begin == std::string::npos ? "" : line.substr(begin);
    auto [it, fresh] = response_headers_.try_emplace(name, value);
    if (!fresh) it->second += ", " + value;
  }
}

std::size_t CurlTransfer::write_callback(char* data, std::size_t size, std::size_t count, void* self) {
  try {
    switch (static_cast<CurlTransfer*>(self)->receiver_->on_bytes(data, size * count)) {
      case Receiver::Take::kTaken: return size * count;
      case Receiver::Take::kPause: return CURL_WRITEFUNC_PAUSE;
      case Receiver::Take::kStop: break;
    }
  } catch (...) {
  }
  return CURL_WRITEFUNC_ERROR;
}

Error CurlTransfer::failure(CURLcode code) const {
  std::string detail = error_text_[0] != 0 ? error_text_ : curl_easy_strerror(code);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return {ErrorCode::kDeadlineExceeded, what_ + ": " + detail};
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return {ErrorCode::kInvalidArgument, what_ + ": " + detail};
    case CURLE_OUT_OF_MEMORY: return {ErrorCode::kResourceExhausted, what_ + ": " + detail};
    default: return {ErrorCode::kUnavailable, what_ + ": " + detail};
  }
}

}  // namespace windlass::kube
