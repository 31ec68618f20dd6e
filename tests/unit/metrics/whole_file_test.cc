// Files that are written whole, and what stays when that fails.
#include "metrics/host/whole_file.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace windlass {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WholeFile : public testing::Test {
 protected:
  WholeFile() { fs::create_directories(folder_); }
  ~WholeFile() override { fs::remove_all(folder_); }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("windlass-whole-file-" + std::to_string(::getpid()));
};

// Given a file that is not there and then is, with bytes of any kind; expects each time exactly those, the umask's mode, and no
// other file.
TEST_F(WholeFile, IsWhatWasWritten) {
  const fs::path file = folder_ / "a";
  for (const std::string& bytes : {std::string("one\0\n\xff", 6), std::string(5'000'000, 'x'), std::string()}) {
    ASSERT_TRUE(write_whole_file(file, bytes).ok());
    EXPECT_EQ(text_of(file), bytes);
  }
  EXPECT_EQ(entries(), 1U);
  const mode_t mask = ::umask(077);
  EXPECT_TRUE(write_whole_file(file, "secret").ok());
  ::umask(mask);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// Given a folder in its place, and a folder that is not there; expects why it cannot be written, and nothing left behind.
TEST_F(WholeFile, SaysWhyItIsNotWritten) {
  fs::create_directory(folder_ / "taken");
  EXPECT_THAT(write_whole_file(folder_ / "taken", "x").error().message, HasSubstr("taken: cannot be written: Is a directory"));
  EXPECT_THAT(write_whole_file(folder_ / "none/a", "x").error().message, HasSubstr("none/a: cannot be written: No such file"));
  EXPECT_EQ(entries(), 1U);
}

}  // namespace
}  // namespace windlass
