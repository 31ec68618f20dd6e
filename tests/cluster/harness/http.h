// A small HTTP client for tests: one request, one response, as with a user's curl.
//
// It is deliberately not the product's own client, so that tests see the programs from outside. Every call opens its own
// connection by default. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace windlass::testing {

struct Tls {
  std::string ca_path;
  std::string cert_path;  // a client certificate; may be empty
  std::string key_path;
  std::string bearer_token;  // may be empty
};

struct HttpCall {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::string body;
  double timeout_s = 10;
  Tls tls;
  // Use the calling thread's open connection and leave it open: a TLS handshake costs milliseconds.
  bool keep_connection = false;
  // Called with each piece of the body as it arrives (HttpAnswer::body still gets all of it); return false to hang up.
  std::function<bool(std::string_view)> on_bytes;
};

struct HttpAnswer {
  long status = 0;  // 0: no response, see error
  std::string body;
  std::map<std::string, std::string> headers;  // names in lowercase
  std::string error;

  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
  // The body as JSON; a discarded value if it is not JSON.
  [[nodiscard]] nlohmann::json json() const;
  // "HTTP 503: body" or the transport's error.
  [[nodiscard]] std::string describe() const;
};

[[nodiscard]] HttpAnswer http(const HttpCall& call);
[[nodiscard]] HttpAnswer http_get(const std::string& url, double timeout_s = 5);
[[nodiscard]] HttpAnswer http_post_json(const std::string& url, const nlohmann::json& body, double timeout_s = 60);

// Escapes text such as "a b{c}" for a URL's query.
[[nodiscard]] std::string url_escape(const std::string& text);

// The value of a sample in Prometheus text, e.g. sample(text, "windlass_gateway_queue_length", {{"model", "tiny"}}); the sum of
// all samples of that name with these labels. `found`: whether there was one.
struct Sample {
  bool found = false;
  double value = 0;
};
[[nodiscard]] Sample sample(const std::string& text, const std::string& name,
                            const std::map<std::string, std::string>& labels = {});

}  // namespace windlass::testing
