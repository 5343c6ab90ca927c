#pragma once

#include <string>

#include <torch/types.h>

#include "dear/base/archive/value.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/train/engine/sharing.h"

// Tensors as records of a file.
namespace dear::checkpoint {

// Among the values of a parameter in the optimiser's state: the bytes of what is neither a vector nor a
// number there, which only the optimiser's class can read.
inline constexpr const char* kOpaque = "opaque";

// What describes the tensor, whose elements are record "data/" and `key`, in the order in which they lie in
// memory.
archive::TensorRecord describe(const torch::Tensor& tensor, const std::string& key);

// ConfigError where it is none that PyTorch has.
at::ScalarType type_of(const archive::TensorRecord& stored, const std::string& file);
std::int64_t element_bytes(const archive::TensorRecord& stored, const std::string& file);
// ConfigError where the record is too small for the tensor. Gives how many elements lie between the first
// that the tensor reaches and the last, both counted.
std::int64_t require_record(const archive::TensorRecord& stored, const archive::ZipReader& reader);
// The tensor, read now. ConfigError as above.
torch::Tensor tensor_of(const archive::TensorRecord& stored, const archive::ZipReader& reader);

// The bytes of a tensor without gaps.
std::span<const std::byte> bytes_of(const torch::Tensor& dense);

}  // namespace dear::checkpoint
