#include "dear/train/checkpoint/stored.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::checkpoint {
namespace {

constexpr std::array<std::pair<at::ScalarType, const char*>, 10> kStorages{
    {{at::kFloat, "FloatStorage"},
     {at::kDouble, "DoubleStorage"},
     {at::kHalf, "HalfStorage"},
     {at::kBFloat16, "BFloat16Storage"},
     {at::kInt, "IntStorage"},
     {at::kLong, "LongStorage"},
     {at::kShort, "ShortStorage"},
     {at::kChar, "CharStorage"},
     {at::kByte, "ByteStorage"},
     {at::kBool, "BoolStorage"}}};

}  // namespace

archive::TensorRecord describe(const torch::Tensor& tensor, const std::string& key) {
  for (const auto& [type, storage] : kStorages)
    if (type == tensor.scalar_type())
      return {.key = key,
              .storage = storage,
              .storage_elements = tensor.numel(),
              .offset = 0,
              .sizes = tensor.sizes().vec(),
              .strides = tensor.strides().vec()};
  throw ConfigError(std::string("a tensor of type ") + c10::toString(tensor.scalar_type()) +
                    " cannot be saved in a checkpoint: convert it");
}

namespace {

[[noreturn]] void refuse_record(const archive::TensorRecord& stored, const std::string& file,
                                const std::string& why) {
  constexpr std::size_t kLongest = 200;  // a name in a damaged file may be anything
  throw ConfigError("cannot read '" + file + "' as a checkpoint: its record 'data/" +
                    printable(shortened(stored.key, kLongest)) + "' " + printable(shortened(why, kLongest)));
}

}  // namespace

at::ScalarType type_of(const archive::TensorRecord& stored, const std::string& file) {
  for (const auto& [type, storage] : kStorages)
    if (stored.storage == storage) return type;
  refuse_record(stored, file, "is of a type that is not known, " + stored.storage);
}

std::int64_t element_bytes(const archive::TensorRecord& stored, const std::string& file) {
  return static_cast<std::int64_t>(c10::elementSize(type_of(stored, file)));
}

std::int64_t require_record(const archive::TensorRecord& stored, const archive::ZipReader& reader) {
  const auto refuse = [&](const std::string& why) { refuse_record(stored, reader.path(), why); };
  const auto elements = static_cast<std::int64_t>(reader.extent_of("data/" + stored.key).size) /
                        element_bytes(stored, reader.path());
  const bool empty = std::find(stored.sizes.begin(), stored.sizes.end(), 0) != stored.sizes.end();
  double count = 1;
  for (const std::int64_t size : stored.sizes) count *= static_cast<double>(size);
  if (count > 0x1p50) refuse("describes a tensor beyond all memory");
  std::int64_t last = stored.offset;  // the last element that the tensor reaches
  if (!empty && last >= elements) refuse("is too small for its tensor");
  for (std::size_t i = 0; i < stored.sizes.size() && !empty; ++i) {
    const std::int64_t steps = stored.sizes[i] - 1;
    if (stored.strides[i] > 0 && steps > (elements - 1 - last) / stored.strides[i])
      refuse("is too small for its tensor");
    last += steps * stored.strides[i];
  }
  return empty ? 0 : last - stored.offset + 1;
}

torch::Tensor tensor_of(const archive::TensorRecord& stored, const archive::ZipReader& reader) {
  const std::int64_t reached = require_record(stored, reader);
  const torch::Tensor memory = torch::empty({reached}, torch::dtype(type_of(stored, reader.path())));
  const auto begin = static_cast<std::size_t>(stored.offset * element_bytes(stored, reader.path()));
  if (reached > 0)
    reader.read_part("data/" + stored.key, begin,
                     {static_cast<std::byte*>(memory.mutable_data_ptr()), memory.nbytes()});
  return memory.as_strided(stored.sizes, stored.strides);
}

std::span<const std::byte> bytes_of(const torch::Tensor& dense) {
  return {static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()};
}

}  // namespace dear::checkpoint
