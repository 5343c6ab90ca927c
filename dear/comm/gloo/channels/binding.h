#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/awaited/channels/point_to_point.h"

// The part of Gloo that DeAR calls: an object that the module libdear_gloo.so makes. No type of Gloo crosses,
// nor does an exception of Gloo: failures are std::runtime_error with the first line of Gloo's words.
namespace dear::channels {

// Changes with every change of what crosses, so that a module of another build is not called.
inline constexpr int kGlooBindingRevision = 2;

struct GlooStart {
  int rank = 0;
  int size = 1;
  // For Gloo's own collectives.
  std::chrono::milliseconds timeout{};
};

// Gloo between ranks that are connected already: it listens nowhere and connects to nobody.
class GlooMesh : public PointToPoint {
 public:
  // Goes on with this connection to `peer`, which belongs to Gloo from now on, whether this throws or not.
  // Once for each peer, before messages are begun.
  virtual void adopt(int peer, int socket) = 0;

  // Goes with the mesh.
  std::shared_ptr<const void> kept{};

  // Gloo's own collectives, as a program on Gloo would call them; they wait. For rivals in benches. Blocks
  // are `count / size` elements, and `count` is a multiple of the size where there are any.
  virtual void all_reduce(void* data, std::int64_t count, DType dtype, Reduction reduction) = 0;
  virtual void all_gather(void* data, std::int64_t count, DType dtype) = 0;  // this rank's block is in place
  virtual void broadcast(void* data, std::int64_t count, DType dtype, int root) = 0;
  virtual void all_to_all(const void* data, void* output, std::int64_t count, DType dtype) = 0;
  virtual void barrier() = 0;
};

struct GlooBinding {
  int revision = 0;
  // Threads of Gloo inherit how the calling thread is scheduled, and which signals it has blocked.
  std::unique_ptr<GlooMesh> (*make)(const GlooStart& start) = nullptr;
};

// The one name that the module exports: const GlooBinding* dear_gloo_binding().
inline constexpr const char* kGlooBindingSymbol = "dear_gloo_binding";

}  // namespace dear::channels
