#pragma once

#include <memory>
#include <vector>

#include <torch/types.h>

#include "dear/methods/moe/routing.h"
#include "dear/systems/moe/mixture.h"
#include "dear/systems/moe/nodes.h"
#include "dear/systems/moe/weights.h"

namespace dear::systems::moe {

// One forward pass of a mixture, part by part. For each part in order send(), for each compute(), for each
// receive(); of several parts the calls may be mixed as long as each part's are in this order, send() of all
// parts comes before the first compute(), and all ranks mix them alike. What is called in between goes under
// the all-to-alls, in the backward pass, too.
class MixturePass {
 public:
  // `whole` is how many samples and tokens there are in the uncut batch.
  MixturePass(MixtureImpl& mixture, std::vector<methods::moe::TokenRange> parts, std::int64_t capacity);

  // [tokens of the part, width] or [samples, ..., width]. Chooses experts and launches the tokens; where the
  // gate sees the whole batch, the last part's call launches those of all.
  void send(int part, const torch::Tensor& x);
  void compute(int part);           // waits for the tokens of the part, and launches the results
  torch::Tensor receive(int part);  // waits for them; the shape of x

 private:
  struct OfPart {
    torch::Tensor x, probabilities, chosen, scores;  // of tokens that have not left
    std::vector<std::int64_t> shape;
    torch::Tensor token;
    ExchangeOfPart exchange;
  };
  void choose(int part, const torch::Tensor& x);
  void place_whole();
  void launch(int part, Placed placed);
  void end_of_sending();
  void count(const OfPart& part);

  MixtureImpl& mixture_;
  std::vector<methods::moe::TokenRange> ranges_;
  std::int64_t capacity_;
  std::vector<std::int64_t> used_;     // places, by expert
  std::vector<std::int64_t> arrived_;  // [rank][expert here], from all parts so far
  std::vector<OfPart> parts_;
  LinearInParts gate_;
  ExpertProductInParts inputs_, outputs_;
};

}  // namespace dear::systems::moe
