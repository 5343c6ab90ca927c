#include "dear/comm/mpi/channels/process.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/mpi/channels/notice.h"

namespace dear::channels {
namespace {

// Between the farewell and the end of MPI, when nobody has anything to say any more: MPI may wait for ever
// there (binding.cpp, [Note: Still before the end]).
constexpr auto kParting = std::chrono::seconds(10);

// [Note: MPI's thread] MPI_Init and MPI_Finalize wait for all ranks without an end, and MPI wants both from
// one thread. So a thread of its own calls them, and whoever needs them waits for it as long as it likes;
// between the two it sleeps. What it shares is never freed: the thread may outlive everything.
struct Life {
  std::mutex mutex;
  std::condition_variable changed;
  enum class Phase : std::uint8_t { none, starting, started, failed, ending, parting, ended };
  Phase phase = Phase::none;
  bool in_use = false;
  bool lost = false;
  pid_t process = 0;
  MpiWorld world;
  int serialized = 0;
  int error = 0;
  std::chrono::nanoseconds patience{};  // with peers that have not come to the end
};

// MPI itself is one for the process.
Life& life() {
  static auto* const kLife = new Life;
  return *kLife;
}

std::string words_of(const MpiBinding& binding, int error) {
  char text[512] = "";
  binding.describe_error(error, text, sizeof text);
  return text;
}

// Who failed does not come to a farewell.
int goes_on(const void* message, std::int64_t bytes) {
  Notice notice;
  if (bytes != sizeof notice) {
    return 1;
  }
  std::memcpy(&notice, message, sizeof notice);
  return notice.kind != Notice::Kind::aborted ? 1 : 0;
}

void live(Life& life) {
  MpiWorld world = life.world;
  int serialized = 0;
  int error = world.binding->initialize(&world.rank, &world.size, &serialized);
  std::unique_lock lock(life.mutex);
  life.world = world;
  life.serialized = serialized;
  life.error = error;
  life.phase = error == 0 ? Life::Phase::started : Life::Phase::failed;
  life.changed.notify_all();
  life.changed.wait(lock, [&] { return life.phase == Life::Phase::ending; });
  lock.unlock();
  int met = 0;
  world.binding->meet_to_end(goes_on, &met);
  lock.lock();
  life.phase = met != 0 ? Life::Phase::parting : Life::Phase::failed;
  life.changed.notify_all();
  if (met == 0) return;
  lock.unlock();
  world.binding->finalize();
  lock.lock();
  life.phase = Life::Phase::ended;
  life.changed.notify_all();
}

// Runs when the process ends by exit() or the end of main. An MPI that was lost must not be called, and its
// own handlers, which may wait, must not run either.
void end(int status, void* /*unused*/) {
  Life& mpi = life();
  if (getpid() != mpi.process) {
    return;
  }
  std::unique_lock lock(mpi.mutex);
  if (mpi.phase == Life::Phase::started && !mpi.lost) {
    mpi.phase = Life::Phase::ending;
    mpi.changed.notify_all();
    if (!mpi.changed.wait_for(lock, mpi.patience, [&] { return mpi.phase != Life::Phase::ending; })) {
      std::fprintf(
          stderr,
          "dear: rank %d ends without MPI's own end: not all ranks came to it within %s (if they only "
          "take long, give a longer timeout)\n",
          mpi.world.rank, format_seconds(std::chrono::duration<double>(mpi.patience).count()).c_str());
    }
    mpi.changed.wait_for(lock, kParting, [&] { return mpi.phase != Life::Phase::parting; });
    if (mpi.phase == Life::Phase::ended) {
      return;
    }
  }
  std::fflush(nullptr);
  _exit(status);
}

void start_mpi_thread(Life& mpi) {
  std::thread thread = os::start_thread("that starts MPI", [&mpi] { live(mpi); });
  pthread_setname_np(thread.native_handle(), "dear-mpi");
  thread.detach();
}

}  // namespace

MpiWorld take_mpi(const MpiBinding& binding, bool outlive_peers, Deadline deadline) {
  const std::chrono::nanoseconds patience = deadline.remaining();  // of what the program gave
  Life& mpi = life();
  std::unique_lock lock(mpi.mutex);
  if (mpi.in_use) {
    throw ConfigError("MPI is in use in this process already: one group over MPI at a time");
  }
  if (mpi.world.binding != nullptr && mpi.world.binding != &binding) {
    throw ConfigError(fmt::format("this process started {}, so it cannot start {}: use one MPI in a process",
                                  mpi.world.binding->implementation, binding.implementation));
  }
  if (mpi.lost) {
    throw TransportError(
        "MPI failed in this process before, and cannot be started again: start the job anew");
  }
  if (mpi.phase == Life::Phase::none) {
    const SteadyTime begin = SteadyClock::now();
    mpi.world.binding = &binding;
    binding.prepare(outlive_peers ? 1 : 0);
    start_mpi_thread(mpi);
    mpi.process = getpid();
    mpi.phase = Life::Phase::starting;
    on_exit(end, nullptr);
    mpi.changed.wait_until(lock, deadline.at(), [&] { return mpi.phase != Life::Phase::starting; });
    if (mpi.phase == Life::Phase::starting) {
      mpi.lost = true;
      throw TimeoutError(fmt::format(
          "MPI did not start within {}: not all ranks came, or its launcher is no {}; look at the other "
          "ranks' "
          "output, and start all of them with one mpirun",
          format_seconds(seconds_of(SteadyClock::now()) - seconds_of(begin)), binding.implementation));
    }
    // MPI's own handlers, by which MPICH since 4.2 tells its launcher that all is well, must come after its
    // end: what was registered last runs first. The one above serves where MPI never starts.
    if (mpi.phase == Life::Phase::started) on_exit(end, nullptr);
  }
  if (mpi.phase != Life::Phase::started || mpi.serialized == 0) {
    mpi.lost = true;
    throw TransportError(fmt::format(
        "MPI did not start: {}",
        mpi.error != 0 ? words_of(binding, mpi.error)
                       : "it does not let threads call it in turn; use a build with MPI_THREAD_SERIALIZED"));
  }
  mpi.in_use = true;
  mpi.patience = std::max(mpi.patience, patience);
  ++mpi.world.session;
  return mpi.world;
}

void give_back_mpi(MpiState state) noexcept {
  Life& mpi = life();
  const std::lock_guard lock(mpi.mutex);
  mpi.in_use = false;
  mpi.lost = mpi.lost || state == MpiState::lost;
}

}  // namespace dear::channels
