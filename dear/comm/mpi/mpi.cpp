#include "dear/comm/mpi/mpi.h"

#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/first_error.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/message_programs/heading.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/mpi/measurement_cache.h"
#include "dear/comm/mpi/one_host.h"
#include "dear/comm/mpi/own.h"
#include "dear/comm/mpi/small.h"

namespace dear::backends {
namespace {

// The backend that carries everything by messages. Small vectors go as eager messages; programs carry the
// rest, except where something else was chosen.
class OverMpi final : public Backend {
 public:
  OverMpi(std::unique_ptr<channels::Mpi> mpi, const MpiBackendOptions& options)
      : mpi_(*mpi),
        channels_(std::make_shared<channels::SharedChannels>(std::move(mpi))),
        small_(mpi_),
        own_(mpi_),
        reproducible_(options.reproducible) {
    const bool one_host = channels::on_one_host(mpi_);
    const bool ordered = options.reproducible || mpi_.size() <= 2 || (one_host && mpi_.size() < kManyRanks);
    goes_around_ = !ordered && !one_host;
    if (mpi_.size() > 1) {
      remembered_ = load_or_measure(mpi_, options.cache_folder,
                                    {.sums_go_around = goes_around_, .deadline = options.deadline});
    }
    std::vector<int> all(static_cast<std::size_t>(mpi_.size()));
    std::iota(all.begin(), all.end(), 0);
    programs_ = message_programs::make_program_backend(
        channels_, std::move(all), 0,
        {.reproducible = ordered,
         .choose = [this](const message_programs::CollectiveCall& call) { return choice_for(call); }});
    if (mpi_.size() > 1) {
      headings_ = programs_->allocate(kHeading * mpi_.size(), options.deadline);
    }
  }

  [[nodiscard]] int rank() const override { return mpi_.rank(); }
  [[nodiscard]] int size() const override { return mpi_.size(); }
  [[nodiscard]] std::string description() const override { return "mpi, " + describe(mpi_); }
  [[nodiscard]] std::string choices() const {
    if (mpi_.size() == 1) return "nothing to send";
    return fmt::format("algorithms {} ({})", remembered_.origin, remembered_.choices.summary());
  }

  [[nodiscard]] bool takes_any_buffer() const override { return true; }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    Buffer buffer;
    guarded([&] { buffer = programs_->allocate(bytes, deadline); });
    return buffer;
  }

  Timing run(const Request& request, Deadline deadline) override {
    Timing timing;
    guarded([&] {
      if (!split_ && small_.can(request)) {
        timing = run_small(request, deadline);
      } else if (!split_ && goes_by_mpis_own(request)) {
        timing = run_by_mpi(request, deadline);
      } else {
        timing = programs_->run(request, deadline);
      }
    });
    return timing;
  }

  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline /*deadline*/) override {
    std::unique_ptr<Backend> part;
    guarded([&] {
      split_ = true;
      if (subgroup.members.empty()) return;
      part = message_programs::make_program_backend(channels_, subgroup.members,
                                                    message_programs::tag_of(subgroup),
                                                    {.reproducible = reproducible_, .link = kLink});
    });
    return part;
  }

  void abort(const std::string& reason) noexcept override { programs_->abort(reason); }

 private:
  static constexpr std::int64_t kHeading = 64;
  // A typical network between hosts, from which the algorithms of parts of this group are chosen.
  static constexpr Link kLink{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 1e-9};
  static_assert(sizeof(comm::Heading) <= kHeading);

  // An error of MPI's own collectives ends this rank's use of the group for good, like any other.
  template <typename Function>
  void guarded(const Function& function) {
    error_.guard(function, [this](const std::exception& error) { abort(error.what()); });
  }

  const message_programs::AlgorithmChoice* chosen_for(const Request& request) const {
    return remembered_.choices.find(request.collective, request.view.count * size_of(request.view.dtype));
  }

  // See [Note: sums across hosts] in measure.h.
  message_programs::AlgorithmChoice choice_for(const message_programs::CollectiveCall& call) const {
    const bool adds = reduces(call.collective);
    const bool around = goes_around_ && adds && !call.exact && call.bytes > kLargestSumInOrder;
    const Collective measured = around ? Collective::reduce_scatter : call.collective;
    const message_programs::AlgorithmChoice* const choice = remembered_.choices.find(measured, call.bytes);
    if (around) {
      return choice != nullptr && choice->algorithm == kAround
                 ? *choice
                 : message_programs::AlgorithmChoice{.algorithm = kAround};
    }
    return choice != nullptr && is_program(*choice) ? *choice : message_programs::AlgorithmChoice{};
  }

  bool goes_by_mpis_own(const Request& request) const {
    const message_programs::AlgorithmChoice* const choice = chosen_for(request);
    return choice != nullptr && choice->algorithm == kMpisOwn && own_.can(request);
  }

  Timing run_small(const Request& request, Deadline deadline) {
    Timing timing = begin_now(request);
    ++sequence_;
    const auto what = [&] {
      return fmt::format("wait in collective {}, {}", sequence_, dear::describe(request));
    };
    small_.run(request, sequence_, what, deadline);
    timing.end = end_now(request);
    return timing;
  }

  // MPI does not compare what ranks ask for, and would crash where they differ: so the ranks compare first.
  Timing run_by_mpi(const Request& request, Deadline deadline) {
    Timing timing = begin_now(request);
    ++sequence_;
    const auto what = [&] { return fmt::format("wait in {}", dear::describe(request)); };
    if (small_.can_compare()) {
      small_.compare(request, sequence_, what, deadline);
    } else {
      compare_headings(request, deadline);
    }
    own_.run(request, what, deadline);
    timing.end = end_now(request);
    return timing;
  }

  void compare_headings(const Request& request, Deadline deadline) {
    const comm::Heading mine = comm::heading_of(sequence_, request);
    std::memcpy(headings_.data() + kHeading * rank(), &mine, sizeof mine);
    programs_->run({.collective = Collective::all_gather,
                    .view = {.buffer = headings_, .count = kHeading * size(), .dtype = DType::u8},
                    .label = request.label},
                   deadline);
    for (int peer = 0; peer < size(); ++peer) {
      comm::Heading theirs;
      std::memcpy(&theirs, headings_.data() + kHeading * peer, sizeof theirs);
      message_programs::throw_on_mismatch(mine, rank(), theirs, peer);
    }
  }

  std::unique_ptr<Backend> programs_;  // its memory outlives the channels: messages may be on their way
  channels::Mpi& mpi_;
  std::shared_ptr<channels::SharedChannels> channels_;  // that are this MPI
  SmallCollectives small_;
  MpisOwn own_;
  CachedChoices remembered_;
  bool goes_around_ = false;  // large sums, see choice_for()
  bool reproducible_;
  // Whether the group was split. From then on nothing waits in MPI for this group alone: it uses neither
  // eager messages nor MPI's own collectives.
  bool split_ = false;
  os::FirstError error_;
  std::uint64_t sequence_ = 0;  // collectives without programs
  Buffer headings_;
};

}  // namespace

MpiBackend make_mpi(std::unique_ptr<channels::Mpi> mpi, const MpiBackendOptions& options) {
  std::string without_memory;
  if (mpi->size() > 1 && options.share_memory && channels::on_one_host(*mpi)) {
    std::string why_not;
    if (auto backend = make_on_one_host(mpi, options.deadline, why_not)) {
      return {.backend = std::move(backend), .choices = "all through shared memory"};
    }
    without_memory = fmt::format("no shared memory{}{}; ", why_not.empty() ? "" : ": ", why_not);
  }
  auto backend = std::make_unique<OverMpi>(std::move(mpi), options);
  std::string choices = without_memory + backend->choices();
  return {.backend = std::move(backend), .choices = std::move(choices)};
}

}  // namespace dear::backends
