#include "dear/systems/edge/averaging.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"

namespace dear::systems::edge {
namespace {

using channels::Transfer;

std::int64_t bytes_of(std::size_t numbers) { return static_cast<std::int64_t>(numbers * sizeof(double)); }

// The sum over the group, by way of this buffer of it.
void sum_up(const Group& group, const Buffer& buffer, std::vector<double>& own) {
  std::memcpy(buffer.data(), own.data(), own.size() * sizeof(double));
  group.all_reduce({.buffer = buffer, .count = std::ssize(own), .dtype = DType::f64}, Reduction::sum).wait();
  std::memcpy(own.data(), buffer.data(), own.size() * sizeof(double));
}

}  // namespace

Gossip::Gossip(const Group& group, methods::edge::Weights weights, std::int64_t elements)
    : group_(group), weights_(std::move(weights)) {
  methods::edge::check_doubly_stochastic(weights_);
  if (std::ssize(weights_) != group.size())
    throw ConfigError(fmt::format("weights of {} devices on {} ranks: give one row for each", weights_.size(),
                                  group.size()));
  if (group.size() == 1) return;
  messages_ = std::make_unique<Messages>(group.open_channels(1), group.timeout());
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank() || weights_[index_of(group.rank())][index_of(peer)] == 0) continue;
    received_.push_back(&messages_->make(Transfer::Direction::receive, peer, elements));
    sent_.push_back(&messages_->make(Transfer::Direction::send, peer, elements));
  }
}

void Gossip::mix(std::vector<double>& own) {
  for (Message* const one : received_) messages_->start(*one);
  for (Message* const one : sent_) {
    one->numbers = own;
    messages_->start(*one);
  }
  for (const auto* const all : {&received_, &sent_})
    for (const Message* const one : *all) messages_->finish(*one, "wait for the vectors of its neighbours");
  const std::vector<double>& row = weights_[index_of(group_.rank())];
  std::vector<double> mixed(own.size());
  auto from = received_.begin();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const double weight = row[index_of(rank)];
    if (rank != group_.rank() && weight == 0) continue;
    const std::vector<double>& theirs = rank == group_.rank() ? own : (*from++)->numbers;
    for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] += weight * theirs[i];
  }
  own = std::move(mixed);
}

Hierarchy::Hierarchy(const Group& group, int cells, std::int64_t elements) : ranks_(group.size()) {
  if (cells < 1 || cells > ranks_)
    throw ConfigError(fmt::format("{} cells of {} ranks: give 1 to {}", cells, ranks_, ranks_));
  const int of_cell = (ranks_ + cells - 1) / cells;
  cell_ = group.split(group.rank() / of_cell, 0);
  heads_ = group.split(cell_->rank() == 0 ? 0 : -1, 0);
  const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(double));
  of_cell_ = cell_->allocate(bytes);
  if (heads_) of_heads_ = heads_->allocate(bytes);
}

void Hierarchy::mix_cell(std::vector<double>& own) {
  sum_up(*cell_, of_cell_, own);
  for (double& one : own) one /= cell_->size();
}

void Hierarchy::mix_all(std::vector<double>& own) {
  sum_up(*cell_, of_cell_, own);
  if (heads_) {
    sum_up(*heads_, of_heads_, own);
    for (double& one : own) one /= ranks_;
    std::memcpy(of_cell_.data(), own.data(), own.size() * sizeof(double));
  }
  cell_->broadcast({.buffer = of_cell_, .count = std::ssize(own), .dtype = DType::f64}, 0).wait();
  std::memcpy(own.data(), of_cell_.data(), own.size() * sizeof(double));
}

std::vector<double> mean_of(const Group& group, const std::vector<double>& own) {
  std::vector<double> mean = own;
  sum_up(group, group.allocate(bytes_of(own.size())), mean);
  for (double& one : mean) one /= group.size();
  return mean;
}

double disagreement(const Group& group, const std::vector<double>& own, const std::vector<double>& mean) {
  double square = 0, sum = 0;
  for (std::size_t i = 0; i < own.size(); ++i) square += (own[i] - mean[i]) * (own[i] - mean[i]);
  for (const double of_rank : comm::all_gather_values(group, square)) sum += of_rank;
  return sum;
}

}  // namespace dear::systems::edge
