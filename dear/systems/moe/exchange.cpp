#include "dear/systems/moe/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/comm/process_group/torch_types.h"
#include "dear/methods/moe/routing.h"
#include "dear/systems/moe/weights.h"

namespace dear::systems::moe {
namespace {

const std::byte* bytes_of(const torch::Tensor& rows) {
  return static_cast<const std::byte*>(rows.const_data_ptr());
}

void copy_rows(std::byte* to, std::int64_t to_row, const std::byte* from, std::int64_t from_row,
               std::int64_t count, std::int64_t row_bytes) {
  std::memcpy(to + to_row * row_bytes, from + from_row * row_bytes,
              static_cast<std::size_t>(count * row_bytes));
}

}  // namespace

Arriving::Arriving(std::vector<std::int64_t> counts, std::int64_t experts_here)
    : counts_(std::move(counts)), here_(experts_here), begins_{0} {
  for (std::int64_t expert = 0; expert < here_; ++expert) {
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < ranks(); ++rank) total += count(rank, expert);
    begins_.push_back(begins_.back() + filled_up(total));
  }
}

std::int64_t Arriving::begin_of(std::int64_t rank, std::int64_t expert) const {
  std::int64_t begin = begin_of(expert);
  for (std::int64_t earlier = 0; earlier < rank; ++earlier) begin += count(earlier, expert);
  return begin;
}

Exchange::Exchange(Options options, Placed placed)
    : options_(std::move(options)), placed_(std::move(placed)) {}

void Exchange::launch(const char* what, const torch::Tensor& rows, const std::vector<std::int64_t>& sends,
                      const std::function<void(std::byte* to, const std::byte* from)>& fill) {
  const torch::Tensor from = rows.contiguous();
  shape_ = {.chunks = std::ssize(sends) / options_.group->size(),
            .room = options_.room,
            .width = rows.size(1),
            .dtype = process_group::dtype_of(rows.scalar_type()).value()};
  type_ = rows.options();
  under_way_ = options_.group->launch(fmt::format("{}, {}", what, options_.name), shape_, sends,
                                      [&](std::byte* to) { fill(to, bytes_of(from)); });
  if (options_.at_once) options_.group->wait(*under_way_);
}

torch::Tensor Exchange::take(std::int64_t rows,
                             const std::function<void(std::byte* to, const std::byte* from)>& copy) {
  torch::Tensor taken = torch::zeros({rows, shape_.width}, type_);
  copy(static_cast<std::byte*>(taken.data_ptr()), under_way_->taken());
  options_.group->done(std::exchange(under_way_, nullptr));
  return taken;
}

void Exchange::launch_to_experts(const char* what, const torch::Tensor& rows) {
  const std::size_t choices_of_row = placed_.slots.size() / static_cast<std::size_t>(rows.size(0));
  launch(what, rows, placed_.counts, [&](std::byte* to, const std::byte* from) {
    for (std::size_t choice = 0; choice < placed_.slots.size(); ++choice)
      if (placed_.slots[choice] != methods::moe::kDropped)
        copy_rows(to, row_of(choice), from, static_cast<std::int64_t>(choice / choices_of_row), 1,
                  shape_.row_bytes());
  });
}

torch::Tensor Exchange::take_at_experts() {
  options_.group->wait(*under_way_);
  if (!arriving_) arriving_ = std::make_shared<Arriving>(under_way_->received(), shape_.chunks);
  return take(arriving_->rows(), [&](std::byte* to, const std::byte* from) {
    for (std::int64_t rank = 0; rank < arriving_->ranks(); ++rank)
      for (std::int64_t expert = 0; expert < arriving_->experts(); ++expert)
        copy_rows(to, arriving_->begin_of(rank, expert), from,
                  (rank * arriving_->experts() + expert) * shape_.room, arriving_->count(rank, expert),
                  shape_.row_bytes());
  });
}

void Exchange::launch_back(const char* what, const torch::Tensor& rows) {
  launch(what, rows, arriving_->counts(), [&](std::byte* to, const std::byte* from) {
    for (std::int64_t rank = 0; rank < arriving_->ranks(); ++rank)
      for (std::int64_t expert = 0; expert < arriving_->experts(); ++expert)
        copy_rows(to, (rank * arriving_->experts() + expert) * shape_.room, from,
                  arriving_->begin_of(rank, expert), arriving_->count(rank, expert), shape_.row_bytes());
  });
}

torch::Tensor Exchange::take_back() {
  options_.group->wait(*under_way_);
  const auto choices = static_cast<std::int64_t>(placed_.slots.size());
  return take(choices,
              [&](std::byte* to, const std::byte* from) {
                for (std::size_t choice = 0; choice < placed_.slots.size(); ++choice)
                  if (placed_.slots[choice] != methods::moe::kDropped)
                    copy_rows(to, static_cast<std::int64_t>(choice), from, row_of(choice), 1,
                              shape_.row_bytes());
              })
      .view({choices / options_.choices, options_.choices, shape_.width});
}

}  // namespace dear::systems::moe
