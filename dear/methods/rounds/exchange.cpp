#include "dear/methods/rounds/exchange.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::methods::rounds {
namespace {

constexpr std::int64_t kReal = sizeof(double);

std::span<double> doubles(const Buffer& buffer, std::int64_t from, std::int64_t count) {
  return {reinterpret_cast<double*>(buffer.data()) + from, static_cast<std::size_t>(count)};
}

}  // namespace

Exchange::Exchange(Group group, int clients, std::uint64_t seed)
    : group_(std::move(group)),
      clients_(clients),
      seed_(seed),
      counts_(index_of(group_.size())),
      received_counts_(index_of(group_.size())) {}

Range Exchange::clients_of(int rank) const {
  const auto edge = [&](std::int64_t ranks) { return clients_ * ranks / group_.size(); };
  return {edge(rank), edge(rank + 1)};
}

Range Exchange::shard(std::int64_t dimension, int rank) const {
  return shard_of(dimension, DType::f64, group_.size(), rank);
}

std::vector<Sender> Exchange::senders_on(const Round& round, int rank) const {
  std::vector<Sender> senders;
  const Range clients = clients_of(rank);
  for (const Sender& sender : round.senders)
    if (clients.contains(sender.client)) senders.push_back(sender);
  return senders;
}

std::int64_t Exchange::room_for(const Round& round, const Mask& mask) const {
  std::int64_t room = 1;
  for (int from = 0; from < group_.size(); ++from) {
    const std::vector<Sender> senders = senders_on(round, from);
    for (int to = 0; to < group_.size(); ++to) {
      std::int64_t reals = 0;
      for (const Sender& sender : senders) reals += mask.count(sender.column, shard(mask.dimension(), to));
      room = std::max(room, reals);
    }
  }
  return room;
}

// Every rank computes the same room, so all allocate in the same round.
void Exchange::make_room(std::int64_t room, std::int64_t dimension) {
  if (room > room_) {
    room_ = room + room / 4;
    sent_ = group_.allocate(room_ * group_.size() * kReal);
    received_ = group_.allocate(room_ * group_.size() * kReal);
  }
  if (mean_.bytes() < dimension * kReal) mean_ = group_.allocate(dimension * kReal);
  dimension_ = dimension;
}

// The others wait for this rank, so they are told.
void Exchange::refuse(const Sender& sender, const Round& round) const {
  const std::string message = fmt::format(
      "client {} has a value that is not finite after {} local steps of round {}: give a smaller step "
      "size, or find the gradient that is not finite",
      sender.client, round.steps, round.number);
  group_.abort(message);
  throw Error(message);
}

void Exchange::pack(const Round& round, const Mask& mask, const Vector& vector_of) {
  const std::vector<Sender> senders = senders_on(round, group_.rank());
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const Sender& sender : senders) {
    const std::span<const double> vector = vector_of(sender.client);
    for (int to = 0; to < group_.size(); ++to) {
      double* const out = doubles(sent_, to * room_, room_).data();
      std::int64_t& count = counts_[index_of(to)];
      double checked = 0;
      mask.each(sender.column, shard(mask.dimension(), to), [&](std::int64_t coordinate) {
        const double value = vector[static_cast<std::size_t>(coordinate)];
        checked += value - value;  // 0, or NaN where the value is not finite
        out[count++] = value;
      });
      if (std::isnan(checked)) refuse(sender, round);
    }
  }
  for (const std::int64_t count : counts_) traffic_.reals += count;
}

void Exchange::add_up(const Round& round, const Mask& mask) {
  const Range own = shard(mask.dimension(), group_.rank());
  const std::span<double> sums = doubles(mean_, own.begin, own.size());
  std::fill(sums.begin(), sums.end(), 0.0);
  for (int from = 0; from < group_.size(); ++from) {
    const double* value = doubles(received_, from * room_, room_).data();
    for (const Sender& sender : senders_on(round, from))
      mask.each(sender.column, own, [&](std::int64_t coordinate) {
        sums[static_cast<std::size_t>(coordinate - own.begin)] += *value++;
      });
  }
  for (double& sum : sums) sum /= mask.owners();
}

void Exchange::reduce(const Round& round, const Mask& mask, const Vector& vector_of) {
  make_room(room_for(round, mask), mask.dimension());
  pack(round, mask, vector_of);
  MovedBytes moved;
  // Ranks compare labels, so a rank with another mask is found before its values are added to others.
  const std::uint64_t label = Digest().add(seed_).add(static_cast<std::uint64_t>(round.number)).value() >> 1;
  const std::int64_t count = room_ * group_.size();
  group_.perform({.collective = Collective::all_to_all_v,
                  .view = {.buffer = sent_, .count = count, .dtype = DType::f64},
                  .output = {.buffer = received_, .count = count, .dtype = DType::f64},
                  .rows = {.chunks = 1,
                           .width = 1,
                           .sent = counts_.data(),
                           .received = received_counts_.data(),
                           .moved = &moved},
                  .label = static_cast<std::int64_t>(label),
                  .timed = false});
  traffic_.sent_bytes += moved.sent;
  traffic_.received_bytes += moved.received;
  add_up(round, mask);
}

std::span<const double> Exchange::gather() {
  group_.perform({.collective = Collective::all_gather,
                  .view = {.buffer = mean_, .count = dimension_, .dtype = DType::f64},
                  .timed = false});
  traffic_.gathered_bytes += (dimension_ - shard(dimension_, group_.rank()).size()) * kReal;
  return doubles(mean_, 0, dimension_);
}

}  // namespace dear::methods::rounds
