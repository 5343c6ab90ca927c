#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <string>

#include "dear/collective/buffer.h"
#include "dear/collective/nccl/nccl.h"

// CUDA and NCCL with errors of ours. Part of the module.
namespace dear::collective {

// TransportError: "rank 1 cannot WHAT: ...".
void check_cuda(int rank, const std::string& what, cudaError_t result);
[[noreturn]] void throw_nccl(int rank, const std::string& what, ncclResult_t result, ncclComm_t communicator);

ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_operation(Reduction reduction);

struct NcclRegion : Buffer::Region {
  NcclRegion(int rank, int device, NcclOptions::Memory memory, std::int64_t bytes);
  NcclRegion(const NcclRegion&) = delete;
  NcclRegion& operator=(const NcclRegion&) = delete;
  ~NcclRegion() override;

 private:
  int device_;
  NcclOptions::Memory memory_;
};

}  // namespace dear::collective
