#include "dear/train/streams/host_copy.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "dear/train/streams/own_operators.h"

namespace dear::streams {
namespace {

at::ScalarType bits_of(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

at::Tensor rows_of(const at::Tensor& flat, const buckets::RowsOfTensor& tensor) {
  return flat.narrow(0, tensor.elements.begin, tensor.elements.size()).view({tensor.rows, -1});
}

}  // namespace

// The stream of copies is the current one while this lives.
class FlatHostCopy::OnOwnStream {
 public:
  explicit OnOwnStream(const FlatHostCopy& copy)
      : guard_(copy.own_ ? c10::OptionalStreamGuard(*copy.own_) : c10::OptionalStreamGuard()) {}

 private:
  const OwnOperators own_;
  const c10::OptionalStreamGuard guard_;
};

FlatHostCopy::FlatHostCopy(at::Tensor vector, const View& copy, BucketStreams& streams)
    : vector_(std::move(vector)),
      copy_(at::from_blob(
          copy.buffer.data() + copy.offset_bytes, {copy.count}, [buffer = copy.buffer](void*) {},
          at::TensorOptions().dtype(vector_.dtype()))),
      streams_(streams) {
  if (vector_.is_cpu()) return;
  own_ = c10::impl::VirtualGuardImpl(vector_.device().type()).getStreamFromGlobalPool(vector_.device());
  ready_.emplace(vector_.device().type());
}

void FlatHostCopy::follow() {
  streams_.follow(Guard::after_gradients);
  if (!own_) return;
  const auto guard = streams_.on_communication();
  ready_->record(c10::impl::VirtualGuardImpl(vector_.device().type()).getStream(vector_.device()));
  ready_->block(*own_);
}

void FlatHostCopy::take() {
  const OnOwnStream on_own_stream(*this);
  copy_.copy_(vector_);
}

void FlatHostCopy::give() {
  const OnOwnStream on_own_stream(*this);
  vector_.copy_(copy_);
  if (own_) own_->synchronize();
}

std::vector<std::int32_t> FlatHostCopy::take_rows(const buckets::RowsOfTensor& tensor, std::int64_t most) {
  const OnOwnStream on_own_stream(*this);
  const at::Tensor rows = rows_of(vector_, tensor);
  const at::Tensor found = rows.view(bits_of(rows)).ne(0).any(1).nonzero().view({-1});
  const at::Tensor numbers = found.cpu();
  if (numbers.numel() > 0 && numbers.numel() <= most)
    rows_of(copy_, tensor).index_copy_(0, numbers, rows.index_select(0, found).cpu());
  const std::int64_t* const first = numbers.const_data_ptr<std::int64_t>();
  return {first, first + numbers.numel()};
}

void FlatHostCopy::give_rows(const buckets::RowsOfTensor& tensor, std::span<const std::int32_t> rows) {
  const OnOwnStream on_own_stream(*this);
  vector_.zero_();
  if (!rows.empty()) {
    const at::Tensor numbers = at::tensor(std::vector<std::int64_t>(rows.begin(), rows.end()), at::kLong);
    const at::Tensor values = rows_of(copy_, tensor).index_select(0, numbers);
    rows_of(vector_, tensor).index_copy_(0, numbers.to(vector_.device()), values.to(vector_.device()));
  }
  if (own_) own_->synchronize();
}

}  // namespace dear::streams
