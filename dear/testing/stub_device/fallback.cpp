#include "dear/testing/stub_device/fallback.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include "dear/testing/stub_device/guard.h"
#include "dear/testing/stub_device/random.h"
#include "dear/testing/stub_device/streams.h"

namespace dear::stub_device {
namespace {

using Values = std::vector<c10::IValue>;

// Operators whose shape depends on values. An index with a mask is another.
constexpr std::array<std::string_view, 11> kShapedByValues = {"aten::nonzero",
                                                              "aten::nonzero_static",
                                                              "aten::masked_select",
                                                              "aten::_unique",
                                                              "aten::_unique2",
                                                              "aten::unique_dim",
                                                              "aten::unique_consecutive",
                                                              "aten::unique_dim_consecutive",
                                                              "aten::bincount",
                                                              "aten::repeat_interleave",
                                                              "aten::histc"};

// Says what becomes of a tensor among the arguments.
template <typename Change>
c10::IValue changed(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(change(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  changed(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

struct Call {
  const c10::OperatorHandle& op;
  const c10::FunctionSchema& schema;
  Values arguments;
  c10::Device device;

  [[nodiscard]] std::string name() const {
    const std::string& overload = schema.overload_name();
    return overload.empty() ? schema.name() : schema.name() + "." + overload;
  }
  [[nodiscard]] bool depends_on_values() const {
    if (std::ranges::find(kShapedByValues, schema.name()) != kShapedByValues.end()) return true;
    bool masks = false;
    if (schema.name() == "aten::index")
      for_each_tensor(arguments.at(1), [&](const at::Tensor& index) {
        masks |= index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
      });
    return masks || std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
             const c10::TypePtr& type = result.type();
             return !type->isSubtypeOf(*c10::TensorType::get()) &&
                    !type->isSubtypeOf(*c10::ListType::ofTensors());
           });
  }
};

c10::Device device_of(const c10::FunctionSchema& schema, const Values& arguments) {
  std::optional<c10::Device> found;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!is_stub(tensor)) return;
      TORCH_CHECK(!found || *found == tensor.device(), schema.name(), " was given tensors of two devices, ",
                  *found, " and ", tensor.device());
      found = tensor.device();
    });
    if (!found && argument.isDevice() && argument.toDevice().type() == kType) found = argument.toDevice();
  }
  TORCH_CHECK(found, schema.name(), " came to the stub device without a tensor of it");
  return {kType, current_stream(*found).device_index()};
}

// Values of scalars of the CPU are those of now.
at::Tensor as_scalar(const at::Tensor& tensor, const c10::FunctionSchema& schema) {
  TORCH_CHECK(tensor.device().is_cpu() && tensor.dim() == 0, schema.name(),
              " was given tensors of stub and of ", tensor.device(), ": only scalars may be of the CPU");
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

Values on_cpu(const Call& call, bool zeros) {
  Values values;
  for (const c10::IValue& argument : call.arguments) {
    if (argument.isDevice()) {
      values.emplace_back(c10::Device(c10::DeviceType::CPU));
    } else if (argument.isGenerator()) {
      values.emplace_back(argument);
    } else {
      values.push_back(changed(argument, [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return tensor;
        if (!is_stub(tensor)) return as_scalar(tensor, call.schema);
        if (!zeros) return alias_on_cpu(tensor);
        at::Tensor shape =
            at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
        if (shape.has_storage() && shape.storage().nbytes() > 0)
          std::memset(shape.storage().mutable_data(), 0, shape.storage().nbytes());
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
          shape.unsafeGetTensorImpl()->set_wrapped_number(true);
        return shape;
      }));
    }
  }
  // What draws random numbers gets a generator of its own: the device's place moves on once, for the real
  // call.
  for (std::size_t i = 0; i < values.size(); ++i) {
    const c10::TypePtr& type = call.schema.arguments()[i].type();
    const bool draws = type->isSubtypeOf(*c10::GeneratorType::get()) ||
                       type->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
    if (!draws) continue;
    const at::Generator given = values[i].isGenerator() ? values[i].toGenerator() : at::Generator();
    values[i] = zeros ? new_cpu_generator() : drawn(given, call.device.index());
  }
  return values;
}

Values run_on_cpu(const c10::OperatorHandle& op, Values arguments) {
  op.callBoxed(arguments);
  return arguments;
}

at::Tensor like(const at::Tensor& shape, c10::Device device) {
  if (!shape.defined()) return shape;
  return at::empty_strided(shape.sizes(), shape.strides(), shape.options().device(device));
}

// Whatever a result aliases by the schema, "(a!)".
const c10::IValue* aliased(const Call& call, const c10::Argument& result) {
  const c10::AliasInfo* const alias = result.alias_info();
  if (alias == nullptr) return nullptr;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const c10::AliasInfo* const of = call.schema.arguments()[i].alias_info();
    if (of != nullptr && *of == *alias) {
      TORCH_CHECK(alias->isWrite(), "the stub device does not know the view ", call.name());
      return &call.arguments[i];
    }
  }
  TORCH_CHECK(false, "the stub device does not know what ", call.name(), " returns");
  return nullptr;
}

// Outputs that a program leaves to be sized by the operator.
bool sizes_outputs(const Call& call) {
  bool found = false;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const c10::Argument& argument = call.schema.arguments()[i];
    if (!argument.is_out()) continue;
    for_each_tensor(call.arguments[i],
                    [&](const at::Tensor& tensor) { found |= tensor.defined() && tensor.numel() == 0; });
  }
  return found;
}

void resize_outputs(const Call& call, const Values& shapes) {
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (!call.schema.arguments()[i].is_out()) continue;
    std::vector<at::Tensor> sized;
    for_each_tensor(shapes[i], [&](const at::Tensor& shape) { sized.push_back(shape); });
    std::size_t next = 0;
    for_each_tensor(call.arguments[i], [&](const at::Tensor& output) {
      const at::Tensor& shape = sized.at(next++);
      if (output.sizes() == shape.sizes()) return;
      output.resize_(shape.sizes());
      if (output.strides() != shape.strides()) output.as_strided_(shape.sizes(), shape.strides());
    });
  }
}

// The results, before they are computed; those that are new stand in `fresh`, with their place.
Values results_of(const Call& call, std::vector<std::pair<std::size_t, c10::IValue>>& fresh) {
  const std::vector<c10::Argument>& returns = call.schema.returns();
  Values results(returns.size());
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < returns.size(); ++i) {
    if (const c10::IValue* const argument = aliased(call, returns[i])) {
      results[i] = *argument;
    } else {
      unknown.push_back(i);
    }
  }
  if (unknown.empty() && !sizes_outputs(call)) return results;
  const Values zeros = on_cpu(call, /*zeros=*/true);
  const Values shapes = run_on_cpu(call.op, zeros);
  resize_outputs(call, zeros);
  for (const std::size_t i : unknown) {
    results[i] = changed(shapes.at(i), [&](const at::Tensor& shape) { return like(shape, call.device); });
    fresh.emplace_back(i, changed(results[i], [](const at::Tensor& made) {
                         return made.defined() ? alias_on_cpu(made) : made;
                       }));
  }
  return results;
}

void copy_into(const c10::IValue& to, const c10::IValue& from) {
  std::vector<at::Tensor> targets;
  for_each_tensor(to, [&](const at::Tensor& tensor) { targets.push_back(tensor); });
  std::size_t next = 0;
  for_each_tensor(from, [&](const at::Tensor& tensor) {
    const at::Tensor& target = targets.at(next++);
    if (target.defined()) target.copy_(tensor);
  });
}

// In its turn, but the host waits for it.
Values run_now(const Call& call, c10::Stream stream) {
  Values results;
  Streams::all().run(stream, call.name(),
                     [&, arguments = on_cpu(call, false)] { results = run_on_cpu(call.op, arguments); });
  Streams::all().synchronize(stream);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (const c10::IValue* const argument = aliased(call, call.schema.returns()[i])) {
      results[i] = *argument;
      continue;
    }
    results[i] = changed(results[i], [&](const at::Tensor& result) {
      at::Tensor made = like(result, call.device);
      if (made.defined())
        Streams::all().run(stream, "result", [to = alias_on_cpu(made), result] { to.copy_(result); });
      return made;
    });
  }
  return results;
}

}  // namespace

at::Tensor alias_on_cpu(const at::Tensor& tensor) {
  return at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

void run_on_stream(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::RecordFunctionGuard unobserved(/*is_enabled=*/false);
  const c10::FunctionSchema& schema = op.schema();
  Values arguments = torch::jit::pop(*stack, schema.arguments().size());
  const c10::Device device = device_of(schema, arguments);
  const Call call{op, schema, std::move(arguments), device};
  const c10::OptionalDeviceGuard guard(device);
  const c10::Stream stream = current_stream(device);
  if (call.depends_on_values() && !schema.returns().empty()) {
    for (c10::IValue& result : run_now(call, stream)) stack->push_back(std::move(result));
    return;
  }
  std::vector<std::pair<std::size_t, c10::IValue>> fresh;
  Values results = results_of(call, fresh);
  Streams::all().run(stream, call.name(),
                     [op, fresh = std::move(fresh), values = on_cpu(call, /*zeros=*/false)]() mutable {
                       const Values computed = run_on_cpu(op, std::move(values));
                       for (const auto& [place, to] : fresh) copy_into(to, computed.at(place));
                     });
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

}  // namespace dear::stub_device
