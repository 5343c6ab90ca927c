#include "dear/systems/edge/averaging.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::systems::edge {
namespace {

constexpr std::int64_t kBytes = sizeof(double);

void add_up(std::span<const std::byte* const> sources, std::byte* out, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kBytes) {
    double sum = 0;
    for (const std::byte* const source : sources) {
      double one = 0;
      std::memcpy(&one, source + at, sizeof one);
      sum += one;
    }
    std::memcpy(out + at, &sum, sizeof sum);
  }
}

}  // namespace

ProgramOnVectors::ProgramOnVectors(const Group& group, const algorithm::Program& program,
                                   const std::vector<std::int64_t>& elements, std::string what)
    : timeout_(group.timeout()), what_(std::move(what)), channels_(group.open_channels(1)) {
  std::vector<Range> blocks;
  std::int64_t end = 0;
  for (const std::int64_t count : elements) {
    blocks.push_back({.begin = end * kBytes, .end = (end + count) * kBytes});
    end += count;
  }
  memory_->numbers.resize(static_cast<std::size_t>(end));
  memory_->executor = std::make_unique<message_programs::Executor>(
      message_programs::MessageGraphBuilder({.rank = group.rank(), .element_bytes = kBytes})
          .add(program, blocks)
          .finish());
}

// After a failure messages may still be under way.
ProgramOnVectors::~ProgramOnVectors() {
  if (channels_) channels_->keep(memory_);
}

void ProgramOnVectors::execute() {
  memory_->executor->execute(
      {.data = reinterpret_cast<std::byte*>(memory_->numbers.data()), .combine = add_up}, *channels_,
      memory_->stage, [this] { return what_; }, Deadline::after(timeout_));
}

Gossip::Gossip(const Group& group, methods::edge::Weights weights, std::int64_t elements) {
  methods::edge::check_doubly_stochastic(weights);
  if (std::ssize(weights) != group.size())
    throw ConfigError(fmt::format("weights of {} devices on {} ranks: give one row for each", weights.size(),
                                  group.size()));
  std::vector<std::pair<int, int>> edges;
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const double weight = weights[index_of(group.rank())][index_of(rank)];
    if (rank == group.rank()) own_ = row_.size();
    const bool takes_part = rank == group.rank() || weight != 0;
    counts.push_back(takes_part ? elements : 0);
    if (takes_part) row_.push_back(weight);
    for (int other = 0; other < rank; ++other)
      if (weights[index_of(rank)][index_of(other)] != 0) edges.emplace_back(other, rank);
  }
  if (group.size() > 1)
    exchange_ = std::make_unique<ProgramOnVectors>(group, algorithm::neighbour_gather(group.size(), edges),
                                                   counts, "wait for the vectors of its neighbours");
}

void Gossip::mix(std::vector<double>& own) {
  if (!exchange_) return;
  const std::vector<double>& all = exchange_->numbers();
  std::copy(own.begin(), own.end(),
            exchange_->numbers().begin() + static_cast<std::ptrdiff_t>(own_ * own.size()));
  exchange_->execute();
  std::fill(own.begin(), own.end(), 0.0);
  auto from = all.begin();
  for (const double weight : row_)
    for (double& one : own) one += weight * *from++;
}

Hierarchy::Hierarchy(const Group& group, int cells, std::int64_t elements) : ranks_(group.size()) {
  const algorithm::Program of_all = algorithm::all_reduce_by_cells(ranks_, cells);
  const int a_cell = (ranks_ + cells - 1) / cells;
  of_cell_ = std::min(a_cell, ranks_ - group.rank() / a_cell * a_cell);
  if (ranks_ == 1) return;
  std::vector<std::int64_t> counts;
  for (int block = 0; block < of_all.blocks; ++block)
    counts.push_back((block + 1) * elements / of_all.blocks - block * elements / of_all.blocks);
  in_cells_ = std::make_unique<ProgramOnVectors>(group, algorithm::all_reduce_in_cells(ranks_, cells), counts,
                                                 "average with the ranks of its cell");
  of_all_ = std::make_unique<ProgramOnVectors>(group, of_all, counts, "average with all cells");
}

void Hierarchy::average(ProgramOnVectors& sum, int ranks, std::vector<double>& own) {
  std::copy(own.begin(), own.end(), sum.numbers().begin());
  sum.execute();
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = sum.numbers()[i] / ranks;
}

void Hierarchy::mix_cell(std::vector<double>& own) {
  if (in_cells_) average(*in_cells_, of_cell_, own);
}

void Hierarchy::mix_all(std::vector<double>& own) {
  if (of_all_) average(*of_all_, ranks_, own);
}

std::vector<double> mean_of(const Group& group, const std::vector<double>& own) {
  std::vector<double> mean = own;
  const Buffer buffer = group.allocate(std::ssize(own) * kBytes);
  std::memcpy(buffer.data(), own.data(), own.size() * sizeof(double));
  group.all_reduce({.buffer = buffer, .count = std::ssize(own), .dtype = DType::f64}, Reduction::sum).wait();
  std::memcpy(mean.data(), buffer.data(), own.size() * sizeof(double));
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
