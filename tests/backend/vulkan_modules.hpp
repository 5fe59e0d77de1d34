#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <spirv/unified1/spirv.hpp11>

namespace kiln::fakes {

/// A SPIR-V 1.0 module for Vulkan and OpenGL, whose only kernel doubles the numbers of its buffer.
struct DoublingModule {
  std::string entry = "main";
  /// Without it, there is no LocalSize.
  std::optional<std::array<std::uint32_t, 3>> group_size = std::array<std::uint32_t, 3>{64, 1, 1};
  /// The id of a specialisation constant in place of the factor 2.
  std::optional<std::uint32_t> factor_id = {};
  std::uint32_t array_stride = 4;
  std::uint32_t binding = 0;
  /// The numbers that a group shares and loads, in an array that is decorated with a stride of 1 byte.
  std::uint32_t shared_numbers = 0;
  std::vector<spv::Capability> capabilities = {spv::Capability::Shader};
  /// How often LocalSize is declared.
  int group_sizes = 1;
  /// Another input, which the kernel does not use.
  enum class Input { none, uniform_block, sampler, image, counters };
  Input other = Input::none;
  std::uint32_t other_binding = 0;
  /// The length of an array of it; 0 if it is none.
  std::uint32_t other_length = 0;

  std::vector<std::uint32_t> words() const {
    using spv::Op;
    enum : std::uint32_t {
      kernel = 1,
      id,
      buffer,
      block,
      numbers,
      none,
      function,
      uint,
      uint3,
      in_uint3,
      to_block,
      to_number,
      in_uint,
      zero,
      two,
      label,
      id_place,
      index,
      place,
      number,
      doubled,
      length,
      tile,
      to_tile,
      shared,
      extra,
      extra_type,
      extra_sampled,
      extra_length,
      extra_array,
      to_extra,
      real,
      value,
      bound
    };
    const auto number_of = [](auto value) { return static_cast<std::uint32_t>(value); };
    const std::uint32_t uniform = number_of(spv::StorageClass::Uniform);
    const std::uint32_t input = number_of(spv::StorageClass::Input);
    const std::uint32_t workgroup = number_of(spv::StorageClass::Workgroup);
    std::vector<std::uint32_t> made = {spv::MagicNumber, 0x00010000, 0, bound, 0};
    const auto add = [&made](Op op, const std::vector<std::uint32_t>& operands) {
      made.push_back(static_cast<std::uint32_t>(operands.size() + 1) << spv::WordCountShift |
                     static_cast<std::uint32_t>(op));
      made.insert(made.end(), operands.begin(), operands.end());
    };
    for (const spv::Capability capability : capabilities) add(Op::OpCapability, {number_of(capability)});
    add(Op::OpMemoryModel, {0, number_of(spv::MemoryModel::GLSL450)});
    std::vector<std::uint32_t> entry_point(2 + entry.size() / 4 + 1);
    entry_point[0] = number_of(spv::ExecutionModel::GLCompute);
    entry_point[1] = kernel;
    std::memcpy(&entry_point[2], entry.data(), entry.size());
    entry_point.push_back(id);
    add(Op::OpEntryPoint, entry_point);
    for (int i = 0; group_size && i < group_sizes; ++i)
      add(Op::OpExecutionMode,
          {kernel, number_of(spv::ExecutionMode::LocalSize), (*group_size)[0], (*group_size)[1], (*group_size)[2]});
    add(Op::OpDecorate, {id, number_of(spv::Decoration::BuiltIn), number_of(spv::BuiltIn::GlobalInvocationId)});
    add(Op::OpDecorate, {numbers, number_of(spv::Decoration::ArrayStride), array_stride});
    if (shared_numbers > 0) add(Op::OpDecorate, {tile, number_of(spv::Decoration::ArrayStride), 1});
    add(Op::OpMemberDecorate, {block, 0, number_of(spv::Decoration::Offset), 0});
    add(Op::OpDecorate, {block, number_of(spv::Decoration::BufferBlock)});
    add(Op::OpDecorate, {buffer, number_of(spv::Decoration::DescriptorSet), 0});
    add(Op::OpDecorate, {buffer, number_of(spv::Decoration::Binding), binding});
    if (other != Input::none) add(Op::OpDecorate, {extra, number_of(spv::Decoration::Binding), other_binding});
    if (other == Input::uniform_block) {
      add(Op::OpDecorate, {extra, number_of(spv::Decoration::DescriptorSet), 0});
      add(Op::OpDecorate, {extra_type, number_of(spv::Decoration::Block)});
      add(Op::OpMemberDecorate, {extra_type, 0, number_of(spv::Decoration::Offset), 0});
    }
    if (other == Input::counters) add(Op::OpDecorate, {extra, number_of(spv::Decoration::Offset), 0});
    if (factor_id) add(Op::OpDecorate, {two, number_of(spv::Decoration::SpecId), *factor_id});
    add(Op::OpTypeVoid, {none});
    add(Op::OpTypeFunction, {function, none});
    add(Op::OpTypeInt, {uint, 32, 0});
    add(Op::OpTypeVector, {uint3, uint, 3});
    add(Op::OpTypePointer, {in_uint3, input, uint3});
    add(Op::OpVariable, {in_uint3, id, input});
    add(Op::OpTypeRuntimeArray, {numbers, uint});
    add(Op::OpTypeStruct, {block, numbers});
    add(Op::OpTypePointer, {to_block, uniform, block});
    add(Op::OpVariable, {to_block, buffer, uniform});
    add(Op::OpTypePointer, {to_number, uniform, uint});
    add(Op::OpTypePointer, {in_uint, input, uint});
    add(Op::OpConstant, {uint, zero, 0});
    add(factor_id ? Op::OpSpecConstant : Op::OpConstant, {uint, two, 2});
    if (shared_numbers > 0) {
      add(Op::OpConstant, {uint, length, shared_numbers});
      add(Op::OpTypeArray, {tile, uint, length});
      add(Op::OpTypePointer, {to_tile, workgroup, tile});
      add(Op::OpVariable, {to_tile, shared, workgroup});
    }
    if (other != Input::none) {
      std::uint32_t type = extra_type;
      auto storage = spv::StorageClass::UniformConstant;
      if (other == Input::uniform_block) {
        add(Op::OpTypeStruct, {extra_type, uint});
        storage = spv::StorageClass::Uniform;
      } else if (other == Input::counters) {
        type = uint;
        storage = spv::StorageClass::AtomicCounter;
      } else {
        const std::uint32_t sampled = other == Input::sampler ? 1 : 2;
        const auto format = other == Input::sampler ? spv::ImageFormat::Unknown : spv::ImageFormat::R32f;
        add(Op::OpTypeFloat, {real, 32});
        add(Op::OpTypeImage, {extra_type, real, number_of(spv::Dim::Dim2D), 0, 0, 0, sampled, number_of(format)});
        if (other == Input::sampler) add(Op::OpTypeSampledImage, {type = extra_sampled, extra_type});
      }
      if (other_length > 0) {
        add(Op::OpConstant, {uint, extra_length, other_length});
        add(Op::OpTypeArray, {extra_array, type, extra_length});
        type = extra_array;
      }
      add(Op::OpTypePointer, {to_extra, number_of(storage), type});
      add(Op::OpVariable, {to_extra, extra, number_of(storage)});
    }
    add(Op::OpFunction, {none, kernel, 0, function});
    add(Op::OpLabel, {label});
    if (shared_numbers > 0) add(Op::OpLoad, {tile, value, shared});
    add(Op::OpAccessChain, {in_uint, id_place, id, zero});
    add(Op::OpLoad, {uint, index, id_place});
    add(Op::OpAccessChain, {to_number, place, buffer, zero, index});
    add(Op::OpLoad, {uint, number, place});
    add(Op::OpIMul, {uint, doubled, number, two});
    add(Op::OpStore, {place, doubled});
    add(Op::OpReturn, {});
    add(Op::OpFunctionEnd, {});
    return made;
  }

  /// The words as the source of a request.
  std::string bytes() const {
    const auto made = words();
    return {reinterpret_cast<const char*>(made.data()), 4 * made.size()};
  }
};

}  // namespace kiln::fakes
