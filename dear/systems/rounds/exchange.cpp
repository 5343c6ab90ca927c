#include "dear/systems/rounds/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/buckets/layout.h"
#include "dear/comm/process_group/torch_types.h"

namespace dear::systems::rounds {
namespace {

std::int64_t rounded_up(std::int64_t elements, std::int64_t unit) {
  return (elements + unit - 1) / unit * unit;
}

DType dtype_of(at::ScalarType type) { return *process_group::dtype_of(type); }

// Whether a tensor travels encoded; of a low rank, where its factors are less than it.
bool encodes(const std::optional<Compression>& compression, const Travelling& tensor) {
  if (!compression || compression->leaves_dense(tensor.name, tensor.elements)) return false;
  if (compression->scheme != Scheme::low_rank) return true;
  if (tensor.sizes.size() < 2) return false;
  const std::int64_t rows = tensor.sizes[0];
  return compression->rank * (rows + tensor.elements / rows) < tensor.elements;
}

}  // namespace

Exchange::Exchange(std::vector<Travelling> tensors, std::vector<Fragment> fragments, Options options)
    : tensors_(std::move(tensors)), options_(std::move(options)), places_(tensors_.size()) {
  if (options_.inside) rank_inside_ = static_cast<std::size_t>(options_.inside->rank());
  std::int64_t largest = 0, gathered = 0;
  for (std::size_t fragment = 0; fragment < fragments.size(); ++fragment) {
    std::vector<Layout>& layouts = layouts_.emplace_back();
    for (std::size_t part = 0; part < fragments[fragment].parts.size(); ++part) {
      layouts.push_back(lay_out(fragments[fragment].parts[part]));
      for (std::size_t i = 0; i < layouts.back().tensors.size(); ++i)
        places_[layouts.back().tensors[i]] = {fragment, part, i};
    }
    largest = std::max(largest, own(fragment).elements);
    gathered = std::max(gathered, stride(fragment) * std::ssize(layouts));
  }
  const std::int64_t size = size_of(dtype_of(options_.type));
  part_ = options_.between.allocate(largest * size);
  if (options_.inside) whole_ = options_.inside->allocate(gathered * size);
  for (fragment_ = 0; fragment_ < layouts_.size(); ++fragment_) {
    const Layout& layout = own(fragment_);
    std::unique_ptr<buckets::EncodedBucket>& bucket = encoded_.emplace_back();
    if (layout.encoded == 0) continue;
    std::vector<buckets::EncodedTensor> ranges;
    for (std::size_t i = 0; i < layout.encoded; ++i) {
      const Travelling& tensor = tensors_[layout.tensors[i]];
      ranges.push_back({.range = {layout.offsets[i], layout.offsets[i] + tensor.elements},
                        .key = layout.tensors[i],
                        .rows = tensor.sizes.size() < 2 ? 0 : tensor.sizes[0]});
    }
    // Parameters are read for weight decay alone, which outer gradients have not.
    bucket = std::make_unique<buckets::EncodedBucket>(
        *options_.compression, std::move(ranges),
        buckets::EncodedBucket::Flat{view(), view(), layout.encoded_elements}, options_.between);
  }
}

// Where the group has failed it says so where it is used next.
Exchange::~Exchange() {
  try {
    wait();
  } catch (...) {
    return;
  }
}

Exchange::Layout Exchange::lay_out(const std::vector<std::size_t>& tensors) const {
  const DType dtype = dtype_of(options_.type);
  const std::int64_t line = buckets::unit_of(dtype, 1);
  const std::int64_t unit = buckets::unit_of(dtype, options_.between.size());
  Layout layout{.tensors = tensors, .offsets = {}};
  const auto dense = std::stable_partition(
      layout.tensors.begin(), layout.tensors.end(),
      [&](std::size_t tensor) { return encodes(options_.compression, tensors_[tensor]); });
  layout.encoded = static_cast<std::size_t>(dense - layout.tensors.begin());
  std::int64_t end = 0;
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    if (i == layout.encoded) end = rounded_up(end, unit);
    layout.offsets.push_back(end);
    end = rounded_up(end + tensors_[layout.tensors[i]].elements, line);
    if (i + 1 == layout.encoded) layout.encoded_elements = rounded_up(end, unit);
  }
  layout.weight = std::max(end, layout.encoded_elements);
  layout.elements = rounded_up(layout.weight + 1, unit);
  return layout;
}

const Exchange::Layout& Exchange::own(std::size_t fragment) const { return layouts_[fragment][rank_inside_]; }
const std::vector<std::size_t>& Exchange::mine(std::size_t fragment) const { return own(fragment).tensors; }

std::int64_t Exchange::stride(std::size_t fragment) const {
  std::int64_t most = 0;
  for (const Layout& layout : layouts_[fragment]) most = std::max(most, layout.elements);
  return most;
}

View Exchange::view() const {
  return {.buffer = part_, .count = own(fragment_).elements, .dtype = dtype_of(options_.type)};
}

torch::Tensor Exchange::at(const Buffer& buffer, std::int64_t offset, std::size_t tensor) const {
  return torch::from_blob(buffer.data() + offset * size_of(dtype_of(options_.type)), tensors_[tensor].sizes,
                          torch::dtype(options_.type));
}

torch::Tensor Exchange::outgoing(std::size_t tensor) const {
  return at(part_, own(fragment_).offsets[places_[tensor].number], tensor);
}

torch::Tensor Exchange::mean(std::size_t tensor) const {
  if (!options_.inside) return outgoing(tensor);
  const Place& place = places_[tensor];
  return at(whole_,
            static_cast<std::int64_t>(place.part) * stride(fragment_) +
                layouts_[fragment_][place.part].offsets[place.number],
            tensor);
}

double Exchange::weight() const {
  return torch::from_blob(part_.data() + own(fragment_).weight * size_of(dtype_of(options_.type)), {1},
                          torch::dtype(options_.type))
      .item<double>();
}

void Exchange::begin(std::size_t fragment, double weight) {
  fragment_ = fragment;
  steps_ = weight > 0;
  const std::int64_t size = size_of(dtype_of(options_.type));
  std::memset(part_.data(), 0, static_cast<std::size_t>(own(fragment).elements * size));
  torch::from_blob(part_.data() + own(fragment).weight * size, {1}, torch::dtype(options_.type))
      .fill_(weight);
}

void Exchange::resume(std::size_t fragment, double weight) {
  wait();
  begin(fragment, weight);
}

// [Note: exchanges] What follows upon each other is one chain on the thread of the group, also what is
// computed in between: a second round of encoding, and the decoding. So the program computes meanwhile, and
// finds the mean.
std::vector<std::function<Request()>> Exchange::requests() {
  std::vector<std::function<Request()>> all;
  buckets::EncodedBucket* const bucket = encoded_[fragment_].get();
  if (bucket == nullptr) {
    for (const Collective half : {Collective::reduce_scatter, Collective::all_gather})
      all.emplace_back([this, half] {
        return Request{.collective = half, .view = view(), .reduction = Reduction::average};
      });
    return all;
  }
  const auto add = [&](Collective collective, std::uint8_t part) {
    all.emplace_back([bucket, collective, part] { return bucket->request(collective, part); });
  };
  const auto add_halves = [&](std::uint8_t part) {
    add(Collective::reduce_scatter, part);
    add(Collective::all_gather, part);
  };
  std::uint8_t dense = 1;
  bucket->encode(0);
  if (options_.compression->gathers()) {
    add(Collective::all_gather, 0);
  } else if (options_.compression->scheme == Scheme::low_rank) {
    dense = 2;
    add(Collective::all_reduce, 0);
    all.emplace_back([bucket] {
      bucket->encode(1);
      return bucket->request(Collective::reduce_scatter, 1);
    });
    add(Collective::all_gather, 1);
  } else {
    add_halves(0);
  }
  add_halves(dense);
  return all;
}

void Exchange::start(std::int64_t step) {
  wait();
  step_ = step;
  gather_error_ = nullptr;
  chain_ = {.requests = requests()};
  issue();
}

void Exchange::issue() {
  const auto next = [this]() -> std::optional<Request> {
    if (chain_.next < chain_.requests.size()) {
      Request request = chain_.requests[chain_.next++]();
      sent_bytes_ += buckets::bytes_sent(request, options_.between.size());
      return request;
    }
    // What feedback keeps of an exchange that no replica has steps for is kept for the next.
    if (encoded_[fragment_] != nullptr)
      encoded_[fragment_]->decode(steps_ || !options_.compression->feedback);
    return std::nullopt;
  };
  const Request first = *next();
  pending_ = options_.between.issue(first, next, [this](const CollectiveResult& result) {
    if (!result.error) gather();
  });
}

// Parts of ranks go to the others of the site, on the thread of the group between sites.
void Exchange::gather() noexcept {
  if (!options_.inside) return;
  try {
    const std::int64_t size = size_of(dtype_of(options_.type)), each = stride(fragment_);
    std::memcpy(whole_.data() + static_cast<std::int64_t>(rank_inside_) * each * size, part_.data(),
                static_cast<std::size_t>(own(fragment_).elements * size));
    const Request request{
        .collective = Collective::all_gather,
        .view = {
            .buffer = whole_, .count = each * options_.inside->size(), .dtype = dtype_of(options_.type)}};
    sent_bytes_ += buckets::bytes_sent(request, options_.inside->size());
    gathering_ = options_.inside->issue(request);
  } catch (...) {
    gather_error_ = std::current_exception();
  }
}

void Exchange::wait() {
  if (!pending_) return;
  const double begin = now_seconds();
  const std::optional<Pending> pending = std::exchange(pending_, std::nullopt);
  const Timing timing = pending->wait();
  if (gather_error_) std::rethrow_exception(gather_error_);
  if (gathering_) std::exchange(gathering_, std::nullopt)->wait();
  const Run run{.fragment = fragment_,
                .step = step_,
                .begin_seconds = seconds_of(timing.begin),
                .end_seconds = seconds_of(timing.end),
                .asked_seconds = begin,
                .done_seconds = now_seconds()};
  waited_seconds_ += run.done_seconds - run.asked_seconds;
  communication_seconds_ += run.end_seconds - run.begin_seconds;
  if (records_) runs_.push_back(run);
}

std::int64_t Exchange::memory_bytes() const {
  std::int64_t bytes = part_.bytes() + whole_.bytes();
  for (const auto& bucket : encoded_)
    if (bucket) bytes += bucket->bytes();
  return bytes;
}

std::optional<buckets::CompressionState> Exchange::memory(std::size_t tensor) {
  const Place& place = places_[tensor];
  const Layout& layout = own(place.fragment);
  if (place.part != rank_inside_ || place.number >= layout.encoded) return std::nullopt;
  return encoded_[place.fragment]->state(place.number);
}

void Exchange::set_memory(std::size_t tensor, const buckets::CompressionState& state) {
  if (memory(tensor)) encoded_[places_[tensor].fragment]->set_state(places_[tensor].number, state);
}

std::int64_t Exchange::encoded(std::size_t fragment) const {
  return encoded_[fragment] == nullptr ? 0 : encoded_[fragment]->step();
}
void Exchange::set_encoded(std::size_t fragment, std::int64_t count) {
  if (encoded_[fragment] != nullptr) encoded_[fragment]->set_step(count);
}

}  // namespace dear::systems::rounds
