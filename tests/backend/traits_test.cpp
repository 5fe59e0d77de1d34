#include "backend/device_info.hpp"

#include <array>

#include <gtest/gtest.h>

namespace kiln::backend {
namespace {

TEST(Vendor, IsSpelledTheSameByEveryApi) {
  EXPECT_EQ(vendor_by_id(0x10de), "NVIDIA");
  EXPECT_EQ(vendor_by_name("NVIDIA Corporation", "NVIDIA H200/PCIe/SSE2"), "NVIDIA");
  EXPECT_EQ(vendor_by_id(0x1002), "AMD");
  EXPECT_EQ(vendor_by_name("Advanced Micro Devices, Inc.", "gfx906:sramecc+:xnack-"), "AMD");
  EXPECT_EQ(vendor_by_name("AuthenticAMD", "pthread-znver3"), "AMD");
  EXPECT_EQ(vendor_by_id(0x8086), "Intel");
  EXPECT_EQ(vendor_by_name("GenuineIntel", "pthread-skylake"), "Intel");
  EXPECT_EQ(vendor_by_id(0x10005), "Mesa");
  EXPECT_EQ(vendor_by_name("VMware, Inc.", "llvmpipe (LLVM 11.0.1, 256 bits)"), "Mesa");
  EXPECT_EQ(vendor_by_id(0x13b5), "Arm");
  EXPECT_EQ(vendor_by_name("ARM", "Mali-G78"), "Arm");
}

TEST(Vendor, IsThatOfTheGpuAndNotOfTheLayersOverIt) {
  EXPECT_EQ(vendor_by_name("Mesa", "zink Vulkan 1.3(AMD Radeon RX 6800 (RADV NAVI21))"), "AMD");
  EXPECT_EQ(vendor_by_name("Microsoft Corporation", "D3D12 (NVIDIA GeForce RTX 3080)"), "NVIDIA");
  EXPECT_EQ(vendor_by_name("Google Inc. (Intel)", "ANGLE"), "Intel");
}

TEST(Vendor, ThatIsNotKnownIsAsItsDriverCallsIt) {
  EXPECT_EQ(vendor_by_id(0x7777), "");
  EXPECT_EQ(vendor_by_name("Foundry & Sons", "Crucible 3"), "Foundry & Sons");
}

TEST(Uuid, IsWrittenAsToolsWriteIt) {
  std::array<std::uint8_t, 16> bytes = {};
  EXPECT_EQ(uuid_text(bytes), "") << "which drivers give a device without one";
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(17 * i);
  EXPECT_EQ(uuid_text(bytes), "00112233-4455-6677-8899-aabbccddeeff");
}

TEST(Uuid, IsFoundByItsBeginning) {
  const DeviceInfo device{.uuid = "00112233-4455-6677-8899-aabbccddeeff"};
  for (const char* uuid : {"0011", "GPU-00112233-44", "MIG-001122334455", "00112233-4455-6677-8899-AABBCCDDEEFF"})
    EXPECT_TRUE(is_uuid_of(device, uuid)) << uuid;
  for (const char* uuid : {"", "001", "GPU-", "0012", "00112233-4455-6677-8899-aabbccddeeff0", "gpu-0011"})
    EXPECT_FALSE(is_uuid_of(device, uuid)) << uuid;
  EXPECT_FALSE(is_uuid_of({}, "0000"));
}

TEST(Architecture, TellsWhetherThereIsF16AndAreMatrixUnits) {
  const auto has = [](std::string_view architecture) {
    return std::pair(computes_f16(architecture), has_matrix_units(architecture));
  };
  const std::pair neither(false, false);
  const std::pair only_f16(true, false);
  const std::pair both(true, true);
  EXPECT_EQ(has("sm_52"), neither);
  EXPECT_EQ(has("sm_61"), only_f16);
  EXPECT_EQ(has("sm_70"), both);
  EXPECT_EQ(has("sm_120"), both);
  EXPECT_EQ(has("gfx701"), neither);
  EXPECT_EQ(has("gfx906"), only_f16);
  EXPECT_EQ(has("gfx1030"), only_f16);
  for (const char* name : {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"})
    EXPECT_EQ(has(name), both);
  EXPECT_EQ(has(""), neither);
  EXPECT_EQ(has("sm_"), neither);
}

}  // namespace
}  // namespace kiln::backend
