#include "dear/comm/buckets/sparse_bucket.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "dear/base/os/cache_line.h"
#include "dear/comm/group/reduce.h"

namespace dear::buckets {
namespace {

constexpr std::int64_t kUnused = -1;  // the count of a rank that did not use the parameter

std::int64_t row_bytes_of(const View& gradients, const SparseBucket::Tensor& tensor) {
  return tensor.elements.size() / tensor.rows * size_of(gradients.dtype);
}

std::int64_t bytes_of_numbers(std::int64_t rows) {
  return os::whole_cache_lines(rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
}
// A rank's part of the payloads: the numbers of its rows, then the rows.
std::int64_t part_bytes(std::int64_t rows, std::int64_t row_bytes) {
  return bytes_of_numbers(rows) + os::whole_cache_lines(rows * row_bytes);
}

// The most rows with which the parts of all ranks are less than the dense gradient, of so many bytes.
std::int64_t most_rows(std::int64_t bytes, std::int64_t rows, int ranks) {
  if (rows > std::numeric_limits<std::int32_t>::max()) return 0;
  std::int64_t low = 0, high = rows;  // low fits
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (ranks * part_bytes(middle, bytes / rows) < bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// -0.0 is none: it has one bit set.
bool is_zero(const std::byte* bytes, std::int64_t count) {
  std::int64_t i = 0;
  std::uint64_t any = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, sizeof word);
    any |= word;
  }
  for (; i < count; ++i) any |= static_cast<std::uint64_t>(bytes[i]);
  return any == 0;
}

// A row of elements that are -0.0.
std::vector<std::byte> negative_zeros(std::int64_t bytes, DType dtype) {
  std::vector<std::byte> row(static_cast<std::size_t>(bytes));
  for (std::int64_t i = size_of(dtype) - 1; i < bytes; i += size_of(dtype)) row[i] = std::byte{0x80};
  return row;
}

}  // namespace

bool SparseBucket::worthwhile(std::int64_t bytes, std::int64_t rows, int ranks) {
  return ranks > 1 && rows > 1 && most_rows(bytes, rows, ranks) > 0;
}

SparseBucket::SparseBucket(const View& gradients, const Tensor& tensor, const Group& group, Chosen chosen,
                           std::unique_ptr<HostCopy> copy)
    : gradients_(gradients),
      tensor_(tensor),
      row_bytes_(row_bytes_of(gradients, tensor)),
      rank_(group.rank()),
      ranks_(group.size()),
      most_(most_rows(tensor.elements.size() * size_of(gradients.dtype), tensor.rows, ranks_)),
      chosen_(std::move(chosen)),
      copy_(std::move(copy)),
      counts_(group.allocate(ranks_ * os::kCacheLineBytes)),
      payloads_(group.allocate(ranks_ * part_bytes(most_, row_bytes_))) {}

std::byte* SparseBucket::row_at(std::int64_t row) const {
  return gradients_.buffer.data() + gradients_.offset_bytes +
         tensor_.elements.begin * size_of(gradients_.dtype) + row * row_bytes_;
}

std::int64_t& SparseBucket::count_of(int rank) const {
  return *reinterpret_cast<std::int64_t*>(counts_.data() + rank * os::kCacheLineBytes);
}

const std::int32_t* SparseBucket::numbers_of(int rank) const {
  return reinterpret_cast<const std::int32_t*>(payloads_.data() + rank * part_bytes(room_, row_bytes_));
}

std::byte* SparseBucket::values_of(int rank) const {
  return payloads_.data() + rank * part_bytes(room_, row_bytes_) + bytes_of_numbers(room_);
}

bool SparseBucket::carries(const Request& request) const {
  const bool reduces =
      request.collective == Collective::reduce_scatter || request.collective == Collective::all_reduce;
  const bool of_gradients =
      copy_ ? request.view.buffer.on_device() : request.view.buffer.data() == gradients_.buffer.data();
  return reduces && of_gradients && request.view.offset_bytes == gradients_.offset_bytes &&
         request.view.count == gradients_.count;
}

bool SparseBucket::stays_on_device() {
  if (!copy_) return false;
  if (rest_ > 0) {
    --rest_;
    return true;
  }
  copy_->follow();
  return false;
}

bool SparseBucket::is_marked_unused() const {
  const std::vector<std::byte> unused = negative_zeros(row_bytes_, gradients_.dtype);
  for (std::int64_t row = 0; row < tensor_.rows; ++row)
    if (std::memcmp(row_at(row), unused.data(), unused.size()) != 0) return false;
  return true;
}

Request SparseBucket::begin(const Request& reduction) {
  reduction_ = reduction;
  reduction_.view = gradients_;
  mine_.clear();
  std::int64_t count = kUnused;
  if (copy_) {
    mine_ = copy_->take_rows(tensor_, most_);
    count = static_cast<std::int64_t>(mine_.size());
  } else if (!is_marked_unused()) {
    for (std::int64_t row = 0; row < tensor_.rows && static_cast<std::int64_t>(mine_.size()) <= most_; ++row)
      if (!is_zero(row_at(row), row_bytes_)) mine_.push_back(static_cast<std::int32_t>(row));
    count = static_cast<std::int64_t>(mine_.size());
  }
  count_of(rank_) = count;
  return {.collective = Collective::all_gather,
          .view = {.buffer = counts_, .count = ranks_ * os::kCacheLineBytes, .dtype = DType::u8},
          .label = reduction.label};
}

std::optional<Request> SparseBucket::next() {
  room_ = 0;
  for (int rank = 0; rank < ranks_; ++rank) room_ = std::max(room_, count_of(rank));
  as_rows_ = room_ <= most_;
  const std::int64_t bytes = ranks_ * part_bytes(room_, row_bytes_);
  chosen_({.as_rows = as_rows_,
           .rows = room_,
           .share = static_cast<double>(bytes) /
                    static_cast<double>(tensor_.elements.size() * size_of(gradients_.dtype))});
  if (!as_rows_) {
    rest_ = kRest;
    if (copy_) copy_->take();
    return reduction_;
  }
  if (room_ == 0) return std::nullopt;
  pack();
  return Request{.collective = Collective::all_gather,
                 .view = {.buffer = payloads_, .count = bytes, .dtype = DType::u8},
                 .label = reduction_.label};
}

void SparseBucket::pack() {
  std::byte* const part = payloads_.data() + rank_ * part_bytes(room_, row_bytes_);
  if (!mine_.empty()) std::memcpy(part, mine_.data(), mine_.size() * sizeof(std::int32_t));
  std::byte* to = values_of(rank_);
  for (const std::int32_t row : mine_) {
    std::memcpy(to, row_at(row), static_cast<std::size_t>(row_bytes_));
    to += row_bytes_;
  }
}

void SparseBucket::end() {
  if (!as_rows_) {
    if (copy_) copy_->give();
    return;
  }
  const Range result = reduction_.collective == Collective::all_reduce ? Range{0, gradients_.count}
                                                                       : shard_of(reduction_, ranks_, rank_);
  const std::vector<std::int32_t> rows = add_up(intersection(result, tensor_.elements));
  if (copy_) copy_->give_rows(tensor_, rows);
}

std::vector<std::int32_t> SparseBucket::add_up(const Range& range) {
  const std::int64_t size = size_of(gradients_.dtype), width = row_bytes_ / size;
  const auto is_unused = [&](int rank) { return count_of(rank) == kUnused; };
  bool all_unused = true;
  for (int rank = 0; rank < ranks_; ++rank) all_unused = all_unused && is_unused(rank);
  if (all_unused || range.empty()) return {};
  // What no rank has is the sum of zeros, of which one at least is +0.0.
  if (is_unused(rank_))
    std::memset(gradients_.buffer.data() + gradients_.offset_bytes + range.begin * size, 0,
                static_cast<std::size_t>(range.size() * size));

  const std::vector<std::byte> zeros(static_cast<std::size_t>(row_bytes_)),
      unused = negative_zeros(row_bytes_, gradients_.dtype);
  std::vector<std::int64_t> at(static_cast<std::size_t>(ranks_));  // the next of each rank's rows
  std::vector<const std::byte*> sources(at.size());
  std::vector<std::int32_t> added;
  for (;;) {
    constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
    std::int32_t row = kNone;
    for (int rank = 0; rank < ranks_; ++rank)
      if (at[rank] < count_of(rank)) row = std::min(row, numbers_of(rank)[at[rank]]);
    if (row == kNone) return added;
    const std::int64_t begin = tensor_.elements.begin + row * width;
    const Range part = intersection(range, {begin, begin + width});
    const std::int64_t skipped = part.empty() ? 0 : (part.begin - begin) * size;
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::byte* source = is_unused(rank) ? unused.data() : zeros.data();
      if (at[rank] < count_of(rank) && numbers_of(rank)[at[rank]] == row)
        source = values_of(rank) + at[rank]++ * row_bytes_;
      sources[rank] = source + skipped;
    }
    if (part.empty()) continue;
    added.push_back(row);
    comm::reduce(gradients_.dtype, reduction_.reduction, sources,
                 gradients_.buffer.data() + gradients_.offset_bytes + part.begin * size, part.size());
  }
}

}  // namespace dear::buckets
