#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Simonyan and Zisserman 2015, arXiv 1409.1556, configuration D, as torchvision has it: the classifier sees
// 7 x 7 places whatever the size of the image.
namespace dear::zoo {

Architecture vgg16(std::int64_t side) {
  constexpr std::int64_t kPool = 0;
  constexpr std::int64_t kChannels[] = {64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                                        kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};
  Builder net;
  Image x{.channels = 3, .height = side, .width = side};
  int module = 0;  // convolution, rectifier and pool each have a number
  for (const std::int64_t channels : kChannels) {
    if (channels == kPool) {
      x = net.max_pool(x, square(2, 2));
      module += 1;
    } else {
      x = net.conv(fmt::format("features.{}", module), x, channels, square(3, 1, 1), {.bias = true});
      net.relu(x.elements());
      module += 2;
    }
  }
  x = net.average_pool_to(x, 7);
  net.linear("classifier.0", 1, x.elements(), 4096);
  for (const char* name : {"classifier.3", "classifier.6"}) {
    net.relu(4096);
    net.dropout(4096);
    net.keep(4096);
    net.linear(name, 1, 4096, std::string_view(name).ends_with('6') ? 1000 : 4096);
  }
  net.cross_entropy(1000);
  return std::move(net).take();
}

}  // namespace dear::zoo
