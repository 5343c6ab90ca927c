#pragma once

#include <cstdint>
#include <string_view>

namespace dear {

// The collectives, as MPI and NCCL define them. A reduce_scatter leaves rank r with its shard of the
// reduction, an all_to_all gives it block r of every rank's vector;
// in an all_to_all_v, blocks have sizes of their own.
enum class Collective : std::uint8_t {
  barrier,
  reduce_scatter,
  all_gather,
  all_reduce,
  broadcast,
  all_to_all,
  reduce,  // to the root
  all_to_all_v
};

// "reduce-scatter"; "unknown collective" for a number that is none.
std::string_view name_of(Collective collective);

// Whether contributions of several ranks become one.
constexpr bool reduces(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_reduce ||
         collective == Collective::reduce;
}

// Whether what ranks get has a place of its own, beside what they give.
constexpr bool has_output(Collective collective) {
  return collective == Collective::all_to_all || collective == Collective::all_to_all_v;
}

}  // namespace dear
