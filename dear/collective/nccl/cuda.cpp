#include "dear/collective/nccl/cuda.h"

#include <cstring>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/collective/nccl/arrangement.h"

namespace dear::collective {
namespace {

NcclFault fault_of(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return NcclFault::cuda;
    case ncclSystemError:
      return NcclFault::system;
    case ncclInternalError:
      return NcclFault::internal;
    case ncclInvalidArgument:
      return NcclFault::argument;
    case ncclInvalidUsage:
      return NcclFault::usage;
    case ncclRemoteError:
      return NcclFault::remote;
    default:
      return NcclFault::other;
  }
}

}  // namespace

void check_cuda(int rank, const std::string& what, cudaError_t result) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // else a later call reports it again
  throw TransportError(fmt::format("rank {} cannot {}: CUDA says \"{}\" ({})", rank, what,
                                   cudaGetErrorString(result), remedy_for(NcclFault::cuda)));
}

void throw_nccl(int rank, const std::string& what, ncclResult_t result, ncclComm_t communicator) {
  const char* detail = ncclGetLastError(communicator);
  throw TransportError(fmt::format(
      "rank {} cannot {}: NCCL says \"{}\"{} ({})", rank, what, ncclGetErrorString(result),
      detail != nullptr && *detail != '\0' ? fmt::format(", {}", detail) : "", remedy_for(fault_of(result))));
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u8:
      break;
  }
  return ncclUint8;
}

ncclRedOp_t nccl_operation(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return ncclSum;
    case Reduction::average:
      return ncclAvg;
    case Reduction::max:
      return ncclMax;
    case Reduction::min:
      break;
  }
  return ncclMin;
}

NcclRegion::NcclRegion(int rank, int device, NcclOptions::Memory memory, std::int64_t size)
    : device_(device), memory_(memory) {
  bytes = size;
  if (size == 0) return;
  const auto count = static_cast<std::size_t>(size);
  const std::string what = fmt::format("allocate {} on CUDA device {}", format_bytes(size), device);
  void* taken = nullptr;
  check_cuda(rank, "use its GPU", cudaSetDevice(device));
  if (memory == NcclOptions::Memory::device) {
    check_cuda(rank, what, cudaMalloc(&taken, count));
  } else {
    check_cuda(rank, what, cudaHostAlloc(&taken, count, cudaHostAllocPortable | cudaHostAllocMapped));
  }
  data = static_cast<std::byte*>(taken);
  if (memory == NcclOptions::Memory::device) {
    check_cuda(rank, what, cudaMemset(taken, 0, count));
    check_cuda(rank, what, cudaDeviceSynchronize());
  } else {
    std::memset(taken, 0, count);
  }
}

NcclRegion::~NcclRegion() {
  if (data == nullptr) return;
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(memory_ == NcclOptions::Memory::device ? cudaFree(data) : cudaFreeHost(data));
}

}  // namespace dear::collective
