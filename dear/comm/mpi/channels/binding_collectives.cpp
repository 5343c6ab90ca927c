#include "dear/comm/mpi/channels/binding_collectives.h"

#include <vector>

#include <climits>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/mpi/channels/mpi.h"

namespace dear::channels {
namespace {

MPI_Comm lane = MPI_COMM_NULL;
int ranks = 1;
std::vector<int> counts;
MPI_Request pending = MPI_REQUEST_NULL;

struct Type {
  MPI_Datatype type = MPI_BYTE;
  int per_element = 1;  // of `type`
  bool can_be_reduced = true;
  bool has_bits = false;  // that can be combined
};

Type type_of(std::int32_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::f32:
      return {.type = MPI_FLOAT};
    case DType::f64:
      return {.type = MPI_DOUBLE};
    case DType::i32:
      return {.type = MPI_INT32_T, .has_bits = true};
    case DType::i64:
      return {.type = MPI_INT64_T, .has_bits = true};
    case DType::u8:
      return {.type = MPI_UINT8_T, .has_bits = true};
    case DType::f16:
    case DType::bf16:
      break;
  }
  return {.type = MPI_BYTE, .per_element = 2, .can_be_reduced = false};
}

MPI_Op operator_of(std::int32_t reduction) {
  switch (static_cast<Reduction>(reduction)) {
    case Reduction::max:
      return MPI_MAX;
    case Reduction::min:
      return MPI_MIN;
    case Reduction::bitwise_or:
      return MPI_BOR;
    case Reduction::sum:
    case Reduction::average:
      break;
  }
  return MPI_SUM;
}

// Both forms of a collective, with and without a request.
int issue(const MpiCall& call, MPI_Request* request) {
  const Type type = type_of(call.dtype);
  const int all = static_cast<int>(call.count) * type.per_element;
  const int block = all / ranks;
  const MPI_Op op = operator_of(call.reduction);
  auto* const data = static_cast<std::byte*>(call.data);
  void* const data_or_output = call.output != nullptr ? call.output : call.data;
  switch (static_cast<Collective>(call.collective)) {
    case Collective::barrier:
      return request != nullptr ? MPI_Ibarrier(lane, request) : MPI_Barrier(lane);
    case Collective::reduce_scatter: {
      // With counts: Open MPI's form for equal blocks reduces all of it to one rank first.
      counts.assign(static_cast<std::size_t>(ranks), block);
      return request != nullptr
                 ? MPI_Ireduce_scatter(data, call.output, counts.data(), type.type, op, lane, request)
                 : MPI_Reduce_scatter(data, call.output, counts.data(), type.type, op, lane);
    }
    case Collective::all_gather: {
      const bool in_place = call.output == nullptr;
      const void* const own = in_place ? MPI_IN_PLACE : call.output;
      return request != nullptr ? MPI_Iallgather(own, block, type.type, data, block, type.type, lane, request)
                                : MPI_Allgather(own, block, type.type, data, block, type.type, lane);
    }
    case Collective::all_reduce:
      return request != nullptr ? MPI_Iallreduce(MPI_IN_PLACE, data, all, type.type, op, lane, request)
                                : MPI_Allreduce(MPI_IN_PLACE, data, all, type.type, op, lane);
    case Collective::broadcast:
      return request != nullptr ? MPI_Ibcast(data, all, type.type, call.root, lane, request)
                                : MPI_Bcast(data, all, type.type, call.root, lane);
    case Collective::all_to_all:
      return request != nullptr
                 ? MPI_Ialltoall(data, block, type.type, data_or_output, block, type.type, lane, request)
                 : MPI_Alltoall(data, block, type.type, data_or_output, block, type.type, lane);
    case Collective::reduce:
    case Collective::all_to_all_v:
      break;
  }
  return MPI_ERR_OP;
}

}  // namespace

void use_for_collectives(MPI_Comm communicator, int size) {
  lane = communicator;
  ranks = size;
}

int has_collective(const MpiCall* call) {
  const auto collective = static_cast<Collective>(call->collective);
  if (collective == Collective::reduce || collective == Collective::all_to_all_v) return 0;
  const Type type = type_of(call->dtype);
  if (static_cast<std::int64_t>(call->count) * type.per_element > INT_MAX) {
    return 0;
  }
  if (!reduces(static_cast<Collective>(call->collective))) {
    return 1;
  }
  const auto reduction = static_cast<Reduction>(call->reduction);
  const bool possible = reduction == Reduction::bitwise_or ? type.has_bits : reduction != Reduction::average;
  return type.can_be_reduced && possible ? 1 : 0;
}

int begin_collective(const MpiCall* call) { return issue(*call, &pending); }
int test_collective(int* done) { return MPI_Test(&pending, done, MPI_STATUS_IGNORE); }
int perform_collective(const MpiCall* call) { return issue(*call, nullptr); }

}  // namespace dear::channels
