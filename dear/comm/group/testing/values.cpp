#include "dear/comm/group/testing/values.h"

#include <cmath>

#include "dear/base/vocabulary/half.h"

namespace dear::comm::testing {
namespace {

template <typename T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void write_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace

double load(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32:
      return read_as<float>(at);
    case DType::f64:
      return read_as<double>(at);
    case DType::f16:
      return widen(read_as<Half>(at));
    case DType::bf16:
      return widen(read_as<BFloat16>(at));
    case DType::i32:
      return read_as<std::int32_t>(at);
    case DType::i64:
      return static_cast<double>(read_as<std::int64_t>(at));
    case DType::u8:
      return read_as<std::uint8_t>(at);
  }
  return 0;
}

void store(DType dtype, std::byte* at, double value) {
  switch (dtype) {
    case DType::f32:
      return write_as(at, static_cast<float>(value));
    case DType::f64:
      return write_as(at, value);
    case DType::f16:
      return write_as(at, narrow_to_half(static_cast<float>(value)));
    case DType::bf16:
      return write_as(at, narrow_to_bfloat16(static_cast<float>(value)));
    case DType::i32:
      return write_as(at, static_cast<std::int32_t>(value));
    case DType::i64:
      return write_as(at, static_cast<std::int64_t>(value));
    case DType::u8:
      return write_as(at, static_cast<std::uint8_t>(value));
  }
}

double expected(DType dtype, Reduction reduction, int ranks, std::int64_t i) {
  double sum = 0;
  double largest = value_of(0, i);
  double smallest = largest;
  std::int64_t bits = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += value_of(rank, i);
    largest = std::max(largest, value_of(rank, i));
    smallest = std::min(smallest, value_of(rank, i));
    bits |= static_cast<std::int64_t>(value_of(rank, i));
  }
  switch (reduction) {
    case Reduction::sum:
      return sum;
    case Reduction::max:
      return largest;
    case Reduction::min:
      return smallest;
    case Reduction::bitwise_or:
      return static_cast<double>(bits);
    case Reduction::average:
      break;
  }
  const auto narrow_average = static_cast<float>(sum) / static_cast<float>(ranks);
  switch (dtype) {
    case DType::f64:
      return sum / ranks;
    case DType::f32:
      return narrow_average;
    case DType::f16:
      return widen(narrow_to_half(narrow_average));
    case DType::bf16:
      return widen(narrow_to_bfloat16(narrow_average));
    default:
      return std::trunc(sum / ranks);
  }
}

void fill(const View& view, int rank) {
  const std::int64_t element = size_of(view.dtype);
  std::byte* const data = view.buffer.data() + view.offset_bytes;
  const std::int64_t period = std::min(kPeriod, view.count);
  for (std::int64_t i = 0; i < period; ++i) store(view.dtype, data + i * element, value_of(rank, i));
  for (std::int64_t i = period; i < view.count; i += period) {
    std::memcpy(data + i * element, data,
                static_cast<std::size_t>(std::min(period, view.count - i) * element));
  }
}

}  // namespace dear::comm::testing
