// Reloaded<T>: a value made from files and kept up to date with them. The current value is always complete and valid: files
// that cannot be read, or from which no T can be made, change nothing.
//
//   auto token = Reloaded<std::string>::load({path}, [](const auto& texts) { return parse_token(texts[0]); });
//   ... token->current() on any thread; token->refresh() from time to time, on one.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/security/files.h"
#include "planner/base/result.h"

namespace windlass::security {

template <class T>
class Reloaded {
 public:
  using Make = std::function<Result<T>(const std::vector<std::string>& texts)>;

  // Error: why the first T could not be made.
  [[nodiscard]] static Result<std::shared_ptr<Reloaded>> load(std::vector<std::string> paths, Make make) {
    std::shared_ptr<Reloaded> made(new Reloaded(std::move(paths), std::move(make)));
    if (const auto first = made->refresh(); first.has_value() && !first->ok()) return first->error();
    return made;
  }

  // Never null.
  [[nodiscard]] std::shared_ptr<const T> current() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }

  // Checks the files. nullopt: nothing changed since the last check; Error: the new contents are not used.
  [[nodiscard]] std::optional<Result<void>> refresh() {
    std::vector<std::string> texts;
    std::string trouble;
    for (const std::string& path : paths_) {
      auto text = read_file(path);
      if (!text.ok()) trouble = text.error().message;
      texts.push_back(text.ok() ? std::move(text).value() : "");
    }
    if (texts == seen_ && trouble == trouble_ && current_ != nullptr) return std::nullopt;
    seen_ = texts;
    trouble_ = trouble;
    if (!trouble.empty()) return Result<void>(Error{ErrorCode::kNotFound, trouble});
    auto made = make_(texts);
    if (!made.ok()) return Result<void>(made.error().within(paths_.front()));
    auto next = std::make_shared<const T>(std::move(made).value());
    const std::lock_guard lock(mutex_);
    current_ = std::move(next);
    return Result<void>{};
  }

  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }

 private:
  Reloaded(std::vector<std::string> paths, Make make) : paths_(std::move(paths)), make_(std::move(make)) {}

  std::vector<std::string> paths_;
  Make make_;
  std::vector<std::string> seen_;
  std::string trouble_;
  mutable std::mutex mutex_;  // guards current_
  std::shared_ptr<const T> current_;
};

}  // namespace windlass::security
