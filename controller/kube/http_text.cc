// See http_text.h.
#include "controller/kube/http_text.h"

#include <nlohmann/json.hpp>

namespace windlass::kube {

std::string to_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace windlass::kube
