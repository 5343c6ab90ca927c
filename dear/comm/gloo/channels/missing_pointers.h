#pragma once

#include <memory>

// The headers of Gloo's TCP name three pointers, whose header Debian's package (0.0~git20220518) leaves out.
// Each holds one standard pointer, which is all that matters for the layout of the types around them. The
// code that works on them is in libgloo.
namespace gloo {

template <typename T>
class ShareableNonOwningPtr final {
 public:
  ShareableNonOwningPtr(const ShareableNonOwningPtr&) = delete;
  ShareableNonOwningPtr& operator=(const ShareableNonOwningPtr&) = delete;

  std::shared_ptr<T> pointer;
};

template <typename T>
class WeakNonOwningPtr final {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>& from) : pointer(from.pointer) {}

  std::weak_ptr<T> pointer;
};

template <typename T>
class NonOwningPtr final {
 public:
  std::shared_ptr<T> pointer;
};

}  // namespace gloo
