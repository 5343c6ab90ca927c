#include "dear/train/autograd/operator_observer.h"

#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"

namespace dear::autograd::operator_observer_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

class Notes : public OperatorObserver {
 public:
  bool touched(const at::Tensor& tensor) noexcept override {
    seen.push_back(tensor.unsafeGetTensorImpl());
    return tensor.is_same(own);
  }
  void throw_if_failed() override { throw ScheduleError("failed"); }

  torch::Tensor own;
  std::vector<const c10::TensorImpl*> seen;
};

TEST(OperatorObserver, SeesTheInputsOfAnOperator) {
  Notes notes;
  ObserverRegistration registration(notes);
  const torch::Tensor left = torch::ones({2}), right = torch::ones({2});
  registration.enable();
  left.add(right);
  registration.disable();
  left.mul(right);
  EXPECT_THAT(notes.seen, ElementsAre(left.unsafeGetTensorImpl(), right.unsafeGetTensorImpl()));
}

// A script's interpreter calls operators with the whole of its stack, of which theirs are the last.
TEST(OperatorObserver, SeesNothingElseOfAScriptsStack) {
  Notes notes;
  ObserverRegistration registration(notes);
  const torch::Tensor waiting = torch::ones({2}), left = torch::ones({2}), right = torch::ones({2});
  const auto add = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
  torch::jit::Stack stack{waiting, left, right, 1};
  registration.enable();
  add.callBoxed(&stack);
  registration.disable();
  ASSERT_EQ(stack.size(), 2);
  EXPECT_TRUE(torch::equal(stack.back().toTensor(), torch::full({2}, 2.0)));
  EXPECT_THAT(notes.seen, Contains(left.unsafeGetTensorImpl()));
  EXPECT_THAT(notes.seen, Contains(right.unsafeGetTensorImpl()));
  EXPECT_THAT(notes.seen, Not(Contains(waiting.unsafeGetTensorImpl())));
}

TEST(OperatorObserver, ThatHasFailedThrowsForItsOwnTensorsAlone) {
  Notes notes;
  ObserverRegistration registration(notes);
  const torch::Tensor other = torch::ones({2});
  notes.own = torch::ones({2});
  registration.enable();
  EXPECT_NO_THROW(await_whole(other));
  EXPECT_NO_THROW(torch::pickle_save(other));
  EXPECT_THROW(await_whole(notes.own), ScheduleError);
  EXPECT_THROW(torch::pickle_save(notes.own), ScheduleError);
  registration.disable();
  EXPECT_NO_THROW(await_whole(notes.own));
}

}  // namespace
}  // namespace dear::autograd::operator_observer_test
