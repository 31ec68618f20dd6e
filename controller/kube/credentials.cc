// Tokens that stay and tokens that rotate in a file.
#include "controller/kube/credentials.h"

#include <utility>

#include "controller/kube/files.h"

namespace windlass::kube {

Result<std::optional<ClientCertificate>> CredentialSource::client_certificate(double /*now_s*/) {
  return std::optional<ClientCertificate>();
}

namespace {

constexpr double kRereadAfter_s = 55;  // at least every minute, also when calls come once in a few seconds

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
    // Also when the wall clock went back, or a step in it could keep a dead token alive.
    if (fresh_ && now_s >= read_at_s_ && now_s < read_at_s_ + kRereadAfter_s) return token_;
    Result<std::string> text = read_file(path_);
    std::string token;
    if (text.ok()) {
      std::size_t begin = text->find_first_not_of(" \t\r\n");
      if (begin != std::string::npos) token = text->substr(begin, text->find_last_not_of(" \t\r\n") - begin + 1);
    }
    if (token.empty()) {
      // A rotation may be half done: what worked goes on until it is seen whole.
      if (!token_.empty()) return token_;
      if (!text.ok()) return text.error().within("token file");
      return Error{ErrorCode::kInvalidArgument,
                   "token file " + path_.string() + ": found nothing in it, a bearer token is needed"};
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
