#include "dear/base/os/testing/faults.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <mutex>
#include <sstream>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dear::os::testing {
namespace {

enum class Call : std::uint8_t {
  open,
  read,
  write,
  fsync,
  close,
  rename,
  unlink,
  mkdir,
  flock,
  truncate,
  any,
  clock
};
constexpr std::array<const char*, 12> kCalls = {"open",   "read",  "write", "fsync",    "close", "rename",
                                                "unlink", "mkdir", "flock", "truncate", "any",   "clock"};

enum class Kind : std::uint8_t { error, shorter, slow, kill, stop, fork, jump };

struct Named {
  const char* name;
  int number;
};
constexpr std::array<Named, 4> kErrors = {
    {{"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"EACCES", EACCES}}};

struct Rule {
  Call call = Call::any;
  std::uint64_t first = 0, last = 0;  // of the calls
  std::uint64_t one_in = 0;           // 0: by number
  Kind kind = Kind::error;
  int error = 0;
  double seconds = 0;
  std::string fault;  // as the plan names it
  mutable std::atomic<std::uint64_t> calls = 0;
};

struct Plan {
  std::deque<Rule> rules;
  std::uint64_t seed = 0;
  std::string path, log;
  mutable std::atomic<int> happened = 0;
  mutable std::atomic<std::int64_t> jumped_seconds = 0;
};

// Plans stay, since other threads may look at one that has gone.
std::deque<Plan> plans;
std::mutex plans_mutex;
std::atomic<const Plan*> current = nullptr;

[[noreturn]] void refuse(const std::string& word) {
  const std::string text = "DEAR_FAULTS: cannot read '" + word + "' (see dear/base/os/testing/faults.h)\n";
  static_cast<void>(!::syscall(SYS_write, STDERR_FILENO, text.data(), text.size()));
  ::_exit(125);
}

template <typename Number>
Number number_in(std::string_view text, const std::string& word) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) refuse(word);
  return number;
}

void read_when(std::string_view when, const std::string& word, Rule& rule) {
  if (when.starts_with("1/")) {
    rule.one_in = number_in<std::uint64_t>(when.substr(2), word);
    if (rule.one_in == 0) refuse(word);
    return;
  }
  const bool and_later = when.ends_with('+');
  if (and_later) when.remove_suffix(1);
  rule.first = number_in<std::uint64_t>(when, word);
  rule.last = and_later ? UINT64_MAX : rule.first;
}

void read_fault(std::string_view fault, const std::string& word, Rule& rule) {
  rule.fault = fault;
  for (const Named& one : kErrors)
    if (fault == one.name) return void(rule.error = one.number);
  if (fault == "short") return void(rule.kind = Kind::shorter);
  if (fault == "kill") return void(rule.kind = Kind::kill);
  if (fault == "stop") return void(rule.kind = Kind::stop);
  if (fault == "fork") return void(rule.kind = Kind::fork);
  const bool slow = fault.starts_with("slow=");
  if (!slow && !fault.starts_with("jump=")) refuse(word);
  rule.kind = slow ? Kind::slow : Kind::jump;
  rule.seconds = number_in<double>(fault.substr(5), word);
}

void read_rule(const std::string& word, Rule& rule) {
  const std::size_t first = word.find(':'), second = word.find(':', first + 1);
  if (second == std::string::npos) refuse(word);
  std::size_t call = 0;
  while (call < kCalls.size() && word.substr(0, first) != kCalls[call]) ++call;
  if (call == kCalls.size()) refuse(word);
  rule.call = static_cast<Call>(call);
  read_when(std::string_view(word).substr(first + 1, second - first - 1), word, rule);
  read_fault(std::string_view(word).substr(second + 1), word, rule);
  if ((rule.kind == Kind::jump) != (rule.call == Call::clock)) refuse(word);
}

// A number that the seed and this one give.
std::uint64_t drawn(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t bits = seed * 0x9E3779B97F4A7C15U + number;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31U);
}

// Whether this call is one of those that go wrong.
bool falls_on(const Rule& rule, std::uint64_t seed, std::uint64_t number) {
  return rule.one_in > 0 ? drawn(seed, number) % rule.one_in == 0
                         : number >= rule.first && number <= rule.last;
}

void note(const Plan& plan, const Rule& rule, Call call, std::uint64_t number, const std::string& path) {
  ++plan.happened;
  if (plan.log.empty()) return;
  const std::string line = std::string(kCalls[static_cast<std::size_t>(call)]) + ' ' +
                           std::to_string(number) + ' ' + rule.fault + ' ' + path + '\n';
  const auto file = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, plan.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  static_cast<void>(!::syscall(SYS_write, file, line.data(), line.size()));
  ::syscall(SYS_close, file);
}

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  return {path.data(), static_cast<std::size_t>(length > 0 ? length : 0)};
}

// What is to become of a call.
struct Fate {
  int error = 0;         // it fails so
  bool shorter = false;  // it moves half of its bytes
};

// No signal interrupts what only looks up a name.
bool can_befall(const Rule& rule, Call call) {
  if (rule.kind == Kind::shorter) return call == Call::read || call == Call::write;
  if (rule.error == EINTR) return call != Call::rename && call != Call::unlink && call != Call::mkdir;
  return true;
}

void befall(const Rule& rule) {
  if (rule.kind == Kind::kill || rule.kind == Kind::stop)
    ::kill(::getpid(), rule.kind == Kind::kill ? SIGKILL : SIGSTOP);
  if (rule.kind == Kind::slow) {
    timespec left{.tv_sec = static_cast<time_t>(rule.seconds),
                  .tv_nsec = static_cast<long>(
                      (rule.seconds - static_cast<double>(static_cast<time_t>(rule.seconds))) * 1e9)};
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
  if (rule.kind == Kind::fork) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

// `path` is only asked for where there is a plan.
template <typename Path>
Fate fate_of(Call call, const Path& path) {
  const Plan* const plan = current.load(std::memory_order_acquire);
  if (plan == nullptr) return {};
  const int before = errno;
  Fate fate;
  std::string name;
  for (const Rule& rule : plan->rules) {
    if (rule.call != call && !(rule.call == Call::any && call != Call::unlink)) continue;
    if (!can_befall(rule, call)) continue;
    if (name.empty()) name = path();
    if (name.find(plan->path) == std::string::npos) break;
    const std::uint64_t number = ++rule.calls;
    if (!falls_on(rule, plan->seed, number)) continue;
    note(*plan, rule, call, number, name);
    befall(rule);
    if (rule.kind == Kind::error) fate.error = rule.error;
    if (rule.kind == Kind::shorter) fate.shorter = true;
  }
  errno = fate.error != 0 ? fate.error : before;
  return fate;
}
Fate fate_of(Call call, int descriptor) {
  return fate_of(call, [descriptor] { return path_of(descriptor); });
}
Fate fate_of_name(Call call, const char* name) {
  return fate_of(call, [name] { return std::string(name == nullptr ? "" : name); });
}

std::int64_t seconds_off() {
  const Plan* const plan = current.load(std::memory_order_acquire);
  if (plan == nullptr) return 0;
  for (const Rule& rule : plan->rules) {
    if (rule.call != Call::clock) continue;
    const std::uint64_t number = ++rule.calls;
    if (!falls_on(rule, plan->seed, number)) continue;
    note(*plan, rule, Call::clock, number, "");
    const auto seconds = static_cast<std::int64_t>(rule.seconds);
    plan->jumped_seconds = drawn(~plan->seed, number) % 2 == 0 ? seconds : -seconds;
  }
  return plan->jumped_seconds;
}

template <typename Function>
Function* real(std::atomic<void*>& found, const char* name) {
  void* function = found.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = ::dlsym(RTLD_NEXT, name);
    found = function;
  }
  return reinterpret_cast<Function*>(function);
}

std::size_t half_of(std::size_t bytes) { return (bytes + 1) / 2; }

const bool kBegan = [] {
  if (const char* const plan = std::getenv("DEAR_FAULTS")) plan_faults(plan);
  return true;
}();

}  // namespace

void plan_faults(const std::string& plan) {
  const std::lock_guard lock(plans_mutex);
  Plan& read = plans.emplace_back();
  bool here = true;
  std::istringstream words(plan);
  for (std::string word; words >> word;) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word.starts_with("seed=")) {
      read.seed = number_in<std::uint64_t>(value, word);
    } else if (word.starts_with("path=")) {
      read.path = value;
    } else if (word.starts_with("log=")) {
      read.log = value;
    } else if (word.starts_with("rank=")) {
      const char* const rank = std::getenv("RANK");
      here = here && rank != nullptr && value == rank;
    } else {
      read_rule(word, read.rules.emplace_back());
    }
  }
  current.store(here && !read.rules.empty() ? &read : nullptr, std::memory_order_release);
}

int faults_happened() {
  const std::lock_guard lock(plans_mutex);
  return plans.empty() ? 0 : plans.back().happened.load();
}

}  // namespace dear::os::testing

// ---- The functions of the C library

using dear::os::testing::Call;
using dear::os::testing::Fate;
using dear::os::testing::fate_of;
using dear::os::testing::fate_of_name;

#define REAL(name)                                                  \
  ([] {                                                             \
    static std::atomic<void*> found = nullptr;                      \
    return dear::os::testing::real<decltype(::name)>(found, #name); \
  }())

extern "C" {

#define OPEN(name)                                                                       \
  int name(const char* path, int flags, ...) {                                           \
    va_list rest;                                                                        \
    va_start(rest, flags);                                                               \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                                        \
    if (fate_of_name(Call::open, path).error != 0) return -1;                            \
    return REAL(name)(path, flags, mode);                                                \
  }
#define OPENAT(name)                                                                     \
  int name(int folder, const char* path, int flags, ...) {                               \
    va_list rest;                                                                        \
    va_start(rest, flags);                                                               \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                                        \
    if (fate_of_name(Call::open, path).error != 0) return -1;                            \
    return REAL(name)(folder, path, flags, mode);                                        \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int file, void* into, size_t bytes) {
  const Fate fate = fate_of(Call::read, file);
  return fate.error != 0 ? -1
                         : REAL(read)(file, into, fate.shorter ? dear::os::testing::half_of(bytes) : bytes);
}
ssize_t write(int file, const void* from, size_t bytes) {
  const Fate fate = fate_of(Call::write, file);
  return fate.error != 0 ? -1
                         : REAL(write)(file, from, fate.shorter ? dear::os::testing::half_of(bytes) : bytes);
}
#define AT_OFFSET(name, call, pointer, offset_type)                                                      \
  ssize_t name(int file, pointer memory, size_t bytes, offset_type at) {                                 \
    const Fate fate = fate_of(call, file);                                                               \
    return fate.error != 0                                                                               \
               ? -1                                                                                      \
               : REAL(name)(file, memory, fate.shorter ? dear::os::testing::half_of(bytes) : bytes, at); \
  }
AT_OFFSET(pread, Call::read, void*, off_t)
AT_OFFSET(pread64, Call::read, void*, off64_t)
AT_OFFSET(pwrite, Call::write, const void*, off_t)
AT_OFFSET(pwrite64, Call::write, const void*, off64_t)

int fsync(int file) { return fate_of(Call::fsync, file).error != 0 ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return fate_of(Call::fsync, file).error != 0 ? -1 : REAL(fdatasync)(file); }
int close(int file) {  // as Linux does: the descriptor is gone whatever close() says
  const Fate fate = fate_of(Call::close, file);
  const int result = REAL(close)(file);
  if (fate.error == 0) return result;
  errno = fate.error;
  return -1;
}
int rename(const char* from, const char* to) noexcept {
  return fate_of_name(Call::rename, to).error != 0 ? -1 : REAL(rename)(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return fate_of_name(Call::rename, to).error != 0 ? -1
                                                   : REAL(renameat2)(from_folder, from, to_folder, to, flags);
}
int unlink(const char* path) noexcept {
  return fate_of_name(Call::unlink, path).error != 0 ? -1 : REAL(unlink)(path);
}
int remove(const char* path) noexcept {
  return fate_of_name(Call::unlink, path).error != 0 ? -1 : REAL(remove)(path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return fate_of_name(Call::mkdir, path).error != 0 ? -1 : REAL(mkdir)(path, mode);
}
int flock(int file, int how) noexcept {
  return fate_of(Call::flock, file).error != 0 ? -1 : REAL(flock)(file, how);
}
int ftruncate(int file, off_t bytes) noexcept {
  return fate_of(Call::truncate, file).error != 0 ? -1 : REAL(ftruncate)(file, bytes);
}
int posix_fallocate(int file, off_t at, off_t bytes) {  // returns the error
  const Fate fate = fate_of(Call::truncate, file);
  return fate.error != 0 ? fate.error : REAL(posix_fallocate)(file, at, bytes);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = REAL(clock_gettime)(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += dear::os::testing::seconds_off();
  return result;
}
int gettimeofday(timeval* time, void* zone) noexcept {
  const int result = REAL(gettimeofday)(time, zone);
  if (result == 0) time->tv_sec += dear::os::testing::seconds_off();
  return result;
}
time_t time(time_t* into) noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
