// See packing_json.h.
#include "planner/dispatch/packing_json.h"

#include <cmath>

#include "planner/base/json_reader.h"

namespace windlass::dispatch {

nlohmann::ordered_json to_json(const PackingModel& model) {
  return {{"prefillTokenS", json_number(model.prefill_token_s)},
          {"prefillS", json_number(model.prefill_s)},
          {"contextTokenS", json_number(model.context_token_s)},
          {"decodeRequestS", json_number(model.decode_request_s)},
          {"decodeS", json_number(model.decode_s)},
          {"kvCapacityTokens", json_number(model.kv_capacity_tokens)},
          {"kvRequestTokens", json_number(model.kv_request_tokens)},
          {"mostRequests", model.most_requests}};
}

Result<PackingModel> packing_model_from_json(const nlohmann::json& value, const std::string& path) {
  JsonReader reader(value, path);
  const auto amount = [&](const char* key) {
    const double number = reader.number(key);
    if (!std::isfinite(number) || number < 0) reader.fail(key, json_number(number), "a number of at least 0");
    return number;
  };
  PackingModel model;
  model.prefill_token_s = amount("prefillTokenS");
  model.prefill_s = amount("prefillS");
  model.context_token_s = amount("contextTokenS");
  model.decode_request_s = amount("decodeRequestS");
  model.decode_s = amount("decodeS");
  model.kv_capacity_tokens = amount("kvCapacityTokens");
  model.kv_request_tokens = amount("kvRequestTokens");
  model.most_requests = reader.int32("mostRequests", 0, 1'000'000'000);
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  return model;
}

}  // namespace windlass::dispatch
