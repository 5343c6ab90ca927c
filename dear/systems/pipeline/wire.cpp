#include "dear/systems/pipeline/wire.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::systems::pipeline {
namespace {

constexpr auto kMoves = std::chrono::milliseconds(1);  // from one look at messages to the next

}  // namespace

Wire::Wire(std::unique_ptr<channels::Channels> channels, const Stages& stages, int rank,
           std::chrono::duration<double> timeout)
    : stages_(stages), rank_(rank), timeout_(timeout), channels_(std::move(channels)) {
  if (channels_) mover_ = std::thread([this] { move_on(); });
}

Wire::~Wire() {
  if (!channels_) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  mover_.join();
  if (under_way_ > 0) channels_->keep(memory_);
}

// Some channels move messages only when they are asked to.
void Wire::move_on() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (under_way_ == 0) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, kMoves);
    if (ends_ || under_way_ == 0) continue;
    try {
      channels_->progress();
    } catch (const std::exception&) {  // the program's thread meets it, too
      changed_.wait(lock, [this] { return ends_; });
    }
  }
}

void Wire::send(int cut, bool gradient, int micro_batch, Tensors tensors) {
  const Key key{.cut = cut, .gradient = gradient, .micro_batch = micro_batch};
  const int to = stages_.rank_of(gradient ? cut : cut + 1);
  if (to == rank_) {
    here_[key] = std::move(tensors);
    return;
  }
  Flight& flight = memory_->sent[key];
  flight.bytes = cut_of(key).pack(gradient, tensors);
  bytes_sent_ += flight.bytes.numel();
  guarded(
      [&] {
        start(flight, {.direction = channels::Transfer::Direction::send,
                       .peer = to,
                       .tag = static_cast<channels::Tag>(2 * cut + (gradient ? 1 : 0))});
      },
      text_of(key, true));
}

void Wire::expect(int cut, bool gradient, int micro_batch) {
  const Key key{.cut = cut, .gradient = gradient, .micro_batch = micro_batch};
  const int from = stages_.rank_of(gradient ? cut + 1 : cut);
  if (from == rank_) return;
  Flight& flight = memory_->awaited[key];
  flight.bytes = torch::empty(cut_of(key).bytes(gradient), at::kByte);
  guarded(
      [&] {
        start(flight, {.direction = channels::Transfer::Direction::receive,
                       .peer = from,
                       .tag = static_cast<channels::Tag>(2 * cut + (gradient ? 1 : 0))});
      },
      text_of(key, false));
}

Tensors Wire::take(int cut, bool gradient, int micro_batch) {
  const Key key{.cut = cut, .gradient = gradient, .micro_batch = micro_batch};
  if (const auto found = here_.find(key); found != here_.end()) {
    Tensors tensors = std::move(found->second);
    here_.erase(found);
    return tensors;
  }
  Flight& flight = memory_->awaited.at(key);
  wait(flight, text_of(key, false));
  Tensors tensors = cut_of(key).unpack(gradient, flight.bytes);
  memory_->awaited.erase(key);
  return tensors;
}

void Wire::finish(int cut, bool gradient, int micro_batch) {
  const Key key{.cut = cut, .gradient = gradient, .micro_batch = micro_batch};
  const auto found = memory_->sent.find(key);
  if (found == memory_->sent.end()) return;
  wait(found->second, text_of(key, true));
  memory_->sent.erase(found);
}

void Wire::finish_all() {
  while (!memory_->sent.empty()) {
    const Key key = memory_->sent.begin()->first;
    finish(key.cut, key.gradient, key.micro_batch);
  }
}

void Wire::exchange(bool sends, int rank, const torch::Tensor& bytes, const std::string& what) {
  using Direction = channels::Transfer::Direction;
  const std::string text = sends ? fmt::format("rank {} could not send {} to rank {}", rank_, what, rank)
                                 : fmt::format("rank {} waited for {} from rank {}", rank_, what, rank);
  Flight& flight = memory_->exchanged;
  flight.bytes = bytes;
  if (sends) bytes_sent_ += bytes.numel();
  guarded(
      [&] {
        start(flight, {.direction = sends ? Direction::send : Direction::receive,
                       .peer = rank,
                       .tag = static_cast<channels::Tag>(2 * stages_.cuts.size())});
      },
      text);
  wait(flight, text);
}

void Wire::abort(const std::string& reason) noexcept {
  if (channels_) channels_->abort(fmt::format("rank {} failed: {}", rank_, reason));
}

void Wire::start(Flight& flight, channels::Transfer transfer) {
  flight.transfer = transfer;
  flight.transfer.data = static_cast<std::byte*>(flight.bytes.mutable_data_ptr());
  flight.transfer.bytes = flight.bytes.numel();
  {
    const std::lock_guard lock(mutex_);
    ++under_way_;
    channels_->start(flight.transfer);
  }
  changed_.notify_one();
}

void Wire::wait(Flight& flight, const std::string& what) {
  const Deadline deadline = Deadline::after(timeout_);
  guarded(
      [&] {
        const std::lock_guard lock(mutex_);
        while (!flight.transfer.done)
          channels_->wait([] { return "wait for a message of the pipeline"; }, deadline);
        --under_way_;
      },
      what);
}

template <typename Act>
void Wire::guarded(const Act& act, const std::string& what) {
  try {
    act();
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format("{}: {}", what, error.what()));
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", what, error.what()));
  }
}

std::string Wire::text_of(const Key& key, bool sends) const {
  const Stage &front = stages_.stages[index_of(key.cut)], &behind = stages_.stages[index_of(key.cut + 1)];
  const bool here_in_front = key.gradient != sends;
  const Stage &here = here_in_front ? front : behind, &there = here_in_front ? behind : front;
  return fmt::format("rank {}: {} {} the {}output of operator {} of micro-batch {} {} {} on rank {}", rank_,
                     here.text, sends ? "could not send" : "waited for",
                     key.gradient ? "gradient of the " : "", cut_of(key).names, key.micro_batch,
                     sends ? "to" : "from", there.text, there.rank);
}

}  // namespace dear::systems::pipeline
