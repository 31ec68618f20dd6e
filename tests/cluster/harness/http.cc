// Implements http.h.
#include "tests/cluster/harness/http.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <sstream>

#include <curl/curl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::testing {
namespace {

struct Exchange {
  const HttpCall* call;
  HttpAnswer answer;
};

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  const std::string_view piece(data, size * count);
  exchange->answer.body.append(piece);
  if (exchange->call->on_bytes && !exchange->call->on_bytes(piece)) return 0;
  return size * count;
}

std::size_t take_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  const std::string line(data, size * count);
  const std::size_t colon = line.find(':');
  if (colon != std::string::npos) {
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::size_t from = line.find_first_not_of(" \t", colon + 1);
    const std::size_t to = line.find_last_not_of(" \t\r\n");
    exchange->answer.headers[name] = from == std::string::npos || to < from ? "" : line.substr(from, to - from + 1);
  }
  return size * count;
}

// Initialises libcurl's global state once, before the first call.
void initialise_curl() {
  static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
  (void)once;
}

}  // namespace

nlohmann::json HttpAnswer::json() const { return nlohmann::json::parse(body, nullptr, false); }

std::string HttpAnswer::describe() const {
  return status == 0 ? "no answer: " + error : fmt::format("HTTP {}: {}", status, body);
}

HttpAnswer http(const HttpCall& call) {
  initialise_curl();
  using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
  thread_local const Handle kept(curl_easy_init(), curl_easy_cleanup);
  const Handle fresh(call.keep_connection ? nullptr : curl_easy_init(), curl_easy_cleanup);
  CURL* curl = call.keep_connection ? kept.get() : fresh.get();
  curl_easy_reset(curl);  // resets options only; the connection stays open
  // With HTTP/1.1 libcurl notices that a kept connection is dead and opens another one.
  if (call.keep_connection) curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  Exchange exchange{&call, {}};
  curl_slist* list = nullptr;
  for (const std::string& header : call.headers) list = curl_slist_append(list, header.c_str());
  if (!call.tls.bearer_token.empty())
    list = curl_slist_append(list, ("Authorization: Bearer " + call.tls.bearer_token).c_str());
  list = curl_slist_append(list, "Expect:");
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(list, curl_slist_free_all);

  curl_easy_setopt(curl, CURLOPT_URL, call.url.c_str());
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(call.timeout_s * 1000));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  if (call.method != "GET") {
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call.method.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call.body.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
  }
  if (!call.tls.ca_path.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, call.tls.ca_path.c_str());
  if (!call.tls.cert_path.empty()) {
    curl_easy_setopt(curl, CURLOPT_SSLCERT, call.tls.cert_path.c_str());
    curl_easy_setopt(curl, CURLOPT_SSLKEY, call.tls.key_path.c_str());
  }
  const CURLcode code = curl_easy_perform(curl);
  if (code == CURLE_OK) {
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &exchange.answer.status);
  } else {
    exchange.answer.error = fmt::format("{} {}: {}", call.method, call.url, curl_easy_strerror(code));
  }
  return exchange.answer;
}

HttpAnswer http_get(const std::string& url, double timeout_s) {
  HttpCall call;
  call.url = url;
  call.timeout_s = timeout_s;
  return http(call);
}

HttpAnswer http_post_json(const std::string& url, const nlohmann::json& body, double timeout_s) {
  HttpCall call;
  call.method = "POST";
  call.url = url;
  call.headers = {"Content-Type: application/json"};
  call.body = body.dump();
  call.timeout_s = timeout_s;
  return http(call);
}

std::string url_escape(const std::string& text) {
  char* escaped = curl_easy_escape(nullptr, text.c_str(), static_cast<int>(text.size()));
  std::string result = escaped;
  curl_free(escaped);
  return result;
}

Sample sample(const std::string& text, const std::string& name, const std::map<std::string, std::string>& labels) {
  Sample result;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const std::string rest = line.substr(name.size());
    if (rest.empty() || (rest[0] != '{' && rest[0] != ' ')) continue;
    const std::size_t close = rest[0] == '{' ? rest.rfind('}') : 0;
    const std::string found = rest[0] == '{' ? "," + rest.substr(1, close - 1) + "," : "";
    bool all = true;
    for (const auto& [label, value] : labels) all = all && found.find("," + label + "=\"" + value + "\",") != std::string::npos;
    if (!all) continue;
    result.found = true;
    result.value += std::strtod(rest.c_str() + (rest[0] == '{' ? close + 1 : 0), nullptr);
  }
  return result;
}

}  // namespace windlass::testing
