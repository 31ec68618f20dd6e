// Bearer tokens: fixed ones, and ones that rotate in a file.
#include "controller/kube/credentials.h"

#include <utility>

#include "controller/kube/files.h"

namespace windlass::kube {

Result<std::optional<ClientCertificate>> CredentialSource::client_certificate(double /*now_s*/) {
  return std::optional<ClientCertificate>();
}

namespace {

constexpr double kRereadAfter_s = 55;  // at least every minute, even if calls come only every few seconds

class StaticToken final : public CredentialSource {
 public:
  explicit StaticToken(std::string token) : token_(std::move(token)) {}
  Result<std::string> bearer_token(double /*now_s*/) override { return token_; }

 private:
  std::string token_;
};

class TokenFile final : public CredentialSource {
 public:
  explicit TokenFile(std::filesystem::path path) : path_(std::move(path)) {}

  Result<std::string> bearer_token(double now_s) override {
    // Also reread if the wall clock went backwards; otherwise a clock step could keep an expired token in use.
    if (fresh_ && now_s >= read_at_s_ && now_s < read_at_s_ + kRereadAfter_s) return token_;
    Result<std::string> text = read_file(path_);
    std::string token;
    if (text.ok()) {
      std::size_t begin = text->find_first_not_of(" \t\r\n");
      if (begin != std::string::npos) token = text->substr(begin, text->find_last_not_of(" \t\r\n") - begin + 1);
    }
    if (token.empty()) {
      // The file may be half written during a rotation, so keep the last good token until it is complete.
      if (!token_.empty()) return token_;
      if (!text.ok()) return text.error().within("token file");
      return Error{ErrorCode::kInvalidArgument, "token file " + path_.string() + ": must hold a bearer token (got nothing)"};
    }
    token_ = std::move(token);
    read_at_s_ = now_s;
    fresh_ = true;
    return token_;
  }

  void invalidate() override { fresh_ = false; }

 private:
  std::filesystem::path path_;
  std::string token_;
  double read_at_s_ = 0;
  bool fresh_ = false;
};

}  // namespace

std::unique_ptr<CredentialSource> no_credentials() { return std::make_unique<StaticToken>(""); }
std::unique_ptr<CredentialSource> static_token(std::string token) { return std::make_unique<StaticToken>(std::move(token)); }
std::unique_ptr<CredentialSource> token_file(std::filesystem::path path) {
  return std::make_unique<TokenFile>(std::move(path));
}

}  // namespace windlass::kube
