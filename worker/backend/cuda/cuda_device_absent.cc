// Implements cuda_device.h for builds without CUDA.
#include "worker/backend/cuda/cuda_device.h"

namespace windlass::worker::cuda {
namespace {

Error absent() { return Error{ErrorCode::kUnavailable, "this build was made without a CUDA toolkit"}; }

}  // namespace

bool compiled() { return false; }
Result<int> usable_devices() { return absent(); }
std::string describe() { return "built without CUDA"; }
Result<DeviceRank::NetworkId> new_network_id() { return absent(); }
Result<std::unique_ptr<Device>> open_device(Precision, const DeviceRank&) { return absent(); }

}  // namespace windlass::worker::cuda
