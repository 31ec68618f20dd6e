// Implements fibers and their scheduling; see execution.h.
#include "worker/backend/cuda/emulation/execution.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "planner/base/rng.h"
#include "worker/backend/cuda/kernels.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace windlass::worker::cuda {

constinit thread_local dim3 threadIdx;
constinit thread_local dim3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = 64U << 10U;
constexpr int kWarpLanes = 32;
constexpr int kMaxThreads = 1024;

}  // namespace

#if defined(__x86_64__)
// Saves the registers required by the ABI on the stack, stores the stack pointer in *save and continues from `load`.
// swapcontext() would work but makes a system call for signals each time: it takes twenty times as long, and a shuffle needs 64
// switches.
extern "C" void windlass_switch_stacks(void** save, void* load);
asm(R"(
.text
.globl windlass_switch_stacks
.type windlass_switch_stacks, @function
windlass_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size windlass_switch_stacks, .-windlass_switch_stacks
)");
#endif

namespace {

void fiber_main();

// A line of execution while another one runs.
class Context {
 public:
  Context() = default;  // for the caller of the first switch_to()

  // Begins at fiber_main() on a stack of kStackBytes.
  void start(std::byte* stack) {
    stack_ = stack;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, kStackBytes);  // of fibers that were abandoned
    fake_stack_ = nullptr;
#endif
#if defined(__x86_64__)
    void** top = reinterpret_cast<void**>(stack + kStackBytes);
    *--top = nullptr;  // fiber_main() must find the stack as after a call, and never returns
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    top_ = top;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, fiber_main, 0);
#endif
  }

  // Returns when somebody switches back. `over`: nobody will.
  void switch_to(Context& to, bool over = false) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(over ? nullptr : &fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(__x86_64__)
    windlass_switch_stacks(&top_, to.top_);
#else
    swapcontext(&context_, &to.context_);
#endif
    static_cast<void>(over);
    arrived(to);
  }

  // Call first after a switch; `from` is the context whose stack was left.
  void arrived([[maybe_unused]] Context& from) {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
    if (from.stack_ == nullptr) {
      from.stack_ = static_cast<const std::byte*>(bottom);
      from.stack_bytes_ = bytes;
    }
#endif
  }

 private:
  const std::byte* stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  std::size_t stack_bytes_ = kStackBytes;
  void* fake_stack_ = nullptr;
#endif
#if defined(__x86_64__)
  void* top_ = nullptr;
#else
  ucontext_t context_ = {};
#endif
};

struct Fiber {
  enum class State { kReady, kAtBarrier, kAtWarp, kEnded };
  Context context;
  State state = State::kReady;
  int line = 0;      // where it waits
  unsigned met = 0;  // number of times it has met its warp
};

struct Warp {
  int arrived = 0;
  // What the lanes exchange, for two consecutive meetings: a lane may reach the next meeting before all have read, but not the
  // one after.
  std::array<OfLanes, 2> given = {};
};

// Runs blocks one after the other; one per host thread.
class BlockRunner {
 public:
  Result<void> run(int threads, std::size_t shared_bytes, Rng* shuffle, bool backward, const std::function<void()>& body) {
    while (static_cast<int>(stacks_.size()) < threads) stacks_.push_back(std::make_unique<std::byte[]>(kStackBytes));
    fibers_.assign(static_cast<std::size_t>(threads), {});
    warps_.assign(static_cast<std::size_t>(threads / kWarpLanes), {});
    // Of the exact size, for the address sanitizer.
    shared_ = std::make_unique<std::byte[]>(std::max<std::size_t>(shared_bytes, 1));
    shared_bytes_ = shared_bytes;
    std::fill_n(shared_.get(), shared_bytes, std::byte{0xFF});
    body_ = &body;
    error_.reset();
    for (int i = 0; i < threads; ++i)
      fibers_[static_cast<std::size_t>(i)].context.start(stacks_[static_cast<std::size_t>(i)].get());
    std::vector<int> order(static_cast<std::size_t>(threads));
    std::iota(order.begin(), order.end(), 0);
    if (backward) std::reverse(order.begin(), order.end());
    while (true) {
      bool moved = false;
      if (shuffle != nullptr) {
        for (std::size_t i = order.size() - 1; i > 0; --i) {
          std::swap(order[i], order[static_cast<std::size_t>(shuffle->integer(0, static_cast<std::int64_t>(i)))]);
        }
        moved = resume_once(order);
      } else {
        for (auto warp = order.begin(); warp != order.end(); warp += kWarpLanes) {
          while (!error_ && resume_once({warp, warp + kWarpLanes})) moved = true;
        }
      }
      if (error_) return *error_;
      if (moved) continue;
      const auto count = [&](Fiber::State state) {
        return std::count_if(fibers_.begin(), fibers_.end(), [&](const Fiber& fiber) { return fiber.state == state; });
      };
      if (count(Fiber::State::kEnded) == threads) return {};
      if (count(Fiber::State::kAtBarrier) == threads) {
        for (Fiber& fiber : fibers_) {
          if (fiber.line == fibers_[0].line) continue;
          return error(fmt::format("a barrier: some threads wait in line {}, some in line {}", fibers_[0].line, fiber.line));
        }
        for (Fiber& fiber : fibers_) fiber.state = Fiber::State::kReady;
        continue;
      }
      return error(fmt::format("of {} threads {} have ended, {} wait for the block, {} for their warp: nobody can go on",
                               threads, count(Fiber::State::kEnded), count(Fiber::State::kAtBarrier),
                               count(Fiber::State::kAtWarp)));
    }
  }

  // Runs on a fiber.
  void run_fiber() {
    current().context.arrived(main_);
    (*body_)();
    leave(Fiber::State::kEnded);
  }
  void wait_for_block(int line) {
    current().line = line;
    leave(Fiber::State::kAtBarrier);
  }
  OfLanes meet_warp(std::uint64_t bits, int line) {
    Fiber& fiber = current();
    Warp& warp = warps_[static_cast<std::size_t>(running_ / kWarpLanes)];
    OfLanes& given = warp.given[fiber.met++ % 2];
    given[static_cast<std::size_t>(lane())] = bits;
    fiber.line = line;
    if (++warp.arrived < kWarpLanes) {
      leave(Fiber::State::kAtWarp);
    } else {
      warp.arrived = 0;
      const auto first = fibers_.begin() + running_ / kWarpLanes * kWarpLanes;
      for (auto other = first; other != first + kWarpLanes; ++other) {
        if (other->line != line) fail(fmt::format("a warp: some lanes wait in line {}, some in line {}", line, other->line));
        other->state = Fiber::State::kReady;
      }
    }
    return given;
  }
  [[nodiscard]] int lane() const { return running_ % kWarpLanes; }
  [[nodiscard]] void* shared(std::size_t bytes) {
    if (bytes > shared_bytes_) fail(fmt::format("shared memory: {} bytes are used, {} were asked for", bytes, shared_bytes_));
    return shared_.get();
  }
  [[noreturn]] void fail(std::string what) {
    error_ = error(fmt::format("thread {}: {}", running_, what));
    std::string().swap(what);  // this stack is never unwound
    leave(Fiber::State::kEnded);
    std::abort();  // a finished fiber is never resumed
  }

 private:
  [[nodiscard]] Fiber& current() { return fibers_[static_cast<std::size_t>(running_)]; }
  // Runs each of these threads until it must wait. Returns whether any could run.
  bool resume_once(std::span<const int> threads) {
    bool moved = false;
    for (const int thread : threads) {
      if (error_ || fibers_[static_cast<std::size_t>(thread)].state != Fiber::State::kReady) continue;
      moved = true;
      resume(thread);
    }
    return moved;
  }
  void resume(int thread) {
    running_ = thread;
    threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
    main_.switch_to(current().context);
  }
  void leave(Fiber::State state) {
    Fiber& fiber = current();
    fiber.state = state;
    fiber.context.switch_to(main_, state == Fiber::State::kEnded);
  }
  static Error error(const std::string& what) {
    return Error{ErrorCode::kInternal, fmt::format("block ({}, {}, {}): {}", blockIdx.x, blockIdx.y, blockIdx.z, what)};
  }

  std::vector<std::unique_ptr<std::byte[]>> stacks_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::unique_ptr<std::byte[]> shared_;
  std::size_t shared_bytes_ = 0;
  const std::function<void()>* body_ = nullptr;
  int running_ = 0;
  Context main_;
  std::optional<Error> error_;
};

BlockRunner& runner() {
  thread_local BlockRunner own;
  return own;
}

void fiber_main() { runner().run_fiber(); }

}  // namespace

Result<void> run_grid(dim3 grid, int threads, std::size_t shared_bytes, const Schedule& schedule,
                      const std::function<void()>& thread) {
  assert(threads > 0 && threads % kWarpLanes == 0 && threads <= kMaxThreads);
  // A GPU's limits.
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7FFFFFFFU || grid.y > 0xFFFFU || grid.z > 0xFFFFU ||
      shared_bytes > (227U << 10U)) {
    return Error{ErrorCode::kInternal,
                 fmt::format("launch: must be within a GPU's limits (got a grid of ({}, {}, {}) and {} bytes of shared memory)",
                             grid.x, grid.y, grid.z, shared_bytes)};
  }
  gridDim = grid;
  blockDim = dim3(static_cast<unsigned>(threads));
  std::optional<Rng> shuffle;
  if (schedule.order == Schedule::Order::kShuffled) shuffle.emplace(schedule.seed, "schedule");
  const bool backward = schedule.order == Schedule::Order::kBackward;
  const std::uint64_t blocks = static_cast<std::uint64_t>(grid.x) * grid.y * grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t block = backward ? blocks - 1 - i : i;
    blockIdx = dim3(static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
                    static_cast<unsigned>(block / grid.x / grid.y));
    WINDLASS_RETURN_IF_ERROR(runner().run(threads, shared_bytes, shuffle ? &*shuffle : nullptr, backward, thread));
  }
  return {};
}

void* dynamic_shared(std::size_t bytes) { return runner().shared(bytes); }
void wait_for_block(int line) { runner().wait_for_block(line); }
OfLanes meet_warp(std::uint64_t bits, int line) { return runner().meet_warp(bits, line); }
int lane() { return runner().lane(); }
void fail(std::string what) { runner().fail(std::move(what)); }
void require_aligned(const void* at, std::uintptr_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0)
    fail(fmt::format("an access to {0} bytes that are not aligned to {0}", bytes));
}

}  // namespace emulation

namespace {

// Returns one of the two brain floats in a register.
float half_of(unsigned bits, int number) { return __uint_as_float(number == 0 ? bits << 16U : bits & 0xFFFF0000U); }

std::uint64_t both(unsigned low, unsigned high) { return low | static_cast<std::uint64_t>(high) << 32U; }
unsigned one_of(std::uint64_t two, int number) { return static_cast<unsigned>(number == 0 ? two : two >> 32U); }

}  // namespace

// The lane of each element: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
void multiply_accumulate(float (&sum)[4], const unsigned (&a)[4], unsigned b_low, unsigned b_high, int line) {
  // a[0] and a[2] have rows 0 to 7, a[1] and a[3] rows 8 to 15; a[0] and a[1] columns 0 to 7, the others 8 to 15.
  const emulation::OfLanes upper = emulation::meet_warp(both(a[0], a[2]), line);
  const emulation::OfLanes lower = emulation::meet_warp(both(a[1], a[3]), line);
  const emulation::OfLanes b = emulation::meet_warp(both(b_low, b_high), line);
  const auto row = static_cast<std::size_t>(emulation::lane() / 4);
  const auto column = static_cast<std::size_t>(emulation::lane() % 4 * 2);
  for (std::size_t k = 0; k < 16; ++k) {
    const std::size_t lane = k % 8 / 2;
    const int upper_half = static_cast<int>(k / 8);
    const int number = static_cast<int>(k % 2);
    const float top = half_of(one_of(upper[row * 4 + lane], upper_half), number);
    const float bottom = half_of(one_of(lower[row * 4 + lane], upper_half), number);
    const float left = half_of(one_of(b[column * 4 + lane], upper_half), number);
    const float right = half_of(one_of(b[(column + 1) * 4 + lane], upper_half), number);
    sum[0] += top * left;
    sum[1] += top * right;
    sum[2] += bottom * left;
    sum[3] += bottom * right;
  }
}

template <bool transposed>
void load_matrices(unsigned (&to)[4], const void* row, int line) {
  emulation::require_aligned(row);
  const emulation::OfLanes rows = emulation::meet_warp(reinterpret_cast<std::uintptr_t>(row), line);
  const auto far = static_cast<std::size_t>(emulation::lane() / 4);
  const auto near = static_cast<std::size_t>(emulation::lane() % 4 * 2);
  for (std::size_t m = 0; m < 4; ++m) {
    const auto element = [&](std::size_t r, std::size_t c) -> unsigned {
      return reinterpret_cast<const Bf16*>(rows[8 * m + r])[c].bits;
    };
    to[m] =
        transposed ? element(near, far) | element(near + 1, far) << 16U : element(far, near) | element(far, near + 1) << 16U;
  }
}
template void load_matrices<false>(unsigned (&to)[4], const void* row, int line);
template void load_matrices<true>(unsigned (&to)[4], const void* row, int line);

}  // namespace windlass::worker::cuda
