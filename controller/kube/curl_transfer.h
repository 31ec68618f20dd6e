// CurlTransfer wraps one HTTP request as a libcurl easy handle. Private to CurlTransport; nothing else includes this file.
//
// Owns its easy handle, its header lists and a copy of the request. The receiver must outlive it. Used by one thread at a time.
// Not movable, because libcurl holds pointers into it.
#pragma once

#include <memory>
#include <string>

#include <curl/curl.h>

#include "controller/kube/curl_transport.h"

namespace windlass::kube {

class CurlTransfer {
 public:
  // Receives the response. libcurl calls it on the thread that drives the transfer.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    virtual void on_head(int status, std::map<std::string, std::string> headers) = 0;
    enum class Take { kTaken, kPause, kStop };
    virtual Take on_bytes(const char* data, std::size_t size) = 0;
  };

  // `endless`: the timeout covers only the phases up to the connection; the caller limits the rest.
  [[nodiscard]] static Result<std::unique_ptr<CurlTransfer>> make(const HttpRequest& request, const CurlOptions& options,
                                                                  const ClientCertificate& client, Receiver& receiver,
                                                                  bool endless);
  ~CurlTransfer();
  CurlTransfer(const CurlTransfer&) = delete;
  CurlTransfer& operator=(const CurlTransfer&) = delete;

  [[nodiscard]] CURL* easy() const { return easy_; }
  [[nodiscard]] const std::string& what() const { return what_; }  // "GET https://host:port/path", without the query

  // Drops the connection and the cached DNS entry after the transfer.
  void keep_nothing();

  // The Error for a libcurl code.
  [[nodiscard]] Error failure(CURLcode code) const;

 private:
  CurlTransfer() = default;
  Result<void> set_url(const HttpRequest& request, const CurlOptions& options);
  Result<void> set_headers(const HttpRequest& request);
  void set_method();
  void set_tls(const CurlOptions& options, const ClientCertificate& client);
  bool add_header(const std::string& line);
  static std::size_t header_callback(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t write_callback(char* data, std::size_t size, std::size_t count, void* self);
  void take_header_line(std::string line);

  CURL* easy_ = nullptr;
  curl_slist* header_list_ = nullptr;
  curl_slist* connect_to_ = nullptr;
  std::string method_, body_, what_;
  std::string host_header_;  // set if tls-server-name replaced the URL's host
  char error_text_[CURL_ERROR_SIZE] = {};
  Receiver* receiver_ = nullptr;
  int status_ = 0;
  std::map<std::string, std::string> response_headers_;
};

}  // namespace windlass::kube
