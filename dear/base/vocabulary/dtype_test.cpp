#include "dear/base/vocabulary/dtype.h"

#include <array>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::dtype_test {
namespace {

TEST(DTypes, HaveTheSizeAndNameOfTheirKind) {
  struct Expected {
    DType dtype;
    std::int64_t bytes;
    std::string_view name;
  };
  constexpr std::array<Expected, 7> kExpected{{{DType::f32, 4, "fp32"},
                                               {DType::f64, 8, "fp64"},
                                               {DType::f16, 2, "fp16"},
                                               {DType::bf16, 2, "bf16"},
                                               {DType::i32, 4, "int32"},
                                               {DType::i64, 8, "int64"},
                                               {DType::u8, 1, "uint8"}}};
  for (const Expected& expected : kExpected) {
    EXPECT_EQ(size_of(expected.dtype), expected.bytes) << expected.name;
    EXPECT_EQ(name_of(expected.dtype), expected.name);
    EXPECT_EQ(parse_dtype(expected.name), expected.dtype);
  }
}

TEST(DTypes, RefuseOtherNames) {
  for (const char* name : {"", "float", "FP32", "fp32 ", "int8"}) {
    EXPECT_THAT([&] { parse_dtype(name); },
                ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("use fp32, fp64")));
  }
}

}  // namespace
}  // namespace dear::dtype_test
