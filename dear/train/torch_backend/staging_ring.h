#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dear::torch_backend {

// Places in a buffer for what is on its way, given out in a ring. The place of a request depends on the sizes
// of those before it alone, so ranks that ask for the same sizes get the same places, whatever has come back
// by then. Not safe for several threads.
class StagingRing {
 public:
  explicit StagingRing(std::int64_t bytes) : bytes_(bytes) {}
  // The offset of so many bytes, at most all, on a whole cache line; none as long as something stands there.
  [[nodiscard]] std::optional<std::int64_t> take(std::int64_t bytes);
  void give_back(std::int64_t offset);  // the place that begins there

 private:
  struct Place {
    std::int64_t begin, end;
  };
  std::int64_t bytes_, next_ = 0;
  std::vector<Place> taken_;
};

}  // namespace dear::torch_backend
