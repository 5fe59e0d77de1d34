#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include <spirv/unified1/spirv.hpp11>

#include "backend/vulkan/instance.hpp"

namespace kiln::vulkan {

/// The features that Kiln enables, as far as the device supports them: all core features, 16-bit storage and
/// variable pointers; from Vulkan 1.2 on also 8-bit storage, 8-bit and f16 arithmetic, 64-bit atomics, the memory
/// model of Vulkan, and query resets by the host. Kiln enables no extensions.
struct Features {
  VkPhysicalDeviceFeatures2 core = {};
  VkPhysicalDevice16BitStorageFeatures storage16 = {};
  VkPhysicalDeviceVariablePointersFeatures pointers = {};
  VkPhysicalDevice8BitStorageFeatures storage8 = {};
  VkPhysicalDeviceShaderFloat16Int8Features arithmetic = {};
  VkPhysicalDeviceShaderAtomicInt64Features atomics = {};
  VkPhysicalDeviceVulkanMemoryModelFeatures memory_model = {};
  VkPhysicalDeviceHostQueryResetFeatures queries = {};

  Features(const Instance& instance, const Physical& from) {
    core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    core.pNext = &storage16;
    storage16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
    storage16.pNext = &pointers;
    pointers.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VARIABLE_POINTERS_FEATURES;
    if (from.properties.apiVersion >= VK_API_VERSION_1_2) pointers.pNext = &storage8;
    storage8.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES;
    storage8.pNext = &arithmetic;
    arithmetic.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
    arithmetic.pNext = &atomics;
    atomics.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_INT64_FEATURES;
    atomics.pNext = &memory_model;
    memory_model.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
    memory_model.pNext = &queries;
    queries.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_QUERY_RESET_FEATURES;
    instance.vk.GetPhysicalDeviceFeatures2(from.handle, &core);
    // This feature checks every buffer access. Kiln does not confine programs to their buffers; see security.md.
    core.features.robustBufferAccess = VK_FALSE;
  }
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;

  /// The capabilities of SPIR-V that compute programs can use with these features.
  std::vector<spv::Capability> capabilities(const Instance& instance, const Physical& of) const {
    using enum spv::Capability;
    // Vulkan always has these.
    std::vector<spv::Capability> enabled = {
        Matrix,        Shader,      InputAttachment, Sampled1D,         Image1D,
        SampledBuffer, ImageBuffer, ImageQuery,      DerivativeControl, DeviceGroup};
    const auto add = [&enabled](VkBool32 if_true, std::initializer_list<spv::Capability> some) {
      if (if_true == VK_TRUE) enabled.insert(enabled.end(), some);
    };
    const VkPhysicalDeviceFeatures& has = core.features;
    add(has.shaderFloat64, {Float64});
    add(has.shaderInt64, {Int64});
    add(has.shaderInt16, {Int16});
    add(has.shaderImageGatherExtended, {ImageGatherExtended});
    add(has.shaderStorageImageMultisample, {StorageImageMultisample, ImageMSArray});
    add(has.shaderStorageImageExtendedFormats, {StorageImageExtendedFormats});
    add(has.shaderStorageImageReadWithoutFormat, {StorageImageReadWithoutFormat});
    add(has.shaderStorageImageWriteWithoutFormat, {StorageImageWriteWithoutFormat});
    add(has.shaderUniformBufferArrayDynamicIndexing, {UniformBufferArrayDynamicIndexing});
    add(has.shaderSampledImageArrayDynamicIndexing, {SampledImageArrayDynamicIndexing});
    add(has.shaderStorageBufferArrayDynamicIndexing, {StorageBufferArrayDynamicIndexing});
    add(has.shaderStorageImageArrayDynamicIndexing, {StorageImageArrayDynamicIndexing});
    add(has.shaderResourceResidency, {SparseResidency});
    add(has.shaderResourceMinLod, {MinLod});
    add(has.imageCubeArray, {ImageCubeArray, SampledCubeArray});
    add(storage16.storageBuffer16BitAccess, {StorageBuffer16BitAccess});
    add(storage16.uniformAndStorageBuffer16BitAccess, {UniformAndStorageBuffer16BitAccess});
    add(storage16.storagePushConstant16, {StoragePushConstant16});
    add(storage16.storageInputOutput16, {StorageInputOutput16});
    add(pointers.variablePointersStorageBuffer, {VariablePointersStorageBuffer});
    add(pointers.variablePointers, {VariablePointers});
    add(storage8.storageBuffer8BitAccess, {StorageBuffer8BitAccess});
    add(storage8.uniformAndStorageBuffer8BitAccess, {UniformAndStorageBuffer8BitAccess});
    add(storage8.storagePushConstant8, {StoragePushConstant8});
    add(arithmetic.shaderFloat16, {Float16});
    add(arithmetic.shaderInt8, {Int8});
    add(atomics.shaderBufferInt64Atomics | atomics.shaderSharedInt64Atomics, {Int64Atomics});
    add(memory_model.vulkanMemoryModel, {VulkanMemoryModel});
    add(memory_model.vulkanMemoryModelDeviceScope, {VulkanMemoryModelDeviceScope});
    add_properties(enabled, instance, of);
    return enabled;
  }

 private:
  /// Adds the capabilities that are not features, but properties of the device.
  static void add_properties(std::vector<spv::Capability>& enabled, const Instance& instance, const Physical& of) {
    using enum spv::Capability;
    VkPhysicalDeviceFloatControlsProperties floats{};
    floats.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES;
    VkPhysicalDeviceSubgroupProperties subgroups{};
    subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
    if (of.properties.apiVersion >= VK_API_VERSION_1_2) subgroups.pNext = &floats;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    properties.pNext = &subgroups;
    instance.vk.GetPhysicalDeviceProperties2(of.handle, &properties);
    const auto add = [&enabled](bool if_true, spv::Capability one) {
      if (if_true) enabled.push_back(one);
    };
    const bool computes = (subgroups.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    const auto does = [&](VkSubgroupFeatureFlagBits operation) {
      return computes && (subgroups.supportedOperations & operation) != 0;
    };
    add(does(VK_SUBGROUP_FEATURE_BASIC_BIT), GroupNonUniform);
    add(does(VK_SUBGROUP_FEATURE_VOTE_BIT), GroupNonUniformVote);
    add(does(VK_SUBGROUP_FEATURE_ARITHMETIC_BIT), GroupNonUniformArithmetic);
    add(does(VK_SUBGROUP_FEATURE_BALLOT_BIT), GroupNonUniformBallot);
    add(does(VK_SUBGROUP_FEATURE_SHUFFLE_BIT), GroupNonUniformShuffle);
    add(does(VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT), GroupNonUniformShuffleRelative);
    add(does(VK_SUBGROUP_FEATURE_CLUSTERED_BIT), GroupNonUniformClustered);
    add(does(VK_SUBGROUP_FEATURE_QUAD_BIT), GroupNonUniformQuad);
    const auto any = [](VkBool32 f16, VkBool32 f32, VkBool32 f64) { return (f16 | f32 | f64) == VK_TRUE; };
    add(any(floats.shaderDenormPreserveFloat16, floats.shaderDenormPreserveFloat32,
            floats.shaderDenormPreserveFloat64),
        DenormPreserve);
    add(any(floats.shaderDenormFlushToZeroFloat16, floats.shaderDenormFlushToZeroFloat32,
            floats.shaderDenormFlushToZeroFloat64),
        DenormFlushToZero);
    add(any(floats.shaderSignedZeroInfNanPreserveFloat16, floats.shaderSignedZeroInfNanPreserveFloat32,
            floats.shaderSignedZeroInfNanPreserveFloat64),
        SignedZeroInfNanPreserve);
    add(any(floats.shaderRoundingModeRTEFloat16, floats.shaderRoundingModeRTEFloat32,
            floats.shaderRoundingModeRTEFloat64),
        RoundingModeRTE);
    add(any(floats.shaderRoundingModeRTZFloat16, floats.shaderRoundingModeRTZFloat32,
            floats.shaderRoundingModeRTZFloat64),
        RoundingModeRTZ);
  }
};

}  // namespace kiln::vulkan
