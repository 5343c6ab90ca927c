// Trains a tiny module in buckets that are given. linking_test.py looks at what this program links.

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "dear/comm/backends/init.h"
#include "dear/train/data_parallel/data_parallel.h"

int main() {
  torch::nn::Linear model(4, 1);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  dear::DataParallel parallel(*model, sgd, dear::init(),
                              {.buckets = dear::given(dear::Fusion::parse("layer"))});
  torch::nn::functional::mse_loss(model->forward(torch::ones({2, 4})), torch::ones({2, 1})).backward();
  parallel.step();
  parallel.synchronize();
  return parallel.statistics().iterations == 1 ? 0 : 1;
}
