#pragma once

// gcc says it by a macro, clang by a feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DEAR_SANITIZED_TEST
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEAR_SANITIZED_TEST
#endif

namespace dear::testing {

// How many random cases a test tries: all it is written for, and under a sanitizer, which takes ten times as
// long for each, a tenth. There it is the code that is looked at, which hundreds of cases walk as thousands
// do.
template <class Count>
constexpr Count rounds(Count all) {
#ifdef DEAR_SANITIZED_TEST
  return (all + 9) / 10;
#else
  return all;
#endif
}

}  // namespace dear::testing
