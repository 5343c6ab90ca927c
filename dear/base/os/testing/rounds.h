#pragma once

namespace dear::testing {

// Whether this build has AddressSanitizer or ThreadSanitizer, and whether the latter. CMake tells by
// definitions.
#ifdef DEAR_SANITIZER
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif
#ifdef DEAR_THREAD_SANITIZER
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// How many random cases a test tries: all it is written for, and under a sanitizer, which takes ten times as
// long for each, a tenth. There it is the code that is looked at, which hundreds of cases walk as thousands
// do.
template <class Count>
constexpr Count rounds(Count all) {
  return kSanitizer ? (all + 9) / 10 : all;
}

}  // namespace dear::testing
