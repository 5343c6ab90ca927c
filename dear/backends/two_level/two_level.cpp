#include "dear/backends/two_level/two_level.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/first_error.h"
#include "dear/collective/reduce.h"
#include "dear/collective/reduce_kernels.h"
#include "dear/collective/shard.h"
#include "dear/programs/program_backend.h"

namespace dear::backends {
namespace {

// A typical network between hosts, from which the algorithms across hosts are chosen.
constexpr Link kLink{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 1e-9};

// [Note: two levels] The vector is cut as for all P ranks. Ranks of local number l on all hosts are concerned
// with the shards of each other: one for each host, which lie apart in the vector and side by side in
// `scratch`, where they are a vector of their own for the ranks across. It is shared like any buffer, so that
// the ranks of a host take from each other what came from outside.

class TwoLevel final : public Backend {
 public:
  TwoLevel(std::unique_ptr<SharedMemory> host, std::unique_ptr<Backend> across, const TwoLevelShape& shape,
           std::string description, std::shared_ptr<transport::SharedChannels> channels)
      : host_(std::move(host)),
        channels_(std::move(channels)),
        across_(std::move(across)),
        hosts_(shape.hosts),
        locals_(shape.ranks_per_host),
        description_(std::move(description)) {}

  [[nodiscard]] int rank() const override { return rank_at(across_->rank(), host_->rank()); }
  [[nodiscard]] int size() const override { return hosts_ * locals_; }
  [[nodiscard]] std::string description() const override { return description_; }

  // Two hosts may differ in it: one that is too big for either fails on both.
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    Buffer buffer;
    guarded([&] {
      buffer = host_->allocate(bytes, deadline);
      const Request all{.label = bytes};
      across_->run(all, deadline);
      host_->run(all, deadline);
    });
    return buffer;
  }

  Timing run(const Request& request, Deadline deadline) override {
    Timing timing;
    guarded([&] {
      timing = host_->meet_for(request, deadline);
      carry(request, deadline);
      // Until all are through, a peer may still read this rank's buffers.
      host_->run({}, deadline);
      timing.end = SteadyClock::now();
    });
    return timing;
  }

  // By messages alone: the members are no grid of hosts in general.
  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline /*deadline*/) override {
    std::unique_ptr<Backend> part;
    guarded([&] {
      if (subgroup.members.empty()) return;
      part = programs::make_program_backend(channels_, subgroup.members, programs::tag_of(subgroup),
                                            {.link = kLink});
    });
    return part;
  }

  void abort(const std::string& reason) noexcept override {
    host_->abort(reason);
    across_->abort(reason);
  }

 private:
  [[nodiscard]] int rank_at(int host, int local) const { return host * locals_ + local; }

  // The first error is this rank's for good, and the peers inside and across learn of it.
  template <typename Function>
  void guarded(const Function& function) {
    error_.guard(function, [this](const std::exception& error) {
      abort(fmt::format("rank {} of the whole group: {}", rank(), error.what()));
    });
  }

  void carry(const Request& request, Deadline deadline) {
    switch (request.collective) {
      case Collective::barrier:
        if (host_->rank() == 0) across_->run(request, deadline);
        return;
      case Collective::reduce_scatter:
        return reduce_scatter(request, deadline);
      case Collective::all_gather:
        return all_gather(request, deadline);
      case Collective::all_reduce:
        return all_reduce(request, deadline);
      case Collective::broadcast:
        return broadcast(request, deadline);
      case Collective::all_to_all:
        return all_to_all(request, deadline);
      case Collective::reduce:
        return;
    }
  }

  void reduce_scatter(const Request& request, Deadline deadline);
  void all_gather(const Request& request, Deadline deadline);
  void all_reduce(const Request& request, Deadline deadline);
  void broadcast(const Request& request, Deadline deadline);
  void all_to_all(const Request& request, Deadline deadline);

  [[nodiscard]] Range shard(const Request& request, int host, int local) const {
    return shard_of(request.view.count, request.view.dtype, size(), rank_at(host, local));
  }
  [[nodiscard]] std::int64_t stride(const Request& request) const {
    return shard_of(request.view.count, request.view.dtype, size(), 0).size();
  }
  // Elements [first, ...) of a view as local rank `local` has it.
  [[nodiscard]] std::byte* at(const View& view, int local, std::int64_t first) const {
    return host_->part_of(view.buffer, local) + view.offset_bytes + first * size_of(view.dtype);
  }
  static void copy_elements(const View& like, std::byte* to, const std::byte* from, std::int64_t count) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count * size_of(like.dtype)));
  }

  // `count` elements of scratch.
  View scratch_for(const Request& request, std::int64_t count, Deadline deadline) {
    const std::int64_t bytes = count * size_of(request.view.dtype);
    if (bytes > scratch_.bytes()) {
      scratch_ = {};
      scratch_ = host_->allocate(bytes, deadline);
    }
    return {.buffer = scratch_, .count = count, .dtype = request.view.dtype};
  }

  // The same for the ranks across; averages are sums until the end.
  static Request across(Request request, const View& view) {
    request.view = view;
    if (request.reduction == Reduction::average) request.reduction = Reduction::sum;
    return request;
  }
  void add_up_inside(const Request& request, const View& scratch) const;
  void divide(const Request& request, std::byte* data, std::int64_t count) const;

  std::unique_ptr<SharedMemory> host_;
  std::shared_ptr<transport::SharedChannels> channels_;
  std::unique_ptr<Backend> across_;
  int hosts_;
  int locals_;
  std::string description_;
  Buffer scratch_;
  FirstError error_;
};

void TwoLevel::add_up_inside(const Request& request, const View& scratch) const {
  std::vector<const std::byte*> sources(static_cast<std::size_t>(locals_));
  const Request summed = across(request, scratch);
  for (int host = 0; host < hosts_; ++host) {
    const Range range = shard(request, host, host_->rank());
    if (range.empty()) {
      continue;
    }
    for (int local = 0; local < locals_; ++local) {
      sources[static_cast<std::size_t>(local)] = at(request.view, local, range.begin);
    }
    collective::reduce(request.view.dtype, summed.reduction, sources,
                       at(scratch, host_->rank(), host * stride(request)), range.size());
  }
}

void TwoLevel::divide(const Request& request, std::byte* data, std::int64_t count) const {
  if (request.reduction == Reduction::average && count > 0) {
    const void* source = data;
    collective::find_kernel(request.view.dtype, Reduction::sum)({.data = &source, .count = 1}, data, count,
                                                                size());
  }
}

// The view stays as it is but for this rank's shard, which nobody else reads.
void TwoLevel::reduce_scatter(const Request& request, Deadline deadline) {
  const View scratch = scratch_for(request, hosts_ * stride(request), deadline);
  add_up_inside(request, scratch);
  across_->run(across(request, scratch), deadline);
  const Range own = shard(request, across_->rank(), host_->rank());
  if (!own.empty()) {
    std::byte* sum = at(scratch, host_->rank(), across_->rank() * stride(request));
    divide(request, sum, own.size());
    copy_elements(request.view, at(request.view, host_->rank(), own.begin), sum, own.size());
  }
}

void TwoLevel::all_gather(const Request& request, Deadline deadline) {
  const View scratch = scratch_for(request, hosts_ * stride(request), deadline);
  const Range own = shard(request, across_->rank(), host_->rank());
  if (!own.empty()) {
    copy_elements(request.view, at(scratch, host_->rank(), across_->rank() * stride(request)),
                  at(request.view, host_->rank(), own.begin), own.size());
  }
  across_->run(across(request, scratch), deadline);
  host_->run({}, deadline);
  for (int local = 0; local < locals_; ++local) {
    for (int host = 0; host < hosts_; ++host) {
      const Range range = shard(request, host, local);
      if (!range.empty() && rank_at(host, local) != rank()) {
        copy_elements(request.view, at(request.view, host_->rank(), range.begin),
                      at(scratch, local, host * stride(request)), range.size());
      }
    }
  }
}

void TwoLevel::all_reduce(const Request& request, Deadline deadline) {
  const View scratch = scratch_for(request, hosts_ * stride(request), deadline);
  add_up_inside(request, scratch);
  across_->run(across(request, scratch), deadline);
  for (int host = 0; host < hosts_; ++host) {
    const Range range = shard(request, host, host_->rank());
    if (!range.empty()) {
      divide(request, at(scratch, host_->rank(), host * stride(request)), range.size());
    }
  }
  host_->run({}, deadline);
  for (int local = 0; local < locals_; ++local) {
    for (int host = 0; host < hosts_; ++host) {
      const Range range = shard(request, host, local);
      if (!range.empty()) {
        copy_elements(request.view, at(request.view, host_->rank(), range.begin),
                      at(scratch, local, host * stride(request)), range.size());
      }
    }
  }
}

// The ranks across that have the root among them bring it to their hosts.
void TwoLevel::broadcast(const Request& request, Deadline deadline) {
  const int bringer = request.root % locals_;
  if (host_->rank() == bringer) {
    Request over = request;
    over.root = request.root / locals_;
    across_->run(over, deadline);
  }
  host_->run({}, deadline);
  if (host_->rank() != bringer && request.view.count > 0) {
    copy_elements(request.view, at(request.view, host_->rank(), 0), at(request.view, bringer, 0),
                  request.view.count);
  }
}

// Blocks for the ranks of one host lie side by side: they go there together, to the rank of the same number,
// and its neighbours fetch theirs.
void TwoLevel::all_to_all(const Request& request, Deadline deadline) {
  const View scratch = scratch_for(request, request.view.count, deadline);
  Request over = request;
  over.output = scratch;
  across_->run(over, deadline);
  host_->run({}, deadline);
  const std::int64_t block = request.view.count / size();
  for (int local = 0; local < locals_ && block > 0; ++local) {
    for (int host = 0; host < hosts_; ++host) {
      copy_elements(request.view, at(request.output, host_->rank(), rank_at(host, local) * block),
                    at(scratch, local, (host * locals_ + host_->rank()) * block), block);
    }
  }
}

}  // namespace

std::optional<TwoLevelShape> two_level_shape(const std::vector<int>& host_of_rank) {
  const auto ranks = static_cast<int>(host_of_rank.size());
  const auto first = static_cast<int>(
      std::count(host_of_rank.begin(), host_of_rank.end(), host_of_rank.empty() ? 0 : host_of_rank[0]));
  if (first < 2 || ranks % first != 0 || ranks == first) {
    return std::nullopt;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const int of_first_there = host_of_rank[static_cast<std::size_t>(rank / first * first)];
    const bool begins = rank % first == 0 && rank > 0;
    if (host_of_rank[static_cast<std::size_t>(rank)] != of_first_there ||
        (begins && std::count(host_of_rank.begin(), host_of_rank.begin() + rank, of_first_there) > 0)) {
      return std::nullopt;
    }
  }
  return TwoLevelShape{.hosts = ranks / first, .ranks_per_host = first};
}

std::unique_ptr<Backend> make_two_level(std::unique_ptr<SharedMemory> host,
                                        std::unique_ptr<transport::Channels> channels,
                                        const TwoLevelShape& shape) {
  const int rank = channels->rank();
  if (channels->size() != shape.hosts * shape.ranks_per_host || host->size() != shape.ranks_per_host ||
      host->rank() != rank % shape.ranks_per_host) {
    throw ConfigError(
        fmt::format("rank {} of {} is rank {} of {} on its host: that is no place in a grid of {} hosts with "
                    "{} ranks each",
                    rank, channels->size(), host->rank(), host->size(), shape.hosts, shape.ranks_per_host));
  }
  std::string description = fmt::format("two-level, {} hosts of {} ranks: shared memory inside, {} across",
                                        shape.hosts, shape.ranks_per_host, channels->description());
  std::vector<int> members;
  for (int number = 0; number < shape.hosts; ++number) {
    members.push_back(number * shape.ranks_per_host + host->rank());
  }
  auto shared = std::make_shared<transport::SharedChannels>(std::move(channels));
  auto across = programs::make_program_backend(shared, std::move(members), 0, {.link = kLink});
  return std::make_unique<TwoLevel>(std::move(host), std::move(across), shape, std::move(description),
                                    std::move(shared));
}

}  // namespace dear::backends
