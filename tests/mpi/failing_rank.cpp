// One rank of a job in which something goes wrong, for failures_test.py:
//   failing_rank FOLDER BACKEND TIMEOUT_SECONDS VICTIM ACTION AFTER
// runs collectives over MPI, on backend mpi or mpi-messages. After so many of them the rank VICTIM does
// ACTION: kill, stop, leave, exit (with its group in a local), mismatch, count=NUMBER or label=NUMBER of the
// next one, or kill=NUMBER, whatever it does then, when a thread has yielded its processor so often; or it is
// absent from the beginning, or comes late, and then all leave after so many. Who is late waits until all
// others sleep; these tell it their process ids through the pipe FOLDER/late. Whoever survives writes what it
// met to FOLDER/RANK: "ended", or an error.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/testing/sleeping_threads.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/init.h"

namespace {

using namespace dear;

std::string kind_of(const std::exception& error) {
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) return "TimeoutError";
  if (dynamic_cast<const MismatchError*>(&error) != nullptr) return "MismatchError";
  if (dynamic_cast<const TransportError*>(&error) != nullptr) return "TransportError";
  return "error";
}

enum class After : std::uint8_t { go_on, leave, mismatch, count, label };
constexpr std::string_view kLabel = "label=";
constexpr std::string_view kCount = "count=";
constexpr std::string_view kLate = "late";
constexpr std::string_view kKill = "kill=";

void kill_after(long yields) {
  std::thread([yields] {
    for (long i = 0; i < yields; ++i) std::this_thread::yield();
    raise(SIGKILL);
  }).detach();
}

// Each of the others writes a line to the pipe before it comes; who is late reads all of them. It opens the
// pipe for both ends, since one that the first writer has left would read as ended.
void tell_who_is_late(const std::string& pipe) { std::ofstream(pipe) << std::to_string(::getpid()) + "\n"; }
void await_sleep_of_others(const std::string& pipe, int others) {
  std::fstream lines(pipe, std::ios::in | std::ios::out);
  pid_t process = 0;
  for (int i = 0; i < others && lines >> process; ++i) os::testing::await_sleep_of(process);
}

After act(const std::string& action) {
  if (action == "kill") {
    raise(SIGKILL);
  } else if (action.starts_with(kKill)) {
    kill_after(std::atol(action.c_str() + kKill.size()));
  } else if (action == "stop") {
    raise(SIGSTOP);
  } else if (action == "exit") {
    std::exit(0);
  } else if (action == "leave") {
    return After::leave;
  } else if (action == "mismatch") {
    return After::mismatch;
  } else if (action.starts_with(kLabel)) {
    return After::label;
  } else if (action.starts_with(kCount)) {
    return After::count;
  }
  return After::go_on;
}

void run(const std::string& backend, double timeout, bool victim, const std::string& action, int after) {
  Group group = init(
      {.timeout = std::chrono::duration<double>(timeout), .backend = backend, .say = [](const auto&) {}});
  constexpr std::int64_t kMostElements = 300'000;
  Buffer buffer = group.allocate(kMostElements * 4);
  for (int i = 0; i < after || action != kLate; ++i) {
    // From one element to all, small and large in turn.
    std::int64_t count = std::max<std::int64_t>(1, kMostElements >> (3 * (i % 7)));
    std::int64_t label = -1;
    if (victim && i == after) {
      const After then = act(action);
      if (then == After::leave) return;
      if (then == After::mismatch) count = count > 1 ? count - 1 : 2;
      if (then == After::count) count = std::atoll(action.c_str() + kCount.size());
      if (then == After::label) label = std::atoll(action.c_str() + kLabel.size());
    }
    group.issue({.collective = Collective::reduce_scatter,
                 .view = {.buffer = buffer, .count = count},
                 .label = label});
    group.all_gather({.buffer = buffer, .count = count}).wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: failing_rank FOLDER BACKEND TIMEOUT_SECONDS VICTIM ACTION AFTER\n");
    return 2;
  }
  const std::string folder = argv[1];
  const std::string action = argv[5];
  const LaunchEnvironment environment = read_launch_environment();
  const bool victim = environment.rank == std::atoi(argv[4]);
  std::signal(SIGUSR1, [](int) {});  // MPICH's mpiexec tells survivors of a death with it
  if (victim && action == "absent") {
    for (;;) pause();
  }
  if (action == kLate) {
    const std::string pipe = folder + "/late";
    victim ? await_sleep_of_others(pipe, environment.size - 1) : tell_who_is_late(pipe);
  }
  std::string report = "ended";
  try {
    run(argv[2], std::atof(argv[3]), victim, action, std::atoi(argv[6]));
  } catch (const std::exception& error) {
    report = kind_of(error) + ": " + error.what();
  }
  os::write_file_atomically(folder + "/" + std::to_string(environment.rank), report);
  return report == "ended" ? 0 : 1;
}
