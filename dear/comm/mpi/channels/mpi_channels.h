#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "dear/base/os/first_error.h"
#include "dear/base/os/peers.h"
#include "dear/comm/mpi/channels/backoff.h"
#include "dear/comm/mpi/channels/mpi.h"
#include "dear/comm/mpi/channels/notice.h"
#include "dear/comm/mpi/channels/process.h"

namespace dear::channels {

// Channels on an MPI that has started. Every call of MPI is made under one lock: the group's thread has it
// while it waits, and looks after what abort() asks for from elsewhere.
class MpiChannels final : public Mpi {
 public:
  explicit MpiChannels(const MpiWorld& world);
  MpiChannels(const MpiChannels&) = delete;
  MpiChannels& operator=(const MpiChannels&) = delete;
  // Tells the peers that this rank left, and gives MPI back.
  ~MpiChannels() override;

  // Every pair exchanges a message; afterwards each rank knows where all run.
  void meet(Deadline deadline);

  [[nodiscard]] int rank() const override { return world_.rank; }
  [[nodiscard]] int size() const override { return world_.size; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] const std::vector<int>& hosts() const override { return hosts_; }

  void start(Transfer& transfer) override;
  bool progress() override;
  void wait_until(const Describe& what, Deadline deadline, Deadline until) override;
  void abort(const std::string& reason) noexcept override;

  void exchange(std::span<const EagerMessage> messages, Tag tag, const Describe& what,
                Deadline deadline) override;
  [[nodiscard]] bool supports(const MpiCollective& collective) const override;
  void run(const MpiCollective& collective, const Describe& what, Deadline deadline) override;
  void run_blocking(const MpiCollective& collective) override;

 private:
  // A transfer of more bytes than a message of MPI holds travels as several.
  struct Chunks {
    int left = 0;
    std::int64_t bytes = 0;
  };

  // Under the lock. The first error is this object's for good: MPI says little of what still works after one.
  template <typename Function>
  auto guarded(const Function& function) {
    const std::lock_guard lock(turn_);
    return error_.guard(
        [&] {
          look_for_abort();
          return function();
        },
        [](const std::exception&) {});
  }
  void check(int error, const char* doing) const;
  void start_chunk(Transfer& transfer, std::int64_t from, std::int64_t bytes);
  bool poll();
  bool finish(const MpiCompletion& completion);

  // In the tag of a transfer whose message may be shorter; the transfer's bytes become those that came.
  static constexpr Tag kOrShorter = Tag{1} << 31;
  [[noreturn]] void throw_wrong_length(const Transfer& transfer, const MpiCompletion& completion) const;

  UsualWait& usual_wait();
  void look_until(const std::function<bool()>& look, const Describe& what, Deadline deadline, Deadline until,
                  UsualWait* usual = nullptr);
  [[nodiscard]] std::vector<int> awaited() const;
  void look_for_trouble(const Describe& what, SteadyTime since);
  [[noreturn]] void fail_late(const Describe& what, SteadyTime since);

  template <typename Carry>
  void carry(const MpiCollective& collective, const Carry& by_mpi);

  void look_for_abort();
  void take_notices();
  void tell_peers(Notice::Kind kind, const std::string& text) noexcept;

  MpiWorld world_;
  std::vector<int> hosts_;
  os::Peers peers_;  // those of this host can be watched
  Backoff::Processors processors_ = Backoff::Processors::shared;

  std::timed_mutex turn_;
  os::FirstError error_;
  std::unordered_map<const Transfer*, Chunks> chunks_;
  std::vector<SteadyTime> left_;  // by rank: since when it is known to have left; the epoch if it has not
  std::unique_ptr<Notice> outgoing_ = std::make_unique<Notice>();
  std::vector<std::byte> shard_;     // of a reduce-scatter in place
  std::vector<Transfer> exchanged_;  // of each message the send and the receive
  std::vector<MpiEagerMessage> binding_messages_;
  std::uint32_t looks_ = 0, sleeps_ = 0;
  std::array<UsualWait, 32> usual_waits_;  // by the bits of a message's number of bytes

  std::mutex reason_mutex_;
  std::string reason_;  // of an abort on this rank
  std::atomic<bool> aborted_ = false;
  bool told_ = false;
};

}  // namespace dear::channels
