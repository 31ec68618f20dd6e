// Shared-memory layout: a head with one cache line per rank, the message, the errand, gather, two buffers of addends per rank,
// own floats. Two buffers make one barrier per sum enough: a rank that writes the buffer of the sum before last has passed a
// barrier that all ranks reached after reading it.
#include "worker/collective/rank_group.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace windlass::worker {
namespace {

constexpr std::int64_t kLine = 64;  // size of a cache line
constexpr std::size_t kMaxReason = 512;
constexpr long kLookNs = static_cast<long>(RankGroup::kLookS * 1e9);
constexpr int kSpins = 500;  // some tens of microseconds, about the cost of a sleep and a wake-up

struct alignas(kLine) RankLine {
  std::atomic<std::uint32_t> meetings;  // barriers reached
  std::atomic<std::uint32_t> joined;    // 1: it holds its lock
  std::atomic<std::uint32_t> beats;     // 0: it gives no signs of life
  std::atomic<std::uint32_t> errands;   // errands done
  std::atomic<std::uint64_t> shown;
};

struct Head {
  RankGroupSizes sizes;
  alignas(kLine) std::atomic<std::uint32_t> messages;  // sent by rank 0
  alignas(kLine) std::atomic<std::uint32_t> errands;   // given by rank 0
  alignas(kLine) std::atomic<std::uint32_t> failed;    // 1: a rank is writing the reason, 2: it is complete
  char reason[kMaxReason];
  RankLine ranks[RankGroup::kMaxRanks];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::int64_t padded(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
constexpr std::int64_t float_bytes(std::int64_t count) { return padded(count * static_cast<std::int64_t>(sizeof(float))); }

// Offset of each part, in bytes.
struct Layout {
  std::int64_t message, errand, gather, addends, own, end;

  explicit Layout(const RankGroupSizes& sizes)
      : message(padded(sizeof(Head))),
        errand(message + padded(sizes.message_bytes)),
        gather(errand + padded(sizes.errand_bytes)),
        addends(gather + float_bytes(sizes.gather_floats)),
        own(addends + 2 * sizes.ranks * float_bytes(sizes.sum_floats)),
        end(own + sizes.ranks * float_bytes(sizes.own_floats)) {}
};

// Layout(sizes).end, or approximately that if it exceeds 64 bits.
double bytes_of(const RankGroupSizes& sizes) {
  const double floats =
      static_cast<double>(sizes.gather_floats) +
      static_cast<double>(sizes.ranks) * (2 * static_cast<double>(sizes.sum_floats) + static_cast<double>(sizes.own_floats));
  return static_cast<double>(sizes.message_bytes) + static_cast<double>(sizes.errand_bytes) + floats * sizeof(float);
}

Error call_failed(const char* call) {
  return Error{ErrorCode::kUnavailable, fmt::format("memory for the ranks: {}: {}", call, std::strerror(errno))};
}

// Works across processes, unlike std::atomic::wait. Returns true on timeout. Errors end the wait like a wake-up: the caller
// checks again.
bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec limit{0, kLookNs};
  return ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0) != 0 && errno == ETIMEDOUT;
}

void futex_wake(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

void spin_once() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct flock lock_of(int rank, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

// A mapping and its descriptor.
class SharedMemory {
 public:
  SharedMemory(int descriptor, void* address, std::int64_t bytes) : descriptor_(descriptor), address_(address), bytes_(bytes) {}
  ~SharedMemory() {
    ::munmap(address_, static_cast<std::size_t>(bytes_));
    ::close(descriptor_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Takes ownership of the descriptor.
  static Result<std::unique_ptr<SharedMemory>> map(int descriptor, std::int64_t bytes) {
    void* address = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) {
      const Error error = call_failed("mmap");
      ::close(descriptor);
      return error;
    }
    return std::make_unique<SharedMemory>(descriptor, address, bytes);
  }

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::byte* at(std::int64_t offset) const { return static_cast<std::byte*>(address_) + offset; }
  [[nodiscard]] Head& head() const { return *reinterpret_cast<Head*>(address_); }

 private:
  const int descriptor_;
  void* const address_;
  const std::int64_t bytes_;
};

RankGroup::RankGroup(std::unique_ptr<SharedMemory> memory, const RankGroupSizes& sizes, int rank, RankPatience patience)
    : memory_(std::move(memory)),
      sizes_(sizes),
      rank_(rank),
      patience_(patience),
      spins_(std::thread::hardware_concurrency() >= static_cast<unsigned>(sizes.ranks) ? kSpins : 0) {}

RankGroup::~RankGroup() {
  if (lock_ >= 0) ::close(lock_);
}

Result<std::shared_ptr<RankGroup>> RankGroup::create(const RankGroupSizes& sizes, RankPatience patience) {
  assert(sizes.ranks >= 1 && sizes.ranks <= kMaxRanks);
  const double machine_bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (const double bytes = bytes_of(sizes); bytes > machine_bytes) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("the ranks' KV cache and buffers: must be at most {:.1f} GiB, this machine's memory (got {:.1f} "
                             "GiB); lower --kv-cache-tokens or --max-context-tokens",
                             machine_bytes / (1ULL << 30U), bytes / (1ULL << 30U))};
  }
  const std::int64_t bytes = Layout(sizes).end;
  // Not shm_open(): its names outlive a killed process, and a container's /dev/shm is limited to 64 MiB.
  const int descriptor = ::memfd_create("windlass-ranks", MFD_CLOEXEC);
  if (descriptor < 0) return call_failed("memfd_create");
  // Not ftruncate(): the kernel would promise more than there is, and kill a process in the middle of its work. In a container
  // with too little memory, the failure happens here.
  int status = 0;
  do {
    status = ::posix_fallocate(descriptor, 0, bytes);
  } while (status == EINTR);
  if (status != 0) {
    errno = status;
    const Error error = call_failed("posix_fallocate");
    ::close(descriptor);
    return error;
  }
  WINDLASS_ASSIGN_OR_RETURN(auto memory, SharedMemory::map(descriptor, bytes));
  memory->head().sizes = sizes;  // everything else starts as zero
  std::shared_ptr<RankGroup> group(new RankGroup(std::move(memory), sizes, 0, patience));
  WINDLASS_RETURN_IF_ERROR(group->take_lock());
  return group;
}

Result<std::shared_ptr<RankGroup>> RankGroup::join(int descriptor, int rank, const RankGroupSizes& sizes,
                                                   RankPatience patience) {
  assert(rank >= 1 && rank < sizes.ranks && sizes.ranks <= kMaxRanks);
  const std::int64_t bytes = Layout(sizes).end;
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return call_failed("fstat");
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return call_failed("fcntl");
  const Error other{ErrorCode::kFailedPrecondition,
                    fmt::format("memory for the ranks: must be {} bytes at rank {} (got {}); it does not read the same "
                                "model, or was not started by rank 0",
                                bytes, rank, info.st_size)};
  if (info.st_size != bytes) {
    ::close(own);
    return other;
  }
  WINDLASS_ASSIGN_OR_RETURN(auto memory, SharedMemory::map(own, bytes));
  if (memory->head().sizes != sizes) return other;
  std::shared_ptr<RankGroup> group(new RankGroup(std::move(memory), sizes, rank, patience));
  WINDLASS_RETURN_IF_ERROR(group->take_lock());
  return group;
}

// Uses an open file description of its own: locks of one description do not conflict, and it must not be the one that other
// processes inherit.
Result<void> RankGroup::take_lock() {
  const std::string path = fmt::format("/proc/self/fd/{}", memory_->descriptor());
  lock_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (lock_ < 0) return call_failed("open");
  struct flock lock = lock_of(rank_, F_WRLCK);
  if (::fcntl(lock_, F_OFD_SETLK, &lock) != 0) return call_failed("lock");
  memory_->head().ranks[rank_].joined.store(1, std::memory_order_release);
  return {};
}

int RankGroup::descriptor() const { return memory_->descriptor(); }

Result<void> RankGroup::wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, int rank,
                                   double limit_s) const {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != value) return {};
    spin_once();
  }
  Silence silence;
  silence.look(beats(rank));
  for (int looks = 0;;) {
    const bool timed_out = futex_wait(word, value);
    if (word.load(std::memory_order_acquire) != value) return {};
    if (!timed_out) continue;
    ++looks;
    if (auto why = lost()) return *std::move(why);
    if (silence.look(beats(rank)) * kLookS >= patience_.silent_s) return silent(rank);
    if (looks * kLookS > limit_s) {
      return Error{ErrorCode::kUnavailable, fmt::format("rank {} of {} does not answer: it is {:g} s later than rank {}", rank,
                                                        sizes_.ranks, limit_s, rank_)};
    }
  }
}

Result<void> RankGroup::barrier(double limit_s) {
  Head& head = memory_->head();
  ++meetings_;
  head.ranks[rank_].meetings.store(meetings_, std::memory_order_release);
  futex_wake(head.ranks[rank_].meetings);
  for (int rank = 0; rank < sizes_.ranks; ++rank) {
    const auto& came = head.ranks[rank].meetings;
    for (;;) {
      const std::uint32_t now = came.load(std::memory_order_acquire);
      if (static_cast<std::int32_t>(now - meetings_) >= 0) break;
      WINDLASS_RETURN_IF_ERROR(wait_while(came, now, rank, limit_s));
    }
  }
  return {};
}

float* RankGroup::floats_at(std::int64_t offset) const { return reinterpret_cast<float*>(memory_->at(offset)); }

std::span<float> RankGroup::addend(std::int64_t count) const {
  assert(count <= sizes_.sum_floats);
  const std::int64_t slot = (sums_ % 2) * sizes_.ranks + rank_;
  return {floats_at(Layout(sizes_).addends + slot * float_bytes(sizes_.sum_floats)), static_cast<std::size_t>(count)};
}

Result<void> RankGroup::add_sum(float* to, std::int64_t count) {
  assert(count <= sizes_.sum_floats);
  const std::int64_t first = (sums_++ % 2) * sizes_.ranks;
  WINDLASS_RETURN_IF_ERROR(barrier());
  for (std::int64_t rank = 0; rank < sizes_.ranks; ++rank) {
    const float* from = floats_at(Layout(sizes_).addends + (first + rank) * float_bytes(sizes_.sum_floats));
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
  }
  return {};
}

std::span<std::byte> RankGroup::outbox() const {
  assert(rank_ == 0);
  return {memory_->at(Layout(sizes_).message), static_cast<std::size_t>(sizes_.message_bytes)};
}

void RankGroup::send() {
  assert(rank_ == 0);
  Head& head = memory_->head();
  head.messages.store(++messages_, std::memory_order_release);
  futex_wake(head.messages);
}

Result<std::span<const std::byte>> RankGroup::receive() {
  assert(rank_ != 0);
  WINDLASS_RETURN_IF_ERROR(wait_while(memory_->head().messages, messages_, 0, kNoLimit));
  ++messages_;
  return std::span<const std::byte>(memory_->at(Layout(sizes_).message), static_cast<std::size_t>(sizes_.message_bytes));
}

std::span<std::byte> RankGroup::errand() const {
  return {memory_->at(Layout(sizes_).errand), static_cast<std::size_t>(sizes_.errand_bytes)};
}

void RankGroup::give_errand() {
  assert(rank_ == 0);
  Head& head = memory_->head();
  head.errands.store(++errands_, std::memory_order_release);
  futex_wake(head.errands);
}

Result<void> RankGroup::wait_for_errand() {
  assert(rank_ == 0);
  for (int rank = 1; rank < sizes_.ranks; ++rank) {
    const auto& done = memory_->head().ranks[rank].errands;
    for (;;) {
      const std::uint32_t now = done.load(std::memory_order_acquire);
      if (now == errands_) break;
      WINDLASS_RETURN_IF_ERROR(wait_while(done, now, rank, patience_.stall_s));
    }
  }
  return {};
}

Result<void> RankGroup::take_errand() {
  assert(rank_ != 0);
  WINDLASS_RETURN_IF_ERROR(wait_while(memory_->head().errands, errands_, 0, kNoLimit));
  ++errands_;
  return {};
}

void RankGroup::errand_done() {
  auto& done = memory_->head().ranks[rank_].errands;
  done.store(errands_, std::memory_order_release);
  futex_wake(done);
}

std::span<float> RankGroup::gather() const {
  return {floats_at(Layout(sizes_).gather), static_cast<std::size_t>(sizes_.gather_floats)};
}

std::span<float> RankGroup::own(int rank) const {
  return {floats_at(Layout(sizes_).own + rank * float_bytes(sizes_.own_floats)), static_cast<std::size_t>(sizes_.own_floats)};
}

void RankGroup::show(std::uint64_t number) { memory_->head().ranks[rank_].shown.store(number, std::memory_order_release); }

std::uint64_t RankGroup::shown(int rank) const { return memory_->head().ranks[rank].shown.load(std::memory_order_acquire); }

void RankGroup::beat() { memory_->head().ranks[rank_].beats.fetch_add(1, std::memory_order_relaxed); }

std::uint32_t RankGroup::beats(int rank) const { return memory_->head().ranks[rank].beats.load(std::memory_order_relaxed); }

Error RankGroup::silent(int rank) const {
  return {ErrorCode::kUnavailable, fmt::format("rank {} of {} is lost: it has given no sign of life for {:g} s", rank,
                                               sizes_.ranks, patience_.silent_s)};
}

void RankGroup::fail(const std::string& reason) {
  Head& head = memory_->head();
  std::uint32_t expected = 0;
  if (!head.failed.compare_exchange_strong(expected, 1)) return;
  const std::size_t length = std::min(reason.size(), kMaxReason - 1);
  std::memcpy(head.reason, reason.data(), length);  // the rest is zero
  head.failed.store(2, std::memory_order_release);
}

std::optional<std::string> RankGroup::failure() const {
  const Head& head = memory_->head();
  if (head.failed.load(std::memory_order_acquire) != 2) return std::nullopt;
  return head.reason;
}

std::optional<Error> RankGroup::lost() const {
  if (auto why = failure()) return Error{ErrorCode::kUnavailable, *std::move(why)};
  const Head& head = memory_->head();
  for (int rank = 0; rank < sizes_.ranks; ++rank) {
    if (rank == rank_ || head.ranks[rank].joined.load(std::memory_order_acquire) == 0) continue;
    struct flock lock = lock_of(rank, F_WRLCK);
    if (::fcntl(lock_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) {
      return Error{ErrorCode::kUnavailable, fmt::format("rank {} of {} is lost: its process has ended", rank, sizes_.ranks)};
    }
  }
  return std::nullopt;
}

}  // namespace windlass::worker
