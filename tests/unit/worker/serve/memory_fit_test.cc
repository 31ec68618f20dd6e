// Memory checks before loading: the room below the limits found in files, and whether a model fits, or what would.
#include "worker/serve/memory_fit.h"

#include <regex>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/worker/model_files.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

// A root folder with such files.
class HostFiles : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const auto path = root_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    testing::write_bytes(path, text);
  }
  [[nodiscard]] HostMemory found() const { return host_memory(root_.path()); }

  TemporaryFolder root_;
};

// Given no files; expects no limit. Given only the machine's; expects available memory plus swap.
TEST_F(HostFiles, TheMachine) {
  EXPECT_FALSE(found().shared.has_value());
  EXPECT_FALSE(found().address_space.has_value());
  write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:     500 kB\nSwapTotal: 9 kB\nSwapFree:  4 kB\n");
  EXPECT_EQ(found().shared, (MemoryRoom{504 * 1024, "MemAvailable"}));
}

// Given nested groups of version 2; expects the smallest limit to count, without droppable file pages and with the swap that
// the group may use. A group without a limit does not count.
TEST_F(HostFiles, ControlGroupsOfVersion2) {
  write("proc/meminfo", "MemAvailable: 1000000 kB\nSwapFree: 2 kB\n");
  write("proc/self/cgroup", "0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/memory.max", "max\n");
  write("sys/fs/cgroup/pods/one/memory.current", "700000\n");
  EXPECT_EQ(found().shared->limit, "MemAvailable");
  write("sys/fs/cgroup/pods/memory.max", "900000\n");
  write("sys/fs/cgroup/pods/memory.current", "800000\n");
  write("sys/fs/cgroup/pods/memory.stat", "anon 1\nfile 9\nactive_file 100\ninactive_file 200\nslab_reclaimable 300\n");
  EXPECT_EQ(found().shared, (MemoryRoom{100600 + 2048, "/sys/fs/cgroup/pods/memory.max"}));
  write("sys/fs/cgroup/pods/memory.swap.max", "1000\n");
  write("sys/fs/cgroup/pods/memory.swap.current", "400\n");
  EXPECT_EQ(found().shared->bytes, 100600 + 600);
  write("sys/fs/cgroup/pods/one/memory.max", "750000\n");
  EXPECT_EQ(found().shared, (MemoryRoom{50000 + 2048, "/sys/fs/cgroup/pods/one/memory.max"}));
}

// Given a container of version 1 that sees the host's path but only its own group; expects that group's limit. A number that
// means "no limit" does not count.
TEST_F(HostFiles, ControlGroupsOfVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/docker/x\n4:hugetlb,memory:/docker/x\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  EXPECT_FALSE(found().shared.has_value());
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n");
  write("sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_active_file 500\ntotal_inactive_file 700\n");
  EXPECT_EQ(found().shared, (MemoryRoom{4200, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(found().shared->bytes, 0);
}

// Given a limit of the address space; expects what is already mapped to be subtracted. Without one there is no limit.
TEST_F(HostFiles, TheAddressSpace) {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const auto limits = [](const std::string& soft) {
    return "Limit                     Soft Limit           Hard Limit           Units     \nMax address space         " + soft +
           "           unlimited            bytes     \n";
  };
  write("proc/self/statm", "30 5 4 1 0 2 0\n");
  write("proc/self/limits", limits("unlimited"));
  EXPECT_FALSE(found().address_space.has_value());
  write("proc/self/limits", limits(std::to_string(100 * page)));
  EXPECT_EQ(found().address_space, (MemoryRoom{70 * page, "ulimit -v"}));
}

// Given this machine; expects some memory.
TEST(HostMemory, OfThisMachine) {
  const HostMemory memory = host_memory();
  ASSERT_TRUE(memory.shared.has_value());
  EXPECT_GT(memory.shared->bytes, 1'000'000);
}

// One and a half billion numbers, two thirds of them in matrices: 6 GB, 4 GB as BF16, about 3 GB with 8 bits.
HostMemoryNeed large_model() {
  HostMemoryNeed need;
  need.weights = {1'000'000'000, 1'000'000, 500'000'000, 6'000'000'000, 0};
  need.rank_weights = need.weights;
  need.kv_bytes_per_token = 100'000;
  need.kv_tokens = 16'000;
  need.max_context_tokens = 4'000;
  return need;
}

HostMemory with_room(std::int64_t bytes) { return {MemoryRoom{bytes, "MemAvailable"}, std::nullopt}; }

std::string refusal(const HostMemoryNeed& need, const HostMemory& memory) {
  const auto checked = check_memory(need, memory);
  EXPECT_FALSE(checked.ok());
  if (checked.ok()) return "";
  EXPECT_EQ(checked.error().code, ErrorCode::kResourceExhausted);
  return checked.error().message;
}

// Given room for all, or nearly all, or unknown limits; expects no refusal.
TEST(MemoryFit, AcceptsWhatFits) {
  EXPECT_TRUE(check_memory(large_model(), with_room(7'600'000'000)).ok());
  EXPECT_TRUE(check_memory(large_model(), with_room(7'240'000'000)).ok());
  EXPECT_FALSE(check_memory(large_model(), with_room(7'230'000'000)).ok());
  EXPECT_TRUE(check_memory(large_model(), {}).ok());
  HostMemoryNeed huge = large_model();
  huge.kv_tokens = 1LL << 40U;
  EXPECT_FALSE(check_memory(huge, with_room(7'600'000'000)).ok());
  EXPECT_TRUE(check_growth(-5, with_room(0)).ok());
  EXPECT_TRUE(check_growth(1050, with_room(1000)).ok());
  EXPECT_EQ(check_growth(3'000'000'000, with_room(1'000'000'000)).error().message,
            "memory: 2.00 GB are missing: 3.00 GB more are needed; 1.00 GB are available (MemAvailable)");
}

// Given room only for the weights; expects a message with what is missing and the largest cache that fits, with a smaller
// context if it is less than one. Given room only for smaller formats; expects the first format that fits. Given too little for
// any; expects the message to say so.
TEST(MemoryFit, SaysWhatWouldFit) {
  EXPECT_EQ(refusal(large_model(), with_room(7'000'000'000)),
            "memory: 0.60 GB are missing: weights take 6.00 GB as fp32, a KV cache of 16000 tokens 1.60 GB and buffers "
            "0.00 GB; 7.00 GB are available (MemAvailable); --kv-cache-tokens 6496 would fit");
  EXPECT_THAT(refusal(large_model(), with_room(6'500'000'000)),
              HasSubstr("; --max-context-tokens 1744 --kv-cache-tokens 1744 would fit"));
  EXPECT_THAT(refusal(large_model(), with_room(6'100'000'000)), HasSubstr("; --weights bf16 (4.00 GB) would fit"));
  EXPECT_THAT(refusal(large_model(), with_room(6'100'000'000)), Not(HasSubstr("would fit with")));
  EXPECT_THAT(refusal(large_model(), with_room(5'000'000'000)),
              HasSubstr("; --weights bf16 (4.00 GB) would fit with --kv-cache-tokens 7488"));
  EXPECT_THAT(refusal(large_model(), with_room(4'000'000'000)), HasSubstr("; --weights int8 (3.00 GB) would fit with"));
  EXPECT_THAT(refusal(large_model(), with_room(1'000'000'000)), HasSubstr("; no format of --weights would fit"));
  HostMemoryNeed small = large_model();
  HostMemoryNeed quantised = large_model();
  quantised.weights.block_bytes = quantised.rank_weights.block_bytes = 1'200'000'000;
  EXPECT_THAT(refusal(quantised, with_room(4'000'000'000)), HasSubstr("; --weights blocks (1.20 GB) would fit"));
  small.format = WeightFormat::kInt8;
  EXPECT_THAT(refusal(small, with_room(2'000'000'000)), HasSubstr("; no format of --weights would fit"));
}

// Given two ranks and a limit of each one's address space; expects one rank's weights to count there, and all ranks' weights
// against the machine's memory.
TEST(MemoryFit, RanksShareTheMachine) {
  HostMemoryNeed need = large_model();
  need.rank_weights = {500'000'000, 500'000, 250'000'000, 3'000'000'000, 0};
  EXPECT_TRUE(check_memory(need, {std::nullopt, MemoryRoom{4'700'000'000, "ulimit -v"}}).ok());
  EXPECT_THAT(refusal(need, {std::nullopt, MemoryRoom{4'000'000'000, "ulimit -v"}}), HasSubstr("weights take 3.00 GB as fp32"));
  EXPECT_THAT(refusal(need, with_room(4'700'000'000)), HasSubstr("weights take 6.00 GB as fp32"));
}

// Given little room; expects advice that leaves room for requests, threads and the buffers of a step; for one rank if its
// address space is the limit.
TEST(MemoryFit, AdviceLeavesRoomForRequests) {
  HostMemoryNeed need;
  need.weights = {100'000'000, 0, 0, 400'000'000, 0};
  need.rank_weights = {50'000'000, 0, 0, 200'000'000, 0};
  need.step_bytes = 20'000'000;
  need.rank_step_bytes = 10'000'000;
  need.kv_bytes_per_token = 10'000;
  need.kv_tokens = 160'000;
  need.max_context_tokens = 160;
  const std::int64_t weights = need.weights.bytes(need.format);
  EXPECT_THAT(refusal(need, with_room(weights + 20'000'000 + 64'000'000 + 10'000'000)),
              HasSubstr("and buffers 0.02 GB; 0.49 GB"));
  EXPECT_THAT(refusal(need, with_room(weights + 20'000'000 + 64'000'000 + 10'000'000)),
              HasSubstr("--kv-cache-tokens 992 would"));
  EXPECT_THAT(refusal(need, {std::nullopt, MemoryRoom{weights / 2 + 10'000'000 + 64'000'000 + 10'000'000, "ulimit -v"}}),
              HasSubstr("--kv-cache-tokens 992 would"));
}

// Given any room; expects the advice not to be refused.
TEST(MemoryFit, AdviceFits) {
  for (std::int64_t room = 3'300'000'000; room < 7'000'000'000; room += 37'000'000) {
    HostMemoryNeed need = large_model();
    const std::string message = refusal(need, with_room(room));
    std::smatch found;
    if (std::regex_search(message, found, std::regex("--kv-cache-tokens ([0-9]+)"))) need.kv_tokens = std::stoll(found[1]);
    if (std::regex_search(message, found, std::regex("--weights ([a-z0-9]+) \\(")))
      need.format = weight_format_from_string(found[1].str()).value();
    EXPECT_TRUE(check_memory(need, with_room(room)).ok()) << message;
  }
}

}  // namespace
}  // namespace windlass::worker
