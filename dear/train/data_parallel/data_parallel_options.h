#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dear/base/vocabulary/say.h"
#include "dear/predict/balance/batch_shares.h"
#include "dear/predict/balance/measured_shards.h"
#include "dear/predict/balance/slow_ranks.h"
#include "dear/schedule/codec/compression.h"
#include "dear/train/data_parallel/bucket_choice.h"
#include "dear/train/model/buffer_sync.h"
#include "dear/train/optim/optimizer.h"

namespace dear {

class StreamCollectives;  // train/streams/stream_collectives.h

// GradientCheck says what is done where a rank's gradients are NaN or infinite, before they are reduced and
// spread to all.
enum class GradientCheck : std::uint8_t {
  none,   // nothing is looked at
  error,  // the step fails on every rank: an error names rank, tensor, layer, elements and iteration
  skip,   // the step is given up on every rank, as by discard_step(); StepMetrics::nonfinite names them
};

struct DataParallelOptions {
  // One of training_policies(), see schedule/policies/policy.h; with_chosen_policy() as `buckets` replaces
  // it.
  std::string policy = "dear";
  // How tensors are grouped into buckets: given(Fusion), planned() or tuned(TuningOptions);
  // with_chosen_policy() chooses the policy as well.
  BucketChoice buckets = tuned();
  BufferSync buffers = BufferSync::at_synchronize;
  // All ranks share one copy of the parameters in memory, so their all-gather is a barrier: for ranks of one
  // host, on shared memory, under policy dear or dear-eager (else ConfigError). Gradients and everything else
  // stay each rank's own. A program may do all that it may do without, save writing into parameters in place,
  // which is refused at the next step(): replace their values with set_data(), the same on every rank (as
  // torch::load() does). Writes through data() or a raw pointer cannot be seen, and must not be. Afterwards,
  // when the DataParallel is destroyed, each rank has its own parameters again, where memory suffices.
  bool one_copy = false;
  // Each rank keeps fp32 copies of what it updates of parameters in fp16 and bf16; the optimiser updates
  // those, and its state is fp32, too. A model of n such parameters with two vectors of state (AdamW) takes 4
  // n bytes on each rank, for parameters and gradients, and 12 n bytes of all ranks together where updates
  // are of shards. The copies are one more vector of optimizer_state(), "master_parameter". What the program
  // writes into a parameter becomes its copy.
  bool fp32_masters = false;
  // Parameters in bf16 are updated in fp32, with fp32 state, and rounded stochastically: up or down, with the
  // right mean, by the seed of rank 0's default generator (torch::manual_seed). Without fp32_masters the fp32
  // copies are made for each update, so that they take no memory in between. With them, what the program
  // writes within the distance of two numbers of bf16 from the copy does not become the copy. A training that
  // is continued from saved state draws its random bits anew.
  bool stochastic_rounding = false;
  // `updates` says who updates the parameters. The program's optimiser itself makes the same updates on every
  // rank, in step(), with the whole mean gradients, on parameters that stay where they are: always right, and
  // what PyTorch's DDP does. Each rank keeps all of its state then, and gradients are reduced under the
  // backward pass, by policy wfbp whichever was asked for, so that they are whole when it ends. `automatic`
  // chooses that for a class of optimisers whose update is not known to be elementwise, and for parameters
  // whose memory something else holds, which rank 0 says.
  Updates updates = Updates::automatic;
  // Optimisers that must see whole tensors (dear/train/optim/class_access.h) train on shards with automatic
  // alone, or whole. Their tensors lie whole in shards, balanced by the cost of their updates, with padding
  // where that does not come out even (DataParallelStatistics::padding_bytes). ConfigError under dear-eager.
  Ownership ownership = Ownership::cut;
  // The cost of an update of such a parameter, above 0 and the same on every rank; without it m n min(m, n)
  // of a matrix of m rows and n columns, and the elements of a vector.
  std::function<double(const std::string& name, const torch::Tensor& parameter)> update_cost{};
  // How gradients travel, where they travel compressed. Every rank then updates whole buckets, and a
  // parameter without a gradient on any rank counts as one whose gradient is zero. Of fp32 tensors; others
  // travel dense. ConfigError, on every rank, under a policy that cannot (dear-eager), with one_copy, and for
  // what validate() refuses.
  std::optional<Compression> compression{};
  // One pass over each bucket, when its last gradient has come and its hooks have run. `skip` costs what
  // clipping costs, too: the step waits for the reductions, and ranks tell each other; it is refused under
  // dear-eager, and with compression. A loss whose scale is found by trying overflows now and then: it wants
  // `skip` or none.
  GradientCheck check_gradients = GradientCheck::none;
  // Fails the step, on every rank, when an update has made a parameter NaN or infinite: an error names rank,
  // tensor, layer, elements and iteration. One pass over what this rank updates.
  bool check_parameters = false;
  // Every so many steps ranks compare digests of their parameters, which are alike while nothing is broken; 0
  // for never. The step waits until parameters are whole, reads them once, and sends 16 bytes a tensor under
  // the next one, which fails, on every rank, with a MismatchError that names the first tensor that differs
  // and the rank in the minority. ConfigError in a Join.
  int verify_every = 0;
  // Steps that are measured, as with record_trace, before buckets are planned or tuned, or the order of a
  // policy that goes by a profile (dear-eager) is made: afterwards rank 0's times and network make them, on
  // all ranks.
  int profile_steps = 10;
  // Gradients that came sparse in the first step, as those of an embedding of libtorch may, are reduced as
  // the rows that are not zero where that is less to send; false: always as dense ones. The results are the
  // same bits, and those of a dense gradient: every row has its momentum, weight decay and moments updated.
  bool sparse_rows = true;
  // By rank: how much of each bucket it reduces and updates, in proportion to these weights; empty for equal
  // shards. Each rank has at least a cache line. For links or updates that are not equally quick: see
  // predict/balance/shard_weights.h. Parameters have the bits of equal shards where sums go in the order of
  // ranks: on shared memory, over messages below 1 MiB and wherever `reproducible` is set. Where every rank
  // updates whole buckets (policies serial and wfbp) they are the parts that a rank adds up. ConfigError, on
  // every rank, for weights that are negative, not finite, all 0 or not one for each rank; where the group
  // takes equal shards only (Group::takes_shares()); on a device with streams, and with whole tensors.
  std::vector<double> shards{};
  // Shards begin with `shards` and follow the measured speeds of links and updates: ranks measure them in
  // messages of their own once the first steps are over, and again where the time of a step drifts. Rank 0
  // says how shards have changed. Results, and ConfigErrors, are those of `shards` and of MeasuredShards.
  std::optional<ShardMeasuring> measured_shards{};
  // Ranks share each batch in proportion to their speeds (DataParallel::batch_shares()), and the mean stays
  // that over all samples. Every step then says its samples(), whatever the shares are: what came counts.
  // ConfigError, on every rank, for what BatchShares refuses, and for a model on a device with streams.
  std::optional<Balance> balance{};
  // Rank 0 names a rank that computes a fifth longer than the median rank for three windows of half a minute,
  // with its host and the part of the step that takes longer. Not for a model on a device with streams.
  std::optional<SlowRankLimits> slow_ranks = SlowRankLimits{};
  bool record_trace = false;  // spans of layers, waits, updates and collectives; costs about 2 us an operator
  // Runs a wait that an operator or a gradient's hook makes, on its thread: a binding to another language
  // lets go of that language's lock around it. Without it the wait is called as it is.
  std::function<void(const std::function<void()>& wait)> around_wait{};
  // Is told, on rank 0, which rank is slow, why the program's optimiser updates the parameters, which policy
  // the first steps chose, and once of each parameter whose gradient came sparse in the first step how it
  // travels; without it the sentence goes to standard error. From a thread of the group's.
  Say say{};
  // For a model on a device with streams, such as a GPU: its collectives
  // (train/streams/stream_collectives.h), over the ranks of the group, which tell each other the rest in
  // memory of the hosts. Collectives and updates are enqueued on a stream of the device, and the host waits
  // for nothing, but for gradients that travel encoded or as rows: those go by way of its memory, over the
  // group. docs/internals/training.md says what is not there, and is refused. Buckets are those that
  // `buckets` begins with, until regroup(). A parameter without a gradient on any rank counts as one whose
  // gradient is zero.
  std::shared_ptr<StreamCollectives> streams{};
  // Is given what goes wrong in a gradient's hook before autograd is, and may throw it as an exception of
  // that language.
  std::function<void(const std::exception_ptr& error)> translate_error{};
};

// The norm that DataParallel::clip_gradients_by_norm() takes, and whether it must be finite.
struct NormOptions {
  double type = 2.0;  // of the p-norm over all elements of all gradients; infinity: the largest magnitude
  bool error_if_nonfinite = false;
};

// For one step() of DataParallel, where the loss was multiplied before backward().
struct StepOptions {
  double loss_scale = 1.0;  // of the loss; gradients are divided by it
  bool skip_nonfinite =
      true;  // give the step up, on every rank, where a gradient of any rank is NaN or infinite
};

// Since construction, on this rank.
struct DataParallelStatistics {
  std::int64_t iterations = 0;  // steps taken
  double exposed_seconds =
      0;                   // exposed communication: the program waited, in an operator or in a call of ours
  std::int64_t waits = 0;  // how often it did
  std::int64_t parameter_bytes = 0;  // of all buckets; gradients take the same again
  std::size_t buckets = 0;
  double communication_seconds = 0;  // in which a collective of the schedule ran, all ranks having come to it
  double bytes = 0;                  // sent by this rank, where collectives send no more than they must
  std::int64_t padding_bytes = 0;    // of parameter_bytes, what is no parameter's
  // Reductions of gradients that came sparse: as rows, and dense because rows would have been more to send.
  std::int64_t sparse_as_rows = 0, sparse_made_dense = 0;
};

}  // namespace dear
