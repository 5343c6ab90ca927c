// Learns y = sin(x1) + ... + sin(x16) from samples that every rank draws for itself.
//
//   ./train_mlp                         one rank
//   dear launch -n 4 ./train_mlp        four ranks on this host
//   dear launch -n 4 ./train_mlp mlp.pt ... and rank 0 saves the model
#include <cstdio>
#include <dear/comm/backends/init.h>
#include <dear/train/data_parallel/data_parallel.h>
#include <exception>

#include <torch/torch.h>

namespace {

constexpr std::int64_t kBatch = 32;  // samples per rank and step
constexpr std::int64_t kFeatures = 16;
constexpr std::int64_t kWidth = 128;
constexpr int kSteps = 1000;

torch::nn::Sequential make_model() {
  return torch::nn::Sequential(torch::nn::Linear(kFeatures, kWidth), torch::nn::Tanh(),
                               torch::nn::Linear(kWidth, kWidth), torch::nn::Tanh(),
                               torch::nn::Linear(kWidth, 1));
}

torch::Tensor loss_on(torch::nn::Sequential model, std::int64_t samples) {
  const torch::Tensor inputs = torch::randn({samples, kFeatures});
  const torch::Tensor targets = inputs.sin().sum(1, true);
  return torch::mse_loss(model->forward(inputs), targets);
}

void train(const char* file) {
  dear::Group group = dear::init();  // from the launcher's environment; a group of one without a launcher
  torch::nn::Sequential model = make_model();
  torch::optim::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(3e-3));
  dear::DataParallel dp(*model, adamw, group);  // all ranks start from the parameters of rank 0

  torch::manual_seed(1 + group.rank());  // samples of its own for each rank
  for (int step = 0; step < kSteps; ++step) {
    torch::Tensor loss = loss_on(model, kBatch);
    loss.backward();
    dp.step();  // instead of adamw.step(); no zero_grad() needed
    if (group.rank() == 0 && step % 100 == 0) std::printf("step %4d, loss %.4f\n", step, loss.item<float>());
  }
  dp.synchronize();

  const torch::NoGradGuard no_grad;
  const double error = loss_on(model, 4096).item<double>();
  std::printf("rank %d of %d: error %.4f on new samples, parameters %.16s\n", group.rank(), group.size(),
              error, dear::parameter_digest(*model).c_str());
  if (group.rank() == 0 && file != nullptr) torch::save(model, file);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? argv[1] : nullptr);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_mlp: %s\n", error.what());
    return 1;
  }
}
