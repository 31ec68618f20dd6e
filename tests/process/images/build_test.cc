// Runs scripts/images/build with a fake container engine in a repository of its own: which tags, bases and contexts it uses,
// and what it refuses. Builds no image.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cluster/harness/process.h"
#include "tests/paths.h"
#include "tests/process/images/dockerfiles.h"

namespace windlass::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Logs each call to the file `calls`. Knows the images listed in `local` and `remote`; for others it prints `answer`.
constexpr const char* kEngine = R"sh(#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >>calls
for last; do :; done
case "$1 $2 $3" in
  "image inspect --format") echo "elsewhere@sha256:1"; echo "${last%:*}@sha256:$(printf %064d 7)" ;;
  "image inspect "*) grep -qxF "$last" local ;;
  "manifest inspect "*) grep -qxF "$last" remote || { cat answer >&2; exit 1; } ;;
  build*) ls -A "$last" >context ;;
  run*) echo "{}" ;;
esac
)sh";

class ImageBuildTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!run_command({"git", "--version"}).ok()) GTEST_SKIP() << "needs git";
    fs::create_directories(folder_.file("repository/scripts"));
    fs::copy(kImages, folder_.file("repository/scripts/images"));
    fs::copy_file(source_path("/CMakeLists.txt"), folder_.file("repository/CMakeLists.txt"));
    for (const char* name : {"local", "remote", "calls", "context"}) write_text_file(folder_.file(name), "");
    write_text_file(folder_.file("answer"), "manifest unknown\n");
    write_text_file(folder_.file("engine"), kEngine);
    fs::permissions(folder_.file("engine"), fs::perms::owner_all);
    git({"init", "--quiet"});
    commit();
  }

  void git(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"git", "-C", folder_.file("repository"), "-c", "user.name=a", "-c", "user.email=a@b"});
    const CommandResult result = run_command(arguments);
    ASSERT_TRUE(result.ok()) << result.describe();
  }
  void commit() {
    git({"add", "--all"});
    git({"commit", "--quiet", "--allow-empty", "--message=more"});
  }
  CommandResult build(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), folder_.file("repository/scripts/images/build"));
    write_text_file(folder_.file("calls"), "");
    return run_command(arguments, "", {{"WINDLASS_CONTAINER_ENGINE", folder_.file("engine")}});
  }
  std::string tag() { return lines_of(build({"--print"}).out).at(0); }
  std::string written(const std::string& name) { return read_text_file(folder_.file(name)); }

  TempDir folder_{"windlass-build-"};
};

// Given commits with and without a release's git tag; expects only the version as the release's tag, and another tag for each
// commit.
TEST_F(ImageBuildTest, TagsNameTheCommit) {
  const std::string first = tag();
  EXPECT_THAT(first, ::testing::MatchesRegex("[0-9]+[.][0-9]+[.][0-9]+-g[0-9a-f]{12}"));
  const std::string version = first.substr(0, first.find('-'));
  git({"tag", "v" + version});
  EXPECT_EQ(tag(), version);
  commit();
  EXPECT_EQ(tag().rfind(version + "-g", 0), 0U);
  EXPECT_NE(tag(), first);
  // The chart's default is the release's tag.
  for (const char* chart : {"windlass", "windlass-crds"}) {
    const std::string text = read_text_file(source_path(fmt::format("/charts/{}/Chart.yaml", chart)));
    EXPECT_THAT(text, HasSubstr("\nappVersion: " + version + "\n")) << chart;
  }
}

// Given a file that is not committed; expects a warning, a context of the commit alone, and no files written outside of build/.
TEST_F(ImageBuildTest, BuildsTheCommit) {
  write_text_file(folder_.file("repository/secret"), "not committed");
  const std::string name = tag();
  const CommandResult result = build({"controller", "gateway"});
  ASSERT_TRUE(result.ok()) << result.describe();
  EXPECT_EQ(written("context"), "CMakeLists.txt\nscripts\n");
  EXPECT_THAT(result.err, HasSubstr("some files here differ from commit"));
  EXPECT_THAT(written("calls"), HasSubstr("--tag=windlass/gateway:" + name + " "));
  const std::string out = folder_.file("repository/build/images/" + name);
  EXPECT_TRUE(fs::exists(out + "/controller.spdx.json") && fs::exists(out + "/gateway.spdx.json"));
  EXPECT_THAT(read_text_file(out + "/values.yaml"),
              HasSubstr("image: {registry: \"\", tag: \"" + name + "\", pullPolicy: Never}"));
}

// Given no digest, one in scripts/images/bases, and one in an argument; expects builds from each, and a warning if there is
// none. An invalid digest is rejected.
TEST_F(ImageBuildTest, BaseImagesByDigest) {
  const std::string digest = "sha256:" + std::string(64, 'b');
  CommandResult result = build({"gateway"});
  EXPECT_THAT(result.err, HasSubstr("debian:bookworm-slim is not pinned by digest"));
  EXPECT_THAT(written("calls"), HasSubstr("--build-arg DEBIAN=debian:bookworm-slim "));

  write_text_file(folder_.file("repository/scripts/images/bases"), "debian:bookworm-slim " + digest + "\n");
  commit();
  result = build({"gateway"});
  EXPECT_THAT(result.err, Not(HasSubstr("not pinned")));
  EXPECT_THAT(written("calls"), HasSubstr("--build-arg DEBIAN=debian@" + digest + " "));

  EXPECT_TRUE(build({"--base", "mirror.example/debian@" + digest, "gateway"}).ok());
  EXPECT_THAT(written("calls"), HasSubstr("--build-arg DEBIAN=mirror.example/debian@" + digest + " "));
  result = build({"--base", "debian:bookworm-slim", "gateway"});
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_THAT(result.err, HasSubstr("--base: must be NAME@sha256: and 64 hexadecimal digits (got 'debian:bookworm-slim')"));

  write_text_file(folder_.file("repository/scripts/images/bases"), "debian:bookworm-slim sha256:12\n");
  commit();
  result = build({"gateway"});
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(result.err, HasSubstr("scripts/images/bases: debian:bookworm-slim: must have sha256:"));
  EXPECT_THAT(written("calls"), Not(HasSubstr("build ")));
}

// Given a tag that already exists on this machine or at the registry, or a registry that gives no clear answer; expects no
// build and no push. Given a registry without the tag; expects a push, and the digests in the chart's values.
TEST_F(ImageBuildTest, NeverOverwritesATag) {
  const std::string name = "registry.example/team/windlass/gateway:" + tag();
  const std::vector<std::string> push = {"--push", "--registry", "registry.example/team", "gateway", "worker-cuda"};
  const auto refused = [&](const std::string& because) {
    const CommandResult result = build(push);
    EXPECT_FALSE(result.ok());
    EXPECT_THAT(result.err, HasSubstr(name + ": " + because));
    EXPECT_THAT(written("calls"), Not(HasSubstr("build --file")));
    EXPECT_THAT(written("calls"), Not(HasSubstr("push")));
  };
  write_text_file(folder_.file("local"), name + "\n");
  refused("exists on this machine already");
  write_text_file(folder_.file("local"), "");
  write_text_file(folder_.file("remote"), name + "\n");
  refused("the registry has this tag already");
  write_text_file(folder_.file("remote"), "");
  write_text_file(folder_.file("answer"), "denied: who are you\n");
  refused("cannot tell whether the registry has this tag already: denied: who are you");

  write_text_file(folder_.file("answer"), "no such manifest: " + name + "\n");
  const CommandResult pushed = build(push);
  ASSERT_TRUE(pushed.ok()) << pushed.describe();
  EXPECT_THAT(written("calls"), HasSubstr("push " + name + "\n"));
  const std::string values = read_text_file(folder_.file("repository/build/images/" + tag() + "/values.yaml"));
  const std::string digest = "sha256:" + std::string(63, '0') + "7";
  EXPECT_THAT(values, HasSubstr("image: {registry: \"registry.example/team\", tag: \"" + tag() + "\"}"));
  EXPECT_THAT(values, HasSubstr("gateway: {image: {repository: windlass/gateway, digest: \"" + digest + "\"}}"));
  EXPECT_THAT(values, HasSubstr("worker: {image: {repository: windlass/worker-cuda, digest: \"" + digest + "\"}}"));
  EXPECT_THAT(values, HasSubstr("controller: {image: {repository: windlass/controller, digest: \"\"}}"));
}

// Given invalid arguments; expects errors that name the valid ones.
TEST_F(ImageBuildTest, BadArguments) {
  EXPECT_THAT(build({"worker"}).err, HasSubstr("one of controller gateway worker-cpu worker-cuda (got 'worker')"));
  EXPECT_THAT(build({"--push"}).err, HasSubstr("--push: must come with --registry (got none)"));
  EXPECT_THAT(build({"--registry"}).err, HasSubstr("--registry: must have a value (got none)"));
  EXPECT_EQ(written("calls"), "");
}

}  // namespace
}  // namespace windlass::testing
