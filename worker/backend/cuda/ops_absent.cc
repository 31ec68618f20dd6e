// The answers of a build without a CUDA toolkit.
#include "worker/backend/cuda/ops.h"

namespace windlass::worker::cuda {
namespace {

Error absent() { return Error{ErrorCode::kUnavailable, "this build was made without a CUDA toolkit"}; }

}  // namespace

bool compiled() { return false; }
Result<void> usable() { return absent(); }
std::string describe() { return "built without CUDA"; }
Result<void> matmul(const float*, const float*, float*, std::int64_t, std::int64_t, std::int64_t) { return absent(); }
Result<void> rms_norm(const float*, const float*, float*, std::int64_t, std::int64_t, float) { return absent(); }

}  // namespace windlass::worker::cuda
