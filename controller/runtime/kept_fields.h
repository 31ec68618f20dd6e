// Drops the fields of pods and nodes that the runtime does not read, before they are cached: a cluster has many pods of other
// owners, and a pod of tens of kilobytes is read for a few hundred bytes. Private to this folder.
#pragma once

#include <nlohmann/json.hpp>

namespace windlass::controller {

// Keeps the identity of a pod and the resources that it holds on its node. Of workers, also what worker_of() reads.
void keep_read_fields_of_pod(nlohmann::json& pod);

void keep_read_fields_of_node(nlohmann::json& node);

}  // namespace windlass::controller
