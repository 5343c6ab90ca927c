// write_scripts FOLDER: TorchScript files for profile_test.py, which has no PyTorch to write them with.

#include <memory>
#include <string>

#include <torch/script.h>

namespace {

using torch::jit::Module;

class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  // A module whose forward, of arguments `arguments`, returns `result`; `weight` is its parameter.
  Module write(const std::string& name, const std::string& arguments, const std::string& result,
               const torch::Tensor& weight) {
    Module module("__torch__." + name, unit_);
    module.register_attribute("training", c10::BoolType::get(), true);
    if (weight.defined()) module.register_parameter("weight", weight, /*is_buffer=*/false);
    module.define("def forward(self, " + arguments + "):\n  return " + result + "\n");
    module.save(path_ + "/" + name + ".pt");
    return module;
  }

  // A chain of convolutions and a classifier, as small as one can be.
  void write_net() {
    Module net("__torch__.net", unit_);
    net.register_attribute("training", c10::BoolType::get(), true);
    net.register_module("stem", write("stem", "x", "torch.relu(torch.conv2d(x, self.weight))",
                                      torch::randn({4, 3, 3, 3}).requires_grad_()));
    net.register_module("body", write("body", "x", "torch.relu(torch.conv2d(x, self.weight))",
                                      torch::randn({5, 4, 3, 3}).requires_grad_()));
    net.register_module("head",
                        write("head", "x", "torch.matmul(torch.mean(x, [2, 3]), torch.t(self.weight))",
                              torch::randn({7, 5}).requires_grad_()));
    net.define(
        "def forward(self, x):\n  return self.head.forward(self.body.forward(self.stem.forward(x)))\n");
    net.save(path_ + "/net.pt");
  }

 private:
  std::string path_;
  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  torch::manual_seed(1);
  Folder folder(argv[1]);
  folder.write_net();
  folder.write("words", "x", "torch.embedding(self.weight, x, -1, False, False)",
               torch::randn({10, 4}).requires_grad_());
  folder.write("bare", "x", "x * 2", {});
  folder.write("frozen", "x", "x * self.weight", torch::randn({4}));
  folder.write("detached", "x", "(x * self.weight).detach()", torch::randn({4}).requires_grad_());
  return 0;
}
