// A small HTTP client for tests: one request, one answer, as a user's curl would see it.
//
// It is not the product's client on purpose: what the tests say about the programs is seen from outside. Every call opens its
// own connection; any thread may call.
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
  // Use the calling thread's open connection, and leave it open: a TLS handshake costs milliseconds.
  bool keep_connection = false;
  // Called with each piece of the body as it arrives (it still ends in HttpAnswer::body); return false to hang up.
  std::function<bool(std::string_view)> on_bytes;
};

struct HttpAnswer {
  long status = 0;  // 0: no answer, see error
  std::string body;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string error;

  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
  // The body as JSON; a discarded value where it is none.
  [[nodiscard]] nlohmann::json json() const;
  // "HTTP 503: body" or the transport's error.
  [[nodiscard]] std::string describe() const;
};

[[nodiscard]] HttpAnswer http(const HttpCall& call);
[[nodiscard]] HttpAnswer http_get(const std::string& url, double timeout_s = 5);
[[nodiscard]] HttpAnswer http_post_json(const std::string& url, const nlohmann::json& body, double timeout_s = 60);

// "a b{c}" as it may stand in a URL's query.
[[nodiscard]] std::string url_escape(const std::string& text);

// The value of a sample in Prometheus text, e.g. sample(text, "windlass_gateway_queue_length", {{"model", "tiny"}}); all
// samples of the name that carry those labels are added up. `found` says whether there was one.
struct Sample {
  bool found = false;
  double value = 0;
};
[[nodiscard]] Sample sample(const std::string& text, const std::string& name,
                            const std::map<std::string, std::string>& labels = {});

}  // namespace windlass::testing
