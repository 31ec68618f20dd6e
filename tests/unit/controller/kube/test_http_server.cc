// A test server with sockets, OpenSSL and minimal HTTP.
#include "tests/unit/controller/kube/test_http_server.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace windlass::kube {
namespace {

template <class T, class Read>
T* from_pem(const std::string& pem, Read read) {
  std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  return read(bio.get(), nullptr, nullptr, nullptr);
}

}  // namespace

struct TestHttpServer::TlsContext {
  explicit TlsContext(const Tls& tls) : context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free) {
    X509* own = from_pem<X509>(tls.own.certificate_pem, PEM_read_bio_X509);
    EVP_PKEY* key = from_pem<EVP_PKEY>(tls.own.private_key_pem, PEM_read_bio_PrivateKey);
    SSL_CTX_use_certificate(context.get(), own);
    SSL_CTX_use_PrivateKey(context.get(), key);
    X509_free(own);
    EVP_PKEY_free(key);
    if (tls.client_ca_pem.empty()) return;
    X509* authority = from_pem<X509>(tls.client_ca_pem, PEM_read_bio_X509);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority);
    X509_free(authority);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    static const unsigned char kSession[] = "test";
    SSL_CTX_set_session_id_context(context.get(), kSession, sizeof(kSession));
  }
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context;
};

bool TestHttpServer::Answer::send(int status, const std::string& body, const std::string& extra_headers) {
  return write(fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n{}\r\n{}", status, body.size(), extra_headers, body));
}

class TestHttpServer::Connection final : public TestHttpServer::Answer {
 public:
  Connection(TestHttpServer& server, int fd, int number)
      : server_(server), fd_(fd), number_(number), ssl_(nullptr, &SSL_free) {}

  void serve() {
    if (server_.tls_) {
      ssl_.reset(SSL_new(server_.tls_->context.get()));
      SSL_set_fd(ssl_.get(), fd_);
      if (SSL_accept(ssl_.get()) != 1) return;
    }
    while (!closing_) {
      std::optional<Request> request = read_request();
      if (!request) return;
      server_.handler_(*request, *this);
    }
    if (ssl_) SSL_shutdown(ssl_.get());
  }

  bool write(const std::string& bytes) override {
    for (std::size_t at = 0; at < bytes.size();) {
      auto left = static_cast<int>(std::min<std::size_t>(bytes.size() - at, 1 << 16));
      long done = ssl_ ? SSL_write(ssl_.get(), bytes.data() + at, left)
                       : ::send(fd_, bytes.data() + at, static_cast<std::size_t>(left), MSG_NOSIGNAL);
      if (done <= 0) return false;
      at += static_cast<std::size_t>(done);
    }
    return true;
  }

  bool wait_until_client_leaves() override {
    char byte = 0;
    while (read_some(&byte, 1) > 0) {
    }
    return !server_.stopping_;
  }

  void close() override { closing_ = true; }

 private:
  long read_some(char* into, int size) {
    return ssl_ ? SSL_read(ssl_.get(), into, size) : ::recv(fd_, into, static_cast<std::size_t>(size), 0);
  }

  std::optional<Request> read_request() {
    std::size_t head_end = 0;
    while ((head_end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!read_more()) return std::nullopt;
    }
    Request request;
    request.connection = number_;
    std::string head = buffer_.substr(0, head_end);
    buffer_.erase(0, head_end + 4);
    std::size_t line_end = std::min(head.find("\r\n"), head.size());
    std::string first = head.substr(0, line_end);
    std::size_t space = first.find(' ');
    request.method = first.substr(0, space);
    request.target = first.substr(space + 1, first.rfind(' ') - space - 1);
    while (line_end < head.size()) {
      std::size_t begin = line_end + 2;
      line_end = std::min(head.find("\r\n", begin), head.size());
      std::string line = head.substr(begin, line_end - begin);
      std::size_t colon = line.find(':');
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      std::size_t value = line.find_first_not_of(' ', colon + 1);
      request.headers[name] = value == std::string::npos ? "" : line.substr(value);
    }
    std::size_t length = request.headers.count("content-length") ? std::stoul(request.headers["content-length"]) : 0;
    while (buffer_.size() < length) {
      if (!read_more()) return std::nullopt;
    }
    request.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    if (ssl_) {
      if (X509* peer = SSL_get1_peer_certificate(ssl_.get()); peer != nullptr) {
        char name[256] = {};
        X509_NAME_get_text_by_NID(X509_get_subject_name(peer), NID_commonName, name, sizeof(name));
        request.client_name = name;
        X509_free(peer);
      }
    }
    return request;
  }

  bool read_more() {
    char chunk[4096];
    long got = read_some(chunk, sizeof(chunk));
    if (got <= 0) return false;
    buffer_.append(chunk, static_cast<std::size_t>(got));
    return true;
  }

  TestHttpServer& server_;
  int fd_;
  int number_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  std::string buffer_;
  bool closing_ = false;
};

TestHttpServer::TestHttpServer(Handler handler, std::optional<Tls> tls) : handler_(std::move(handler)) {
  std::signal(SIGPIPE, SIG_IGN);  // SSL_write to a client that left
  if (tls) tls_ = std::make_unique<TlsContext>(*tls);
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("test server: cannot listen on 127.0.0.1");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

TestHttpServer::~TestHttpServer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (int fd : open_fds_) ::shutdown(fd, SHUT_RDWR);
  }
  changed_.notify_all();
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

std::string TestHttpServer::url() const { return fmt::format("{}://127.0.0.1:{}", tls_ ? "https" : "http", port_); }

void TestHttpServer::accept_all() {
  while (!stopping_) {
    int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    std::lock_guard lock(mutex_);
    if (stopping_) {
      ::close(fd);
      return;
    }
    int number = ++connections_;
    open_fds_.push_back(fd);
    threads_.emplace_back([this, fd, number] {
      { Connection(*this, fd, number).serve(); }
      std::lock_guard closing(mutex_);
      std::erase(open_fds_, fd);
      ::close(fd);
    });
  }
}

bool TestHttpServer::wait_for_gate(int number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || gate_ >= number; });
  return !stopping_;
}

void TestHttpServer::open_gate(int number) {
  {
    std::lock_guard lock(mutex_);
    gate_ = std::max(gate_, number);
  }
  changed_.notify_all();
}

bool eventually(const std::function<bool()>& condition) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

}  // namespace windlass::kube
