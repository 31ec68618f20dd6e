// HttpClients: cpprestsdk's clients of other workers, by address and patience: each keeps its connections. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <cpprest/http_client.h>

namespace windlass::worker {

class HttpClients {
 public:
  // One that takes a worker which says nothing for so long for lost.
  [[nodiscard]] std::shared_ptr<web::http::client::http_client> to(const std::string& address, double timeout_s);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, double>, std::shared_ptr<web::http::client::http_client>> clients_;
};

}  // namespace windlass::worker
