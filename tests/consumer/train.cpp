// Trains a tiny module through the package; the loss must fall.
#include <cstdio>
#include <dear/comm/backends/init.h>
#include <dear/train/data_parallel/data_parallel.h>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

int main() {
  torch::manual_seed(1);
  torch::nn::Linear model(4, 1);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  dear::DataParallel dp(*model, sgd, dear::init());
  const torch::Tensor input = torch::randn({16, 4});
  const torch::Tensor target = input.sum(1, true);
  float first = 0;
  float last = 0;
  for (int step = 0; step < 20; ++step) {
    torch::Tensor loss = torch::nn::functional::mse_loss(model->forward(input), target);
    loss.backward();
    dp.step();
    last = loss.item<float>();
    first = step == 0 ? last : first;
  }
  dp.synchronize();
  std::printf("loss %.4f -> %.4f\n", first, last);
  return last < first / 2 ? 0 : 1;
}
