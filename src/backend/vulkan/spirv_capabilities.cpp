#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "backend/vulkan/spirv.hpp"
#include "backend/vulkan/spirv_instructions.hpp"

namespace kiln::vulkan {
namespace {

/// Capabilities that need more than Vulkan 1.0 or OpenGL 4.5 offer, and that compilers of compute programs declare.
// clang-format off
#define KILN_CAPABILITIES(X) \
  X(Addresses) \
  X(Kernel) \
  X(Linkage) \
  X(Float16Buffer) \
  X(Vector16) \
  X(Groups) \
  X(GenericPointer) \
  X(Float16) \
  X(Float64) \
  X(Int8) \
  X(Int16) \
  X(Int64) \
  X(Int64Atomics) \
  X(AtomicStorage) \
  X(Geometry) \
  X(Tessellation) \
  X(InputAttachment) \
  X(SparseResidency) \
  X(MinLod) \
  X(TransformFeedback) \
  X(MultiViewport) \
  X(GroupNonUniform) \
  X(GroupNonUniformVote) \
  X(GroupNonUniformArithmetic) \
  X(GroupNonUniformBallot) \
  X(GroupNonUniformShuffle) \
  X(GroupNonUniformShuffleRelative) \
  X(GroupNonUniformClustered) \
  X(GroupNonUniformQuad) \
  X(GroupNonUniformPartitionedNV) \
  X(GroupNonUniformRotateKHR) \
  X(SubgroupBallotKHR) \
  X(SubgroupVoteKHR) \
  X(StorageBuffer16BitAccess) \
  X(UniformAndStorageBuffer16BitAccess) \
  X(StoragePushConstant16) \
  X(StorageInputOutput16) \
  X(StorageBuffer8BitAccess) \
  X(UniformAndStorageBuffer8BitAccess) \
  X(StoragePushConstant8) \
  X(VariablePointersStorageBuffer) \
  X(VariablePointers) \
  X(DenormPreserve) \
  X(DenormFlushToZero) \
  X(SignedZeroInfNanPreserve) \
  X(RoundingModeRTE) \
  X(RoundingModeRTZ) \
  X(RayQueryKHR) \
  X(ShaderClockKHR) \
  X(WorkgroupMemoryExplicitLayoutKHR) \
  X(WorkgroupMemoryExplicitLayout8BitAccessKHR) \
  X(WorkgroupMemoryExplicitLayout16BitAccessKHR) \
  X(ShaderViewportIndexLayerEXT) \
  X(ShaderNonUniform) \
  X(RuntimeDescriptorArray) \
  X(VulkanMemoryModel) \
  X(VulkanMemoryModelDeviceScope) \
  X(PhysicalStorageBufferAddresses) \
  X(ComputeDerivativeGroupQuadsNV) \
  X(ComputeDerivativeGroupLinearNV) \
  X(CooperativeMatrixNV) \
  X(ShaderSMBuiltinsNV) \
  X(DemoteToHelperInvocation) \
  X(ExpectAssumeKHR) \
  X(AtomicFloat16AddEXT) \
  X(AtomicFloat32AddEXT) \
  X(AtomicFloat64AddEXT) \
  X(AtomicFloat16MinMaxEXT) \
  X(AtomicFloat32MinMaxEXT) \
  X(AtomicFloat64MinMaxEXT) \
  X(DotProduct) \
  X(DotProductInputAll) \
  X(DotProductInput4x8Bit) \
  X(DotProductInput4x8BitPacked) \
  X(BitInstructions)
// clang-format on

/// The name of a capability; its number if it is rare.
std::string capability_name(spv::Capability capability) {
  switch (capability) {
#define KILN_NAMED(name) \
  case spv::Capability::name: return #name;
    KILN_CAPABILITIES(KILN_NAMED)
#undef KILN_NAMED
    default: return std::to_string(static_cast<std::uint32_t>(capability));
  }
}

}  // namespace

Result<void> check_capabilities(const std::string& program, std::span<const std::uint32_t> words,
                                std::span<const spv::Capability> enabled) {
  if (words.size() < spirv::header_words) return {};
  std::optional<spv::Capability> missing;
  spirv::for_each_instruction(words, [&](spv::Op op, spirv::Words operands) {
    if (op != spv::Op::OpCapability || operands.empty()) return true;
    const auto capability = static_cast<spv::Capability>(operands[0]);
    if (std::ranges::find(enabled, capability) == enabled.end()) missing = capability;
    return !missing;
  });
  if (!missing) return {};
  return Error(ErrorCode::unsupported,
               fmt::format("{} declares the SPIR-V capability {}, which Kiln does not enable on this device",
                           program, capability_name(*missing)));
}

}  // namespace kiln::vulkan
