// One rank of a job in which something goes wrong, for failures_test.py:
//   failing_rank FOLDER BACKEND TIMEOUT_SECONDS VICTIM ACTION AFTER
// runs collectives over MPI, on backend mpi or mpi-messages. After so many of them the rank VICTIM does
// ACTION: kill, stop, leave, exit (with its group in a local), mismatch, count=NUMBER or label=NUMBER of the
// next one, or kill=MICROSECONDS later, whatever it does then; or it is absent from the beginning, or comes
// late=SECONDS, and then all leave after so many. Whoever survives writes what it met to FOLDER/RANK:
// "ended", or an error.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "dear/backends/environment.h"
#include "dear/backends/init.h"
#include "dear/base/atomic_file.h"
#include "dear/base/error.h"

namespace {

using namespace dear;

std::string kind_of(const std::exception& error) {
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) return "TimeoutError";
  if (dynamic_cast<const MismatchError*>(&error) != nullptr) return "MismatchError";
  if (dynamic_cast<const TransportError*>(&error) != nullptr) return "TransportError";
  return "error";
}

enum class After { go_on, leave, mismatch, count, label };
constexpr std::string_view kLabel = "label=";
constexpr std::string_view kCount = "count=";
constexpr std::string_view kLate = "late=";
constexpr std::string_view kKill = "kill=";

void kill_in(std::chrono::microseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    raise(SIGKILL);
  }).detach();
}

After act(const std::string& action) {
  if (action == "kill") {
    raise(SIGKILL);
  } else if (action.starts_with(kKill)) {
    kill_in(std::chrono::microseconds(std::atoll(action.c_str() + kKill.size())));
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
  for (int i = 0; i < after || !action.starts_with(kLate); ++i) {
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
  const int rank = read_launch_environment().rank;
  const bool victim = rank == std::atoi(argv[4]);
  std::signal(SIGUSR1, [](int) {});  // MPICH's mpiexec tells survivors of a death with it
  if (victim && action == "absent") {
    for (;;) pause();
  }
  if (victim && action.starts_with(kLate))
    sleep(static_cast<unsigned>(std::atoi(action.c_str() + kLate.size())));
  std::string report = "ended";
  try {
    run(argv[2], std::atof(argv[3]), victim, action, std::atoi(argv[6]));
  } catch (const std::exception& error) {
    report = kind_of(error) + ": " + error.what();
  }
  write_file_atomically(folder + "/" + std::to_string(rank), report);
  return report == "ended" ? 0 : 1;
}
