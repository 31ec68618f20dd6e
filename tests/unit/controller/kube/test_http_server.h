// A small HTTP/1.1 server on 127.0.0.1, with or without TLS, for tests of clients on real connections. The test controls every
// byte that it sends. One thread per connection; all end with the object.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "controller/kube/tls.h"

namespace windlass::kube {

class TestHttpServer {
 public:
  struct Request {
    std::string method, target;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    std::string client_name;  // common name of the client's certificate; empty: none
    int connection = 0;       // counted from 1
  };

  // A connection during one request.
  class Answer {
   public:
    virtual ~Answer() = default;
    virtual bool write(const std::string& bytes) = 0;  // false: the client is gone
    virtual bool wait_until_client_leaves() = 0;       // true: it left; false: the server stops
    virtual void close() = 0;                          // no further request on this connection
    // Sends a complete response with Content-Length.
    bool send(int status, const std::string& body, const std::string& extra_headers = "");
  };
  using Handler = std::function<void(const Request&, Answer&)>;

  struct Tls {
    ClientCertificate own;
    std::string client_ca_pem = {};  // not empty: clients must present a certificate that it signed
  };

  TestHttpServer(Handler handler, std::optional<Tls> tls = {});
  ~TestHttpServer();

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string url() const;
  [[nodiscard]] int connections() const { return connections_; }  // accepted so far

  // A latch that handlers can wait for; false if the server stops meanwhile.
  bool wait_for_gate(int number);
  void open_gate(int number);

 private:
  class Connection;
  void accept_all();

  Handler handler_;
  struct TlsContext;
  std::unique_ptr<TlsContext> tls_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  int gate_ = 0;
  std::vector<int> open_fds_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Waits for the condition, at most a minute (a generous limit, because sanitizers on a loaded machine are slow). Returns
// whether it holds.
bool eventually(const std::function<bool()>& condition);

}  // namespace windlass::kube
