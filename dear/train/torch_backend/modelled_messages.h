#pragma once

#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dear/base/vocabulary/deadline.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::torch_backend {

// Sends and receives of a backend over modelled links, which take time as channels::make_pair_links() says it
// (dear/comm/shaped/pair_links.h): so a message travels while its receiver computes. The real message and a
// stamp of 8 bytes in front of it go through `others`, whose ranks are on one host. A wait with a timeout
// before which nothing can come is a DistBackendError at once. Safe for several threads.
//
// ConfigError unless the cluster has as many devices as there are ranks.
class ModelledMessages {
 public:
  using Work = c10::intrusive_ptr<::c10d::Work>;

  ModelledMessages(c10::intrusive_ptr<::c10d::Backend> others, PairCluster cluster);
  Work send(std::vector<at::Tensor>& tensors, int to, int tag);
  Work recv(std::vector<at::Tensor>& tensors, int from, int tag);
  [[nodiscard]] const PairCluster& cluster() const { return cluster_; }

 private:
  void require_peer(int rank) const;

  const c10::intrusive_ptr<::c10d::Backend> others_;
  const PairCluster cluster_;
  std::mutex mutex_;                 // held while a send is started: links carry them in this order
  std::vector<SteadyTime> free_at_;  // by peer: when the link to it has carried all before
};

}  // namespace dear::torch_backend
