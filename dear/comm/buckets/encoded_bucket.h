#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dear/comm/buckets/bucket_codec.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/codec/feedback.h"

namespace dear::buckets {

// CompressionCounts counts what this rank has sent of a bucket since the bucket was made.
struct CompressionCounts {
  std::int64_t steps = 0;
  double bytes = 0;             // sent by this rank, where collectives send no more than they must
  double dense_bytes = 0;       // what dense gradients would have been
  std::int64_t not_finite = 0;  // steps whose mean came out with NaN or infinity, whatever went in
  CodecCounts codec{};
};

// The bytes that one rank sends for a request, where collectives send no more than they must.
double bytes_sent(const Request& request, int ranks);
// The bytes that one rank sends of a dense bucket in a step, where collectives send no more than they must.
double dense_bytes(std::int64_t bytes, int ranks);
// Returns the sum of both counts, of which the first is of an earlier engine, or of another bucket.
CompressionCounts add(CompressionCounts counts, const CompressionCounts& more);

// CompressionState is the memory of one tensor on this rank, from step to step. Other ranks remember
// something else.
struct CompressionState {
  std::vector<float> residual{};  // with feedback
  std::vector<float> momentum{};  // with momentum before the communication
  std::vector<float> codec{};     // of the codec: factors of a low rank
  friend bool operator==(const CompressionState&, const CompressionState&) = default;
};

// A bucket whose gradients travel encoded: the first tensors of its layout; the others travel dense, as its
// last part, where they lie. Encodes, decodes and makes requests, as the steps of the schedule ask for it,
// one at a time.
class EncodedBucket {
 public:
  struct Flat {
    View parameters, gradients;         // of the whole bucket
    std::int64_t encoded_elements = 0;  // of which so many travel encoded, from the first on
  };
  // Allocates on the group: all ranks together, in the same order.
  EncodedBucket(const Compression& compression, std::vector<EncodedTensor> tensors, Flat flat,
                const Group& group);

  // Codec lane. With `keeps` false the step is given up: what was sent is forgotten.
  void encode(std::uint8_t round);
  void decode(bool keeps = true);
  // Network lane.
  [[nodiscard]] Request request(Collective collective, std::uint8_t part);
  [[nodiscard]] bool may_ask_more(Collective collective, std::uint8_t part) const;
  [[nodiscard]] std::optional<Request> more();  // on the group's thread, when that collective has ended

  // Between steps. `tensor`: index in the order that was given.
  [[nodiscard]] CompressionState state(std::size_t tensor);
  // ConfigError for a state of another size, or that lacks what this compression remembers.
  void set_state(std::size_t tensor, const CompressionState& state);
  [[nodiscard]] std::int64_t step() const { return step_; }  // the next one, from 0
  void set_step(std::int64_t step) { step_ = step; }
  [[nodiscard]] CompressionCounts counts() const;
  [[nodiscard]] std::int64_t bytes() const;  // of memory, beside the bucket
  [[nodiscard]] double squared_residual();   // sum of squares

 private:
  const Compression compression_;
  const std::vector<EncodedTensor> tensors_;
  Flat flat_;
  const int ranks_;
  codec::Feedback feedback_;
  std::unique_ptr<BucketCodec> codec_;
  std::span<float> gradients_;  // the encoded part
  std::span<const float> parameters_;
  std::int64_t step_ = 0;
  CompressionCounts counts_;
  double more_bytes_ = 0;  // of what more() asked for
};

}  // namespace dear::buckets
