#include "dear/comm/mpi/own.h"

#include <algorithm>
#include <cstring>

#include "dear/comm/group/shard.h"

namespace dear::backends {
namespace {

using channels::MpiCollective;

bool is_whole_number(DType dtype) { return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8; }

std::byte* start_of(const View& view) { return view.buffer.data() + view.offset_bytes; }

MpiCollective collective_of(const Request& request) {
  return {.collective = request.collective,
          .data = request.view.count > 0 ? start_of(request.view) : nullptr,
          .output = request.collective == Collective::all_to_all && request.output.count > 0
                        ? start_of(request.output)
                        : nullptr,
          .count = request.view.count,
          .dtype = request.view.dtype,
          .reduction = request.reduction == Reduction::average ? Reduction::sum : request.reduction,
          .root = request.root};
}

template <typename T>
void divide(std::byte* data, std::int64_t count, int by) {
  auto* const values = reinterpret_cast<T*>(data);
  const T divisor = static_cast<T>(by);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] /= divisor;
  }
}

}  // namespace

bool MpisOwn::can(const Request& request) const {
  const View& view = request.view;
  if (request.collective == Collective::reduce_scatter || request.collective == Collective::all_gather) {
    const std::int64_t block = shard_of(view.count, view.dtype, mpi_.size(), 0).size();
    if (view.count == 0 || block * mpi_.size() != view.count) {
      return false;
    }
  }
  if (reduces(request.collective)) {
    const bool adds = request.reduction == Reduction::sum || request.reduction == Reduction::average;
    const bool same_outcome =
        is_whole_number(view.dtype) ? request.reduction != Reduction::average : adds && mpi_.size() <= 2;
    if (!same_outcome) {
      return false;
    }
  }
  return mpi_.supports(collective_of(request));
}

void MpisOwn::run(const Request& request, const channels::Channels::Describe& what, Deadline deadline) {
  mpi_.run(collective_of(request), what, deadline);
  if (request.reduction != Reduction::average || !reduces(request.collective)) {
    return;
  }
  const View& view = request.view;
  const Range part = request.collective == Collective::reduce_scatter
                         ? shard_of(view.count, view.dtype, mpi_.size(), mpi_.rank())
                         : Range{.begin = 0, .end = view.count};
  std::byte* const first = start_of(view) + part.begin * size_of(view.dtype);
  if (view.dtype == DType::f64) {
    divide<double>(first, part.size(), mpi_.size());
  } else {
    divide<float>(first, part.size(), mpi_.size());
  }
}

}  // namespace dear::backends
