#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/comm/buckets/encoded_bucket.h"
#include "dear/comm/group/group.h"
#include "dear/systems/rounds/fragments.h"

// Means over replicas, which travel while the program computes.
namespace dear::systems::rounds {

// A tensor that travels, as each rank knows it.
struct Travelling {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::int64_t elements = 0;
};

// The mean of the tensors of one fragment over the replicas that have something to give, one fragment at a
// time. A replica is a rank, or the ranks of a site, each of which exchanges its part of the fragment with
// the ranks of its number at the other sites, by reduce-scatter and all-gather, or encoded; then the ranks of
// the site gather the parts. One thread calls, and every rank makes the same calls in the same order. Errors
// are those of the groups, which end with the first one.
//
// Memory: of the largest fragment (of a part of it, and the whole, where sites have several ranks), payloads
// and residuals of a compression.
class Exchange {
 public:
  struct Options {
    at::ScalarType type = at::kFloat;  // of what travels: float or double
    std::optional<Compression> compression{};
    Group between;                // this rank, and those of its number at the other sites
    std::optional<Group> inside;  // the ranks of the site, where there are several: for gathers alone
  };
  // Allocates on the groups: all ranks together.
  Exchange(std::vector<Travelling> tensors, std::vector<Fragment> fragments, Options options);
  ~Exchange();  // waits for what is under way
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Begins to fill a fragment: all values are zero, the weight is 1 or 0. The tensors that this rank sends
  // are given by mine(); outgoing() is where each is written.
  void begin(std::size_t fragment, double weight);
  [[nodiscard]] const std::vector<std::size_t>& mine(std::size_t fragment) const;
  [[nodiscard]] torch::Tensor outgoing(std::size_t tensor) const;
  // Starts the exchange of the fragment that was filled, after this replica's step of that number, and
  // returns.
  void start(std::int64_t step);
  // Returns when it has ended on this rank; at once after that.
  void wait();
  // After wait(), until the next begin(): the mean over all replicas of values times weights; the mean
  // weight.
  [[nodiscard]] torch::Tensor mean(std::size_t tensor) const;
  [[nodiscard]] double weight() const;
  // Puts an exchange that ended elsewhere in the place of one that ended here: mean() is written then.
  void resume(std::size_t fragment, double weight);

  // Compression remembers this of a tensor that this rank sends; nothing where the tensor travels dense.
  [[nodiscard]] std::optional<buckets::CompressionState> memory(std::size_t tensor);
  void set_memory(std::size_t tensor, const buckets::CompressionState& state);
  // Exchanges of a fragment whose encoding has counted.
  [[nodiscard]] std::int64_t encoded(std::size_t fragment) const;
  void set_encoded(std::size_t fragment, std::int64_t count);

  [[nodiscard]] std::int64_t memory_bytes() const;
  // By this rank, where collectives send no more than they must; from any thread.
  [[nodiscard]] double sent_bytes() const { return sent_bytes_; }
  // In which collectives between replicas ran, all replicas having come to them; in which wait() waited.
  [[nodiscard]] double communication_seconds() const { return communication_seconds_; }
  [[nodiscard]] double waited_seconds() const { return waited_seconds_; }

  // An exchange that ended, on one clock for all ranks.
  struct Run {
    std::size_t fragment = 0;
    std::int64_t step = 0;                       // that of start()
    double begin_seconds = 0, end_seconds = 0;   // all replicas having come to it
    double asked_seconds = 0, done_seconds = 0;  // in which wait() waited
  };
  // Keeps all of them from now on.
  void record() { records_ = true; }
  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }

 private:
  // Where the tensors of one part of a fragment lie, in elements: encoded ones first, the weight last.
  struct Layout {
    std::vector<std::size_t> tensors;
    std::vector<std::int64_t> offsets;  // by tensor of these
    std::size_t encoded = 0;            // the first of these
    std::int64_t encoded_elements = 0, weight = 0, elements = 0;
  };
  struct Place {
    std::size_t fragment = 0, part = 0, number = 0;  // of the tensor in its layout
  };
  [[nodiscard]] Layout lay_out(const std::vector<std::size_t>& tensors) const;
  [[nodiscard]] const Layout& own(std::size_t fragment) const;
  [[nodiscard]] torch::Tensor at(const Buffer& buffer, std::int64_t offset, std::size_t tensor) const;
  [[nodiscard]] std::int64_t stride(std::size_t fragment) const;  // of parts in the gathered fragment
  [[nodiscard]] View view() const;                                // of the own part of the current fragment
  [[nodiscard]] std::vector<std::function<Request()>> requests();
  void issue();
  void gather() noexcept;

  std::vector<Travelling> tensors_;
  Options options_;
  std::size_t rank_inside_ = 0;
  std::vector<std::vector<Layout>> layouts_;  // by fragment and part
  std::vector<Place> places_;                 // by tensor
  Buffer part_, whole_;
  std::vector<std::unique_ptr<buckets::EncodedBucket>> encoded_;  // by fragment; null where all is dense

  std::size_t fragment_ = 0;  // the current one
  bool steps_ = false;        // whether this replica has some to give
  struct Chain {
    std::vector<std::function<Request()>> requests;
    std::size_t next = 0;
  };
  Chain chain_;
  std::optional<Pending> pending_, gathering_;
  std::exception_ptr gather_error_;
  std::atomic<double> sent_bytes_{0};
  double communication_seconds_ = 0, waited_seconds_ = 0;
  std::int64_t step_ = 0;
  bool records_ = false;
  std::vector<Run> runs_;
};

}  // namespace dear::systems::rounds
