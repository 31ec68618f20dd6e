// See worker_id.h.
#include "gateway/worker_id.h"

#include "metrics/security/secrets.h"

namespace windlass::gateway {

std::string worker_id(std::string_view chain) { return security::sha256_hex(chain).substr(0, 16); }

}  // namespace windlass::gateway
