#pragma once

#include <limits>
#include <vector>

namespace dear {

// The speeds of one rank, in bytes a second of parameters; each above 0. A link takes both directions at a
// time.
struct RankSpeed {
  double send = std::numeric_limits<double>::infinity();
  double receive = std::numeric_limits<double>::infinity();
  double update = std::numeric_limits<double>::infinity();  // by the optimiser
};

enum class ShardUse {
  scattered,   // policy dear: reduce-scatters, then updates of shards, then all-gathers
  all_reduced  // policies wfbp and serial: a shard is added up and sent on at once, so both directions work
               // together
};

struct ShardPlan {
  std::vector<double> weights{};  // for DataParallelOptions::shards; their sum is 1
  double seconds = 0;             // of a byte of the model, on links that nothing hides
  double equal_seconds = 0;       // of equal shards
};

// The shards that end soonest where rank r, of P with the shard s_r, sends 1 - s_r of a model and receives
// (P - 1) s_r to reduce it, the other way round to gather it, and updates s_r. So an all-reduce carries
// 1 + (P - 2) s_r each way: a slow link wants a small shard there. But a rank that only reduces sends less
// with a larger shard, so that reduce-scatters and all-gathers, one after the other, want equal shards unless
// a link has one slow direction or an update is slow. With two ranks links carry the same whatever the shards
// are.
//
// ConfigError for no rank, and for speeds that are not above 0.
[[nodiscard]] ShardPlan plan_shards(const std::vector<RankSpeed>& ranks, ShardUse use = ShardUse::scattered);
// The seconds of a byte with these weights, of any sum.
[[nodiscard]] double seconds_of_shards(const std::vector<RankSpeed>& ranks,
                                       const std::vector<double>& weights, ShardUse use);

}  // namespace dear
