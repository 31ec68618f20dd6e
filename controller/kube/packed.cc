// See packed.h.
#include "controller/kube/packed.h"

#include <utility>

namespace windlass::kube {
namespace {

using nlohmann::json;

constexpr const char* kPacked = "packed";

}  // namespace

void pack(json& object) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return;
  json out = {{"metadata", json::object()}};
  for (const char* field : {"name", "namespace", "uid", "resourceVersion"}) {
    if (const auto found = metadata->find(field); found != metadata->end()) out["metadata"][field] = *found;
  }
  json::binary_t::container_type bytes = json::to_cbor(object);
  bytes.shrink_to_fit();
  out[kPacked] = json::binary(std::move(bytes));
  object = std::move(out);
}

json unpacked(const json& object) {
  const auto packed = object.find(kPacked);
  return packed != object.end() && packed->is_binary() ? json::from_cbor(packed->get_binary()) : object;
}

}  // namespace windlass::kube
