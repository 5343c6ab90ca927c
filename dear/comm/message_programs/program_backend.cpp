#include "dear/comm/message_programs/program_backend.h"

#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/first_error.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/endings.h"
#include "dear/comm/group/private_region.h"
#include "dear/comm/group/reduce.h"
#include "dear/comm/group/reduce_kernels.h"
#include "dear/comm/group/shard.h"
#include "dear/comm/message_programs/heading.h"
#include "dear/comm/message_programs/prepare.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::message_programs {
namespace {

// The number of graphs that are kept. A training step has a few for each of its buckets.
constexpr std::size_t kMostGraphs = 256;

using Where = Prepared::Where;

std::byte* memory_of(const View& view) {
  return view.count > 0 ? view.buffer.data() + view.offset_bytes : nullptr;
}

class Programs final : public Backend {
 public:
  Programs(std::shared_ptr<channels::SharedChannels> shared, std::vector<int> members, channels::Tag tag,
           ProgramOptions options)
      : options_(std::move(options)), shared_(std::move(shared)), names_(std::move(members)) {
    memory_->channels = shared_->open(names_, tag);
    rank_ = memory_->channels->rank();
    size_ = memory_->channels->size();
  }
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;
  ~Programs() override {
    if (!error_.has_come()) return;
    memory_->channels.reset();
    shared_->keep(std::move(memory_));
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string description() const override {
    return fmt::format("programs over {}, {} {}", channels().description(), size_,
                       size_ == 1 ? "rank" : "ranks");
  }
  [[nodiscard]] std::string modelled_network() const override { return channels().modelled_network(); }

  [[nodiscard]] bool takes_any_buffer() const override { return true; }
  [[nodiscard]] bool takes_shares() const override { return true; }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    Buffer buffer;
    guarded([&] {
      buffer = comm::allocate_private(bytes);
      const Heading heading = comm::heading_of_allocation(++sequence_, bytes);
      meet(
          heading,
          [&] { return fmt::format("wait in collective {}, allocation of {} bytes", sequence_, bytes); },
          deadline);
    });
    return buffer;
  }

  Timing run(const Request& request, Deadline deadline) override {
    Timing timing = begin_now(request);
    guarded([&] {
      ++sequence_;
      const auto what = [&] {
        return fmt::format("wait in collective {}, {}", sequence_, describe(request));
      };
      if (request.collective == Collective::barrier) {
        meet(comm::heading_of(sequence_, request), what, deadline);
      } else if (request.collective == Collective::all_to_all_v) {
        carry_rows(request, what, deadline);
      } else {
        carry(request, what, deadline);
      }
    });
    timing.end = SteadyClock::now();
    return timing;
  }

  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline /*deadline*/) override {
    std::unique_ptr<Backend> part;
    guarded([&] {
      if (subgroup.members.empty()) return;
      std::vector<int> members;
      for (const int member : subgroup.members) members.push_back(name_of(member));
      part = make_program_backend(shared_, std::move(members), tag_of(subgroup), options_);
    });
    return part;
  }
  std::unique_ptr<channels::Channels> open_channels(int number, int tags, Deadline /*deadline*/) override {
    std::unique_ptr<channels::Channels> opened;
    guarded([&] {
      static_cast<void>(tag_of({.number = number + tags - 1}));
      opened = shared_->open(names_, tag_of({.number = number}));
    });
    return opened;
  }
  [[nodiscard]] int name() const override { return name_of(rank_); }

  void abort(const std::string& reason) noexcept override {
    channels().abort(comm::failure_of(name(), reason));
  }

 private:
  using Describe = channels::Channels::Describe;

  // The first error is this rank's for good, and the peers learn of it unless they have one already.
  template <typename Function>
  void guarded(const Function& function) {
    error_.guard(function, [this](const std::exception& error) { abort(error.what()); });
  }

  void meet(const Heading& heading, const Describe& what, Deadline deadline);
  void carry(const Request& request, const Describe& what, Deadline deadline);
  void carry_rows(const Request& request, const Describe& what, Deadline deadline);
  Prepared& prepared_for(const Request& request);
  [[nodiscard]] AlgorithmChoice choice_for(const CollectiveCall& call) const;
  void execute(Prepared& prepared, const Heading& heading, ExecutionArguments arguments, const Describe& what,
               Deadline deadline);
  void gather_and_add(Prepared& prepared, const Request& request, const Describe& what, Deadline deadline);
  // The elements that this rank gets of a reduction.
  [[nodiscard]] Range wanted_of(const Request& request) const;
  void divide(const Request& request, Range elements) const;

  struct Kept {
    Prepared prepared;
    std::uint64_t used = 0;  // the last collective that did
  };
  // Memory into which messages may still be on their way after a failure.
  struct Memory {
    std::map<Recipe, Kept> graphs;
    std::optional<Executor> rows;                  // of the last all-to-all-v
    StagingMemory stage;                           // of the graphs
    StagingMemory beside;                          // copies of vectors, and gathered contributions
    std::unique_ptr<channels::Channels> channels;  // gone first: see StagingMemory
  };

  [[nodiscard]] channels::Channels& channels() const { return *memory_->channels; }
  [[nodiscard]] int name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }

  ProgramOptions options_;
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::shared_ptr<channels::SharedChannels> shared_;
  std::vector<int> names_;       // by rank, its rank in the whole of the channels
  algorithm::Program exchange_;  // of the rows of the last all-to-all-v; of any counts
  int rank_ = 0;
  int size_ = 1;
  os::FirstError error_;
  std::uint64_t sequence_ = 0;  // collectives entered, allocations included
};

AlgorithmChoice Programs::choice_for(const CollectiveCall& call) const {
  // In a ring every rank would carry the shards of all; here a rank with a small shard has little to send on.
  if (call.shares) {
    const bool adds = reduces(call.collective);
    AlgorithmChoice choice{.algorithm = adds ? "direct" : "pairwise", .then = "pairwise"};
    if (options_.choose) choice.segment_bytes = options_.choose(call).segment_bytes;
    return choice;
  }
  const bool one_way = call.collective == Collective::barrier || call.collective == Collective::all_to_all;
  AlgorithmChoice choice = options_.choose && !one_way ? options_.choose(call) : AlgorithmChoice{};
  if (choice.algorithm.empty()) {
    choice = choose_by_model(call, options_.link);
  }
  const bool adds = reduces(call.collective);
  if (adds && call.exact && choice.algorithm != "gather" && choice.algorithm != "direct") {
    choice = {.algorithm = "direct", .then = choice.algorithm, .segment_bytes = choice.segment_bytes};
  }
  return choice;
}

Prepared& Programs::prepared_for(const Request& request) {
  // An average of integers depends on the order of ranks, because it is rounded. With two ranks every order
  // gives the same sum.
  const bool exact = options_.reproducible || size_ <= 2 ||
                     (request.reduction == Reduction::average && comm::is_integer(request.view.dtype));
  const Recipe recipe{
      .collective = request.collective,
      .count = request.view.count,
      .dtype = request.view.dtype,
      .root = request.root,
      .exact = exact,
      .shares = request.shares != nullptr ? request.shares->ends : std::vector<std::int64_t>()};
  const auto found = memory_->graphs.find(recipe);
  if (found != memory_->graphs.end()) {
    found->second.used = sequence_;
    return found->second.prepared;
  }
  if (memory_->graphs.size() >= kMostGraphs) {
    memory_->graphs.erase(std::min_element(
        memory_->graphs.begin(), memory_->graphs.end(),
        [](const auto& one, const auto& other) { return one.second.used < other.second.used; }));
  }
  const CollectiveCall call{.collective = request.collective,
                            .bytes = request.view.count * size_of(request.view.dtype),
                            .ranks = size_,
                            .exact = exact,
                            .shares = request.shares != nullptr};
  Prepared prepared =
      prepare(recipe, choice_for(call), size_,
              {.rank = rank_,
               .head_bytes = sizeof(Heading),
               .heads_first = !options_.lengths_apart,
               .most_ahead_bytes = request.shares != nullptr ? std::numeric_limits<std::int64_t>::max()
                                                             : options_.most_ahead_bytes});
  return memory_->graphs.emplace(recipe, Kept{.prepared = std::move(prepared), .used = sequence_})
      .first->second.prepared;
}

void Programs::execute(Prepared& prepared, const Heading& heading, ExecutionArguments arguments,
                       const Describe& what, Deadline deadline) {
  arguments.head = reinterpret_cast<const std::byte*>(&heading);
  arguments.compare = [&](int peer, const std::byte* bytes) {
    Heading theirs;
    std::memcpy(&theirs, bytes, sizeof theirs);
    throw_on_mismatch(heading, name(), theirs, name_of(peer));
  };
  prepared.executor.execute(arguments, channels(), memory_->stage, what, deadline);
}

// A rank that has heard of all others, even through others, may go on.
void Programs::meet(const Heading& heading, const Describe& what, Deadline deadline) {
  Prepared& prepared = prepared_for({.collective = Collective::barrier});
  execute(prepared, heading, {.data = memory_->beside.take(size_)}, what, deadline);
}

void Programs::carry(const Request& request, const Describe& what, Deadline deadline) {
  Prepared& prepared = prepared_for(request);
  if (prepared.where == Where::beside) {
    return gather_and_add(prepared, request, what, deadline);
  }
  const DType dtype = request.view.dtype;
  const std::int64_t element = size_of(dtype);
  const bool averages = request.reduction == Reduction::average;
  const Reduction step = averages && !prepared.adds_in_one_pass ? Reduction::sum : request.reduction;
  ExecutionArguments arguments{
      .data = memory_of(request.view),
      .output = memory_of(request.output),
      .combine = [&](std::span<const std::byte* const> sources, std::byte* out, std::int64_t bytes) {
        comm::reduce(dtype, step, sources, out, bytes / element);
      }};
  const Range own = shard_of(request, size_, rank_);
  if ((prepared.where == Where::on_copy || prepared.where == Where::from_copy) && request.view.count > 0) {
    const std::int64_t bytes = request.view.count * element;
    std::byte* const copy = memory_->beside.take(bytes);
    (prepared.where == Where::on_copy ? arguments.data : arguments.output) = copy;
    std::memcpy(copy, memory_of(request.view), static_cast<std::size_t>(bytes));
  }
  execute(prepared, comm::heading_of(sequence_, request), arguments, what, deadline);
  if (prepared.where == Where::on_copy && !own.empty()) {
    std::memcpy(memory_of(request.view) + own.begin * element, arguments.data + own.begin * element,
                static_cast<std::size_t>(own.size() * element));
  }
  const bool adds = reduces(request.collective);
  if (adds && averages && !prepared.adds_in_one_pass) divide(request, wanted_of(request));
}

// See algorithm::pairwise_all_to_all_v(). Counts travel as an all-to-all of their own, in the heads of
// messages where they fit, behind the heading of the whole; so no row moves before all peers ask for the
// same.
void Programs::carry_rows(const Request& request, const Describe& what, Deadline deadline) {
  const ChunkRows& rows = request.rows;
  const comm::ChunkPlaces places = places_of(request, size_);
  const std::int64_t bytes = places.counts_bytes();
  auto* const sent = reinterpret_cast<std::int64_t*>(memory_->beside.take(2 * bytes));
  auto* const received = sent + places.counts();
  std::copy_n(rows.sent, places.counts(), sent);
  Prepared& counts = prepared_for(
      {.collective = Collective::all_to_all, .view = {.count = places.counts(), .dtype = DType::i64}});
  execute(counts, comm::heading_of(sequence_, request),
          {.data = reinterpret_cast<std::byte*>(sent), .output = reinterpret_cast<std::byte*>(received)},
          what, deadline);
  for (int peer = 0; peer < size_; ++peer) {
    check_counts(places, places.counts_of(received, peer), name_of(peer), name());
    check_counts(places, places.counts_of(sent, peer), name(), name_of(peer));
  }
  std::copy_n(received, places.counts(), rows.received);
  if (exchange_.blocks != size_ * rows.chunks || exchange_.rounds.empty())
    exchange_ = algorithm::pairwise_all_to_all(size_, rows.chunks);
  MessageGraph graph = graph_of_rows(exchange_, places, sent, received,
                                     {.rank = rank_,
                                      .element_bytes = size_of(request.view.dtype),
                                      .most_ahead_bytes = options_.most_ahead_bytes});
  if (rows.moved != nullptr) {
    *rows.moved = {.received = graph.bytes_of(graph.receives)};
    for (const std::vector<int>& to_peer : graph.sends) rows.moved->sent += graph.bytes_of(to_peer);
  }
  memory_->rows.emplace(std::move(graph));
  memory_->rows->execute({.data = memory_of(request.view), .output = memory_of(request.output)}, channels(),
                         memory_->stage, what, deadline);
}

void Programs::gather_and_add(Prepared& prepared, const Request& request, const Describe& what,
                              Deadline deadline) {
  const View& view = request.view;
  const std::int64_t element = size_of(view.dtype);
  std::byte* all = memory_->beside.take(prepared.stride * size_);
  if (view.count > 0) {
    std::memcpy(all + prepared.stride * rank_, memory_of(view),
                static_cast<std::size_t>(view.count * element));
  }
  execute(prepared, comm::heading_of(sequence_, request), {.data = all}, what, deadline);
  const Range wanted = wanted_of(request);
  if (!wanted.empty()) {
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < size_; ++rank) {
      sources.push_back(all + prepared.stride * rank + wanted.begin * element);
    }
    comm::reduce(view.dtype, request.reduction, sources, memory_of(view) + wanted.begin * element,
                 wanted.size());
  }
}

Range Programs::wanted_of(const Request& request) const {
  const Range whole{0, request.view.count};
  if (request.collective == Collective::all_reduce) return whole;
  if (request.collective == Collective::reduce) return request.root == rank_ ? whole : Range{};
  return shard_of(request, size_, rank_);
}

void Programs::divide(const Request& request, Range elements) const {
  if (!elements.empty()) {
    std::byte* data = memory_of(request.view) + elements.begin * size_of(request.view.dtype);
    const void* const source = data;
    comm::find_kernel(request.view.dtype, Reduction::average)({.data = &source, .count = 1}, data,
                                                              elements.size(), size_);
  }
}

}  // namespace

std::unique_ptr<Backend> make_program_backend(std::unique_ptr<channels::Channels> channels,
                                              ProgramOptions options) {
  std::vector<int> all(static_cast<std::size_t>(channels->size()));
  std::iota(all.begin(), all.end(), 0);
  return make_program_backend(std::make_shared<channels::SharedChannels>(std::move(channels)), std::move(all),
                              0, std::move(options));
}

std::unique_ptr<Backend> make_program_backend(std::shared_ptr<channels::SharedChannels> channels,
                                              std::vector<int> members, channels::Tag tag,
                                              ProgramOptions options) {
  return std::make_unique<Programs>(std::move(channels), std::move(members), tag, std::move(options));
}

channels::Tag tag_of(const Subgroup& subgroup) {
  const auto tag = static_cast<channels::Tag>(subgroup.number);
  if (tag > channels::kMostTag) {
    throw ConfigError(
        fmt::format("a job can make {} groups over messages, not more: make those that are needed "
                    "once, and keep them",
                    channels::kMostTag));
  }
  return tag;
}

}  // namespace dear::message_programs
