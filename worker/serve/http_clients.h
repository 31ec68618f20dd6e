// HttpClients: cpprestsdk's clients of other workers, by address and patience: each keeps its connections. Thread-safe.
//
// An answer has at most as many bytes as who asks allows, and says how many: cpprestsdk reads all that comes into memory, also
// where nobody takes it, so that the connection of any other answer is closed before its body is read.
#pragma once

#include <cstddef>
#include <functional>
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

class HttpClients : public std::enable_shared_from_this<HttpClients> {
 public:
  // A worker that says nothing for so long is taken for lost. The task throws where there is no such answer. Where a connection
  // that was kept turns out to be closed, before the request is out, it is made once more and goes over a new one.
  [[nodiscard]] pplx::task<WorkerAnswer> ask(const std::string& address, std::function<web::http::http_request()> make,
                                             double timeout_s, std::size_t most_bytes);

 private:
  [[nodiscard]] pplx::task<WorkerAnswer> ask_once(const std::string& address, const web::http::http_request& request,
                                                  double timeout_s, std::size_t most_bytes);
  void forget(const std::string& address, double timeout_s);
  [[nodiscard]] std::shared_ptr<web::http::client::http_client> to(const std::string& address, double timeout_s);

  std::mutex mutex_;
  std::map<std::pair<std::string, double>, std::shared_ptr<web::http::client::http_client>> clients_;
};

}  // namespace windlass::worker
