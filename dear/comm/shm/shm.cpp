#include "dear/comm/shm/shm.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <typeinfo>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/first_error.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/group/endings.h"
#include "dear/comm/shm/control.h"
#include "dear/comm/shm/meeting.h"
#include "dear/comm/shm/mismatch.h"
#include "dear/comm/shm/movement.h"
#include "dear/comm/shm/shm_channels.h"

namespace dear::backends {
namespace {

// The parts of all ranks lie side by side in one segment, `stride` bytes apart; those of a shared buffer are
// one and the same, 0 apart.
struct ShmRegion final : Buffer::Region {
  std::shared_ptr<Segment> segment;
  std::weak_ptr<Control> control;  // whose group it belongs to
  std::int64_t stride = 0;
  std::uint64_t number = 0;

  [[nodiscard]] std::byte* part_of(int rank) const { return segment->data() + stride * rank; }
};

// A view as this backend sees it: every rank's part of it.
struct SharedView {
  const ShmRegion* region = nullptr;  // null for an empty view of no buffer
  std::int64_t offset = 0;
  std::int64_t element = 1;

  [[nodiscard]] std::byte* of(int rank, std::int64_t first_element = 0) const {
    return region != nullptr ? region->part_of(rank) + offset + first_element * element : nullptr;
  }
};

std::int64_t nanoseconds_of(SteadyTime time) { return time.time_since_epoch() / std::chrono::nanoseconds(1); }

class Shm final : public SharedMemory {
 public:
  Shm(Meeting meeting, ShmOptions options)
      : options_(std::move(options)),
        rank_(options_.rank),
        size_(options_.size),
        control_(std::make_shared<Control>(std::move(meeting.board), std::move(meeting.peers), rank_, size_,
                                           options_.meanwhile)),
        channel_(std::move(meeting.channel)),
        parts_(static_cast<std::size_t>(size_)) {}

  // Returns once all ranks have mapped the shared memory.
  void meet(Deadline deadline) {
    guarded([&] { control_->barrier([] { return "wait for all ranks to meet"; }, deadline); });
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string description() const override {
    return fmt::format("shm, {} {} on this host", size_, size_ == 1 ? "rank" : "ranks");
  }

  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    Buffer buffer;
    guarded([&] { buffer = allocate_on_all(bytes, Parts::one_per_rank, deadline); });
    return buffer;
  }

  [[nodiscard]] bool shares_memory() const override { return true; }
  Buffer allocate_shared(std::int64_t bytes, Deadline deadline) override {
    Buffer buffer;
    guarded([&] { buffer = allocate_on_all(bytes, Parts::one_for_all, deadline); });
    return buffer;
  }

  [[nodiscard]] bool takes_own_shards() const override { return true; }
  [[nodiscard]] bool takes_shares() const override { return true; }
  Timing run(const Request& request, Deadline deadline) override {
    // A small contribution is brought whole.
    if (request.own.from != nullptr &&
        request.view.count * size_of(request.view.dtype) <= Control::kNoteBytes)
      return run_in_view(*this, request, deadline);
    Timing timing;
    guarded([&] {
      timing = request.collective == Collective::all_to_all_v ? run_of_rows(request, deadline)
                                                              : run_on_all(request, deadline);
    });
    return timing;
  }

  [[nodiscard]] std::byte* part_of(const Buffer& buffer, int rank) const override {
    return share({.buffer = buffer}).of(rank);
  }

  Timing meet_for(const Request& request, Deadline deadline) override {
    Timing timing;
    guarded([&] {
      const auto what = [&] {
        return fmt::format("wait in collective {}, {}", sequence_, describe(request));
      };
      timing =
          enter(say_of(request), begin_now(request).begin, request.timed, what, deadline, request.waiting);
    });
    return timing;
  }

  // The members of a part meet under a name that is made of this group's.
  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline deadline) override {
    std::unique_ptr<Backend> part;
    guarded([&] {
      const auto& members = subgroup.members;
      if (members.empty()) return;
      ShmOptions options{
          .rendezvous =
              fmt::format("{} group {} color {}", options_.rendezvous, subgroup.number, subgroup.color),
          .rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin()),
          .size = static_cast<int>(members.size()),
          .deadline = deadline,
          .meanwhile = options_.meanwhile};
      for (const int member : members) options.names.push_back(options_.name_of(member));
      part = make_shm(options);
    });
    return part;
  }
  std::unique_ptr<channels::Channels> open_channels(int, int, Deadline deadline) override {
    return make_shm_channels(*this, control_, deadline);
  }
  [[nodiscard]] int name() const override { return options_.name_of(rank_); }

  void abort(const std::string& reason) noexcept override {
    control_->post_failure(Control::FailureKind::transport, comm::failure_of(name(), reason));
  }

 private:
  enum class Parts : std::uint8_t { one_per_rank, one_for_all };

  // The first error is this rank's for good, and the peers learn of it unless they have one already.
  template <typename Function>
  void guarded(const Function& function) {
    error_.guard(function, [this](const std::exception& error) { abort(error.what()); });
  }

  SharedView share(const View& view) const {
    if (!view.buffer.region()) {
      return {};
    }
    const Buffer::Region& known = *view.buffer.region();
    const auto* region = typeid(known) == typeid(ShmRegion) ? static_cast<const ShmRegion*>(&known) : nullptr;
    if (region == nullptr || region->control.owner_before(control_) ||
        control_.owner_before(region->control)) {
      throw ConfigError(
          "a collective was given a buffer of another group: allocate it with the group that uses it");
    }
    return {.region = region, .offset = view.offset_bytes, .element = size_of(view.dtype)};
  }

  // Puts down what this rank is about to do, for the peers to read.
  RequestSummary& say(const RequestSummary& mine);
  RequestSummary& say_of(const Request& request);  // under the next sequence
  // Waits for the others and compares. Returns the moment from which all were there, if it is `timed`.
  Timing enter(RequestSummary& mine, SteadyTime now, bool timed, const Control::Describe& what,
               Deadline deadline, Waiting waiting);
  [[nodiscard]] std::vector<RequestSummary> all_summaries() const;
  Buffer allocate_on_all(std::int64_t bytes, Parts parts, Deadline deadline);
  Timing run_on_all(const Request& request, Deadline deadline);
  Timing run_of_rows(const Request& request, Deadline deadline);

  const ShmOptions options_;
  int rank_;
  int size_;
  std::shared_ptr<Control> control_;
  std::unique_ptr<SegmentChannel> channel_;
  os::FirstError error_;
  std::uint64_t sequence_ = 0;     // collectives entered, allocations included
  std::uint64_t buffers_ = 0;      // allocated
  std::vector<std::byte*> parts_;  // of the collective at work, by rank
  Buffer counts_;                  // of rows, where they do not fit in a note
};

RequestSummary& Shm::say(const RequestSummary& mine) {
  RequestSummary& said = control_->summary(rank_, mine.heading.sequence);
  said = mine;
  return said;
}

std::vector<RequestSummary> Shm::all_summaries() const {
  std::vector<RequestSummary> all;
  for (int rank = 0; rank < size_; ++rank) {
    all.push_back(control_->summary(rank, sequence_));
  }
  return all;
}

// The packed summaries come with the barrier; the summaries are read where those differ or have no room, and
// for the times in them.
Timing Shm::enter(RequestSummary& mine, SteadyTime now, bool timed, const Control::Describe& what,
                  Deadline deadline, Waiting waiting) {
  mine.arrival_nanoseconds = nanoseconds_of(now);
  if (mine.asked_nanoseconds == 0) mine.asked_nanoseconds = mine.arrival_nanoseconds;
  const PackedSummary packed_summary = packed(mine);
  control_->brief_for_next().packed_summary = packed_summary;
  control_->barrier(what, deadline, waiting);
  bool alike = packed_summary.what != 0;
  for (int rank = 0; rank < size_; ++rank) {
    alike = alike && control_->brief_of_last(rank).packed_summary == packed_summary;
  }
  if (!alike) {
    throw_on_mismatch(all_summaries(), options_.names);
  }
  if (!timed) return {};
  std::int64_t arrived = 0;
  std::int64_t asked = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const RequestSummary& theirs = control_->summary(rank, sequence_);
    arrived = std::max(arrived, theirs.arrival_nanoseconds);
    asked = std::max(asked, theirs.asked_nanoseconds);
  }
  return {.begin = SteadyTime(std::chrono::nanoseconds(arrived)),
          .asked = SteadyTime(std::chrono::nanoseconds(asked))};
}

Buffer Shm::allocate_on_all(std::int64_t bytes, Parts parts, Deadline deadline) {
  const bool shared = parts == Parts::one_for_all;
  if (bytes < 0) {
    throw ConfigError(fmt::format("cannot allocate a buffer of {} bytes: the size is negative", bytes));
  }
  const auto what = [&] {
    return fmt::format("wait in collective {}, allocation of {} bytes", sequence_, bytes);
  };
  ++sequence_;
  RequestSummary& mine = say({.heading = shared ? comm::heading_of_shared_allocation(sequence_, bytes)
                                                : comm::heading_of_allocation(sequence_, bytes)});
  enter(mine, SteadyClock::now(), false, what, deadline, Waiting::asleep);

  auto region = std::make_shared<ShmRegion>();
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const bool too_many = bytes > kMost / size_ - page;
  const std::int64_t part = too_many ? 0 : std::max(page, (bytes + page - 1) / page * page);
  const std::int64_t total = shared ? part : part * size_;
  if (rank_ == 0) {
    try {
      if (too_many) {
        throw TransportError(fmt::format("cannot allocate {} for each of {} ranks: no machine has as much",
                                         format_bytes(bytes), size_));
      }
      region->segment = Segment::create(total, fmt::format("a buffer of {} {} {} ranks", format_bytes(bytes),
                                                           shared ? "shared by" : "on each of", size_));
      channel_->give(region->segment);
      region->segment->close_file();
    } catch (const Error& error) {
      control_->fail(Control::FailureKind::transport, error.what());
    }
  }
  control_->barrier(what, deadline);
  if (rank_ != 0) {
    try {
      region->segment = channel_->take(total, deadline);
    } catch (const Error& error) {
      control_->fail(Control::FailureKind::transport, fmt::format("rank {}: {}", name(), error.what()));
    }
  }
  control_->barrier(what, deadline);

  region->control = control_;
  region->stride = shared ? 0 : part;
  region->shared = shared;
  region->number = ++buffers_;
  region->bytes = bytes;
  region->data = region->part_of(rank_);
  return Buffer(std::move(region));
}

RequestSummary& Shm::say_of(const Request& request) {
  const SharedView view = share(request.view);
  const SharedView output = share(request.output);
  RequestSummary& mine = say(summarize(++sequence_, request, view.region != nullptr ? view.region->number : 0,
                                       output.region != nullptr ? output.region->number : 0));
  mine.asked_nanoseconds = nanoseconds_of(request.asked);
  return mine;
}

// [Note: small collectives] What fits beside the summary is brought there, and what is smaller still
// beside the word that this rank has come, so that the peers have it with the barrier on which the collective
// begins, and nobody waits for its end: the place is used again two sequences or barriers later, and nobody
// gets there before all have come to the next one and are through with this.
//
// What all ranks share is there when all have come, and nothing is moved: a copy of it made later, from a
// note, could undo what its owner has written since.
Timing Shm::run_on_all(const Request& request, Deadline deadline) {
  const auto what = [&] { return fmt::format("wait in collective {}, {}", sequence_, describe(request)); };
  const SharedView view = share(request.view);
  const SharedView output = share(request.output);
  RequestSummary& mine = say_of(request);
  const bool moves =
      request.collective != Collective::barrier && request.view.count > 0 && !request.view.buffer.shared();
  const std::int64_t bytes = request.view.count * view.element;
  const bool small = bytes <= Control::kNoteBytes;
  const bool tiny = bytes <= Control::kBriefBytes;
  if (moves && small) {
    const Range range = brought_bytes(request, rank_, size_);
    if (!range.empty()) {
      std::byte* const to = tiny ? control_->brief_for_next().data : control_->note(rank_, sequence_);
      std::memcpy(to + range.begin, view.of(rank_) + range.begin, static_cast<std::size_t>(range.size()));
    }
  }
  Timing timing = enter(mine, begin_now(request).begin, request.timed, what, deadline, request.waiting);
  if (moves) {
    for (int rank = 0; rank < size_; ++rank) {
      parts_[static_cast<std::size_t>(rank)] = tiny    ? control_->brief_of_last(rank).data
                                               : small ? control_->note(rank, sequence_)
                                                       : view.of(rank);
    }
    const bool apart = request.collective == Collective::all_to_all;
    const CollectiveMemory memory{.request = request,
                                  .rank = rank_,
                                  .size = size_,
                                  .parts = parts_,
                                  .out = apart ? output.of(rank_) : view.of(rank_)};
    if (small) {
      move(memory);
    } else {
      move_in_views(memory);
      // Until all are through, a peer may still read what the caller would write.
      control_->barrier(what, deadline, request.waiting);
    }
  }
  timing.end = end_now(request);
  return timing;
}

// Counts are brought as a small collective is, with the rows if these fit, too; else rows are read in place.
Timing Shm::run_of_rows(const Request& request, Deadline deadline) {
  const auto what = [&] { return fmt::format("wait in collective {}, {}", sequence_, describe(request)); };
  const ChunkRows& rows = request.rows;
  const comm::ChunkPlaces places = places_of(request, size_);
  const std::int64_t bytes = places.counts_bytes();
  const bool beside = bytes <= Control::kNoteBytes;
  const SharedView view = share(request.view);
  const std::int64_t most = request.view.count * view.element;
  const bool small = bytes + most <= Control::kNoteBytes;
  RequestSummary& mine = say_of(request);
  std::byte* const note = control_->note(rank_, sequence_);
  if (beside) std::memcpy(note, rows.sent, static_cast<std::size_t>(bytes));
  if (small && most > 0) std::memcpy(note + bytes, view.of(rank_), static_cast<std::size_t>(most));
  Timing timing = enter(mine, begin_now(request).begin, request.timed, what, deadline, request.waiting);
  if (!beside) {
    if (counts_.bytes() < bytes) counts_ = allocate_on_all(bytes, Parts::one_per_rank, deadline);
    std::memcpy(counts_.data(), rows.sent, static_cast<std::size_t>(bytes));
    control_->barrier(what, deadline, request.waiting);
  }
  for (int rank = 0; rank < size_; ++rank) {
    std::byte* const theirs = beside ? control_->note(rank, sequence_) : part_of(counts_, rank);
    std::ranges::copy(places.counts_of(reinterpret_cast<const std::int64_t*>(theirs), rank_),
                      rows.received + std::int64_t{rank} * rows.chunks);
    comm::check_counts(places, places.counts_of(rows.received, rank), options_.name_of(rank), name());
    parts_[static_cast<std::size_t>(rank)] = small ? theirs + bytes : view.of(rank);
  }
  move_rows({.request = request,
             .rank = rank_,
             .size = size_,
             .parts = parts_,
             .out = share(request.output).of(rank_)},
            places, rows.received);
  if (rows.moved != nullptr) *rows.moved = places.moved(rows, rank_);
  if (!small) control_->barrier(what, deadline, request.waiting);  // as in run_on_all()
  timing.end = end_now(request);
  return timing;
}

}  // namespace

std::unique_ptr<SharedMemory> make_shm(const ShmOptions& options) {
  if (options.size < 1 || options.size > Control::kMaxRanks) {
    throw ConfigError(
        fmt::format("shared memory takes 1 to {} ranks on a host, not {}", Control::kMaxRanks, options.size));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    throw ConfigError(fmt::format("there is no rank {} among {} ranks", options.rank, options.size));
  }
  Meeting meeting = meet(options);
  meeting.peers.rename(options.names);
  auto backend = std::make_unique<Shm>(std::move(meeting), options);
  backend->meet(options.deadline);
  return backend;
}

std::unique_ptr<SharedMemory> make_shm(Meeting meeting, const ShmOptions& options) {
  return std::make_unique<Shm>(std::move(meeting), options);
}

}  // namespace dear::backends
