// HttpClients: cpprestsdk's clients of other workers, by address and patience: each keeps its connections. Thread-safe.
//
// An answer has at most as many bytes as who asks allows, and says how many: cpprestsdk reads all that comes into memory, also
// where nobody takes it, so that the connection of any other answer is closed before its body is read.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <cpprest/http_client.h>
#include <pplx/pplxtasks.h>

namespace windlass::worker {

struct WorkerAnswer {
  web::http::http_response head;
  std::string body;
};

class HttpClients {
 public:
  // A worker that says nothing for so long is taken for lost. The task throws where there is no such answer.
  [[nodiscard]] pplx::task<WorkerAnswer> ask(const std::string& address, const web::http::http_request& request,
                                             double timeout_s, std::size_t most_bytes);

 private:
  [[nodiscard]] std::shared_ptr<web::http::client::http_client> to(const std::string& address, double timeout_s);

  std::mutex mutex_;
  std::map<std::pair<std::string, double>, std::shared_ptr<web::http::client::http_client>> clients_;
};

}  // namespace windlass::worker
