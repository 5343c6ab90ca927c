#include "dear/comm/mpi/one_host.h"

#include <algorithm>
#include <atomic>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/first_error.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/mpi/mpi.h"
#include "dear/comm/mpi/start_up_exchange.h"
#include "dear/comm/shm/control.h"
#include "dear/comm/shm/shm.h"

namespace dear::backends {
namespace {

// The time for the meeting in shared memory. The ranks have met over MPI already, so none is slow to come.
constexpr auto kMeetingTakes = std::chrono::seconds(10);

// A name for a meeting that no other job has, and no other group of this job.
std::string fresh_name() {
  static std::atomic<int> groups = 0;
  return fmt::format("beside mpi, rank 0 is {}, group {}", getpid(), groups.fetch_add(1));
}

class BesideMpi final : public Backend {
  // After an error the destructor does not wait for MPI.
  template <typename Function>
  auto guarded(const Function& function) {
    return error_.guard(function, [this](const std::exception& error) { abort(error.what()); });
  }

 public:
  BesideMpi(std::shared_ptr<channels::Mpi> mpi, std::unique_ptr<SharedMemory> memory)
      : mpi_(std::move(mpi)), memory_(std::move(memory)) {}

  [[nodiscard]] int rank() const override { return memory_->rank(); }
  [[nodiscard]] int size() const override { return memory_->size(); }
  [[nodiscard]] std::string description() const override { return "mpi, " + describe(*mpi_); }

  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return guarded([&] { return memory_->allocate(bytes, deadline); });
  }
  [[nodiscard]] bool shares_memory() const override { return true; }
  Buffer allocate_shared(std::int64_t bytes, Deadline deadline) override {
    return guarded([&] { return memory_->allocate_shared(bytes, deadline); });
  }
  Timing run(const Request& request, Deadline deadline) override {
    return guarded([&] { return memory_->run(request, deadline); });
  }
  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline deadline) override {
    return guarded([&] { return memory_->split(subgroup, deadline); });
  }
  void abort(const std::string& reason) noexcept override {
    memory_->abort(reason);
    mpi_->abort(reason);
  }

 private:
  std::shared_ptr<channels::Mpi> mpi_;
  std::unique_ptr<SharedMemory> memory_;  // it moves MPI on, so it goes first
  os::FirstError error_;
};

}  // namespace

std::unique_ptr<Backend> make_on_one_host(std::unique_ptr<channels::Mpi>& mpi, Deadline deadline,
                                          std::string& why_not) {
  if (mpi->size() > Control::kMaxRanks) {
    why_not = fmt::format("shared memory takes {} ranks on a host", Control::kMaxRanks);
    return nullptr;
  }
  const std::string name = text_of_rank_0(*mpi, fresh_name(), deadline);
  // Parts of this group let MPI make progress as well, and may live longer.
  const auto kept = std::make_shared<std::shared_ptr<channels::Mpi>>();
  std::unique_ptr<SharedMemory> memory;
  try {
    const Deadline soon =
        Deadline::after(std::min<std::chrono::nanoseconds>(kMeetingTakes, deadline.remaining()));
    memory = make_shm({.rendezvous = name,
                       .rank = mpi->rank(),
                       .size = mpi->size(),
                       .deadline = soon,
                       .meanwhile = [&mpi = *mpi, kept] { mpi.progress(); }});
  } catch (const Error& error) {
    why_not = error.what();
  }
  if (!on_all_ranks(*mpi, memory != nullptr, deadline)) {
    if (memory) why_not = "another rank could not have it";
    return nullptr;
  }
  *kept = std::move(mpi);
  return std::make_unique<BesideMpi>(*kept, std::move(memory));
}

}  // namespace dear::backends
