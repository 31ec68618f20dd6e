// Reads a model's shape; see model_description.h.
#include "controller/cli/console/model_description.h"

#include <filesystem>
#include <string_view>

#include "controller/cli/console/child_process.h"
#include "controller/cli/console/text_file.h"
#include "controller/kube/subprocess.h"

namespace windlass::cli {
namespace {

constexpr double kConfigTimeoutS = 60;

// Reads a folder's config.json here; windlass-worker translates the header of a GGUF file into the same JSON.
Result<std::string> config_text(const std::filesystem::path& model) {
  const std::filesystem::path config = model / "config.json";
  std::error_code failure;
  const bool maybe_gguf = std::filesystem::exists(model, failure) && !std::filesystem::exists(config, failure);
  if (!maybe_gguf) return read_text_file(config.string(), "a folder with a Hugging Face config.json, or a GGUF file");
  WINDLASS_ASSIGN_OR_RETURN(const std::string worker, sibling_program("windlass-worker"));
  WINDLASS_ASSIGN_OR_RETURN(const kube::ProgramRun run,
                            kube::run_program(worker, {"model", "config", model.string()}, {}, false, kConfigTimeoutS));
  if (run.exit_code == 0) return run.out;
  const std::string_view words = run.err;
  return Error{ErrorCode::kInvalidArgument, std::string(words.substr(0, words.find_last_not_of('\n') + 1))};
}

}  // namespace

Result<ModelDescription> describe_model(const std::string& path) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, config_text(path));
  const auto shape = planner::model_shape_from_config_json(text);
  if (!shape.ok()) return shape.error().within(path);
  return ModelDescription{nlohmann::json::parse(text), *shape};
}

}  // namespace windlass::cli
