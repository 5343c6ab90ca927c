#include "dear/base/recorder/recorder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <climits>
#include <fmt/format.h>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/recorder/check.h"
#include "dear/base/vocabulary/error.h"

namespace dear::recorder {
namespace {

std::atomic<Layout*> of_this_process = nullptr;
std::atomic<std::uint16_t> groups = 0;
std::atomic<int> signal_of_stacks = 0;
std::atomic<std::int64_t> steps_ended = 0, last_collective = -1;
std::atomic<std::uint8_t> last_kind = 0;
std::atomic<bool> is_in_collective = false;
std::atomic<int> files_in_use = 0;

std::int64_t now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

[[noreturn]] void refuse(const std::string& path) {
  throw ConfigError(fmt::format(
      "DEAR_RECORD: cannot write the record {}: {}; name a folder that this user may write into, or unset it",
      path, std::strerror(errno)));
}

Layout* map(const std::string& path) {
  const os::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600));
  struct stat state{};
  if (!file.is_open() || ::fstat(file.get(), &state) != 0) refuse(path);
  if (!S_ISREG(state.st_mode)) errno = EINVAL, refuse(path);
  // Its pages are there from now on: a disk that fills up later must not end the rank.
  if (const int error = ::posix_fallocate(file.get(), 0, sizeof(Layout)); error != 0)
    errno = error, refuse(path);
  void* const memory = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) refuse(path);
  static_cast<Layout*>(memory)->magic = 0;
  return new (memory) Layout;
}

// The last bytes: paths and names of tensors differ there.
void put(std::string_view from, std::span<char> to) {
  if (from.size() > to.size()) from.remove_prefix(from.size() - to.size());
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

void open(int rank, int ranks) {
  static std::mutex mutex;
  static bool asked = false;
  const std::lock_guard lock(mutex);
  if (std::exchange(asked, true)) return;
  const char* const place = std::getenv("DEAR_RECORD");
  if (place == nullptr || *place == '\0') return;
  std::string path = place;
  struct stat state{};
  if (::stat(path.c_str(), &state) == 0 && S_ISDIR(state.st_mode))
    path += fmt::format("/rank-{}.record", rank);
  Layout* const layout = map(path);
  layout->rank = rank;
  layout->ranks = ranks;
  layout->pid = ::getpid();
  layout->stacks = signal_of_stacks.load();
  layout->realtime_minus_monotonic = now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC);
  ::gethostname(layout->host.data(), layout->host.size() - 1);
  std::atomic_thread_fence(std::memory_order_release);
  layout->magic = Layout::kMagic;
  ::pthread_atfork(nullptr, nullptr, [] { of_this_process.store(nullptr); });
  of_this_process.store(layout, std::memory_order_release);
}

void begin_again(int rank, int ranks) {
  groups = 0;
  Layout* const layout = of_this_process.load(std::memory_order_acquire);
  if (layout == nullptr) return;
  layout->events = 0;
  layout->ring.fill({});
  layout->failure_state = 0;
  layout->failure.fill('\0');
  layout->failure_is_own = 0;
  layout->rank = rank;
  layout->ranks = ranks;
}

bool is_open() { return of_this_process.load(std::memory_order_relaxed) != nullptr; }
std::uint16_t next_group() { return groups.fetch_add(1, std::memory_order_relaxed); }

void note(const Note& what) {
  Layout* const layout = of_this_process.load(std::memory_order_acquire);
  if (layout == nullptr) return;
  const std::uint64_t place = layout->events.fetch_add(1, std::memory_order_relaxed);
  Event event{.nanoseconds = now(CLOCK_MONOTONIC),
              .number = what.number,
              .first = what.first,
              .second = what.second,
              .kind = what.kind,
              .collective = what.collective,
              .group = what.group,
              .sequence = static_cast<std::uint32_t>(place)};
  put(what.text, event.text);
  event.check = check_of(event);
  write(event, layout->ring[place % kEvents]);
}

void note_step(std::int64_t number, double seconds, double exposed) {
  steps_ended.store(number, std::memory_order_relaxed);
  Layout* const layout = of_this_process.load(std::memory_order_acquire);
  if (layout == nullptr) return;
  const auto whole = static_cast<std::int64_t>(1e9 * seconds),
             waited = static_cast<std::int64_t>(1e9 * exposed);
  note({.kind = Kind::step, .number = number, .first = waited, .second = whole});
  layout->step_nanoseconds.fetch_add(whole, std::memory_order_relaxed);
  layout->exposed_nanoseconds.fetch_add(waited, std::memory_order_relaxed);
  layout->steps.fetch_add(1, std::memory_order_release);
}

Standing standing() {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return {.steps = steps_ended.load(kRelaxed),
          .collective = last_collective.load(kRelaxed),
          .kind = last_kind.load(kRelaxed),
          .in_collective = is_in_collective.load(kRelaxed),
          .at_files = files_in_use.load(kRelaxed) > 0};
}

void come_to_collective(std::int64_t number, std::uint8_t kind) {
  last_collective.store(number, std::memory_order_relaxed);
  last_kind.store(kind, std::memory_order_relaxed);
  is_in_collective.store(true, std::memory_order_relaxed);
}
void leave_collective() { is_in_collective.store(false, std::memory_order_relaxed); }

Files::Files(std::string_view path) {
  files_in_use.fetch_add(1, std::memory_order_relaxed);
  note({.kind = Kind::files, .text = path});
}
Files::~Files() {
  note({.kind = Kind::files_done});
  files_in_use.fetch_sub(1, std::memory_order_relaxed);
}

void note_not_finite(std::int64_t step, std::string_view what) {
  const std::size_t begin = what.find('\''), end = what.find('\'', begin + 1);
  if (end != std::string_view::npos) what = what.substr(begin + 1, end - begin - 1);
  note({.kind = Kind::not_finite, .number = step, .text = what});
}

void note_failure(std::string_view why, bool own) {
  Layout* const layout = of_this_process.load(std::memory_order_acquire);
  std::int32_t none = 0;
  if (layout == nullptr || !layout->failure_state.compare_exchange_strong(none, 1)) return;
  layout->failed_at = now(CLOCK_MONOTONIC);
  const std::string_view kept = why.substr(0, layout->failure.size() - 1);
  std::copy(kept.begin(), kept.end(), layout->failure.begin());
  layout->failure_is_own = own ? 1 : 0;
  layout->failure_state.store(2, std::memory_order_release);
}

void note_first_step(std::int64_t step) {
  if (Layout* const layout = of_this_process.load(std::memory_order_acquire)) layout->first_step = step;
}

void note_progress(std::int64_t steps) {
  Layout* const layout = of_this_process.load(std::memory_order_acquire);
  if (layout != nullptr) layout->first_step = steps - layout->steps.load(std::memory_order_relaxed);
}

void note_stacks(int signal) {
  signal_of_stacks = signal;
  if (Layout* const layout = of_this_process.load(std::memory_order_acquire)) layout->stacks = signal;
}

}  // namespace dear::recorder
