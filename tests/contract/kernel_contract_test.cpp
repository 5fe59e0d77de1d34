#include <cmath>
#include <random>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"

// What a kernel means, which is the same with every API.
namespace kiln::contract {
namespace {

class KernelContract : public Contract {};

TEST_P(KernelContract, ACompileErrorPointsAtTheLineOfTheKernelsOwnSource) {
  Kernel broken = scale(3);
  broken.name = "broken";
  broken.source = "KERNEL {\n  int i = global_id_x;\n  y[i] = nonsense + x[i];\n}\n";
  const auto result = device_->compile(request(broken));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
  EXPECT_NE(result.error().message().find("broken"), std::string::npos) << result.error().describe();
  EXPECT_NE(result.error().message().find("line 3"), std::string::npos) << result.error().describe();
  EXPECT_NE(result.error().log().find("nonsense"), std::string::npos) << result.error().log();
}

TEST_P(KernelContract, AnIncludeThatIsSkippedShiftsNoLines) {
  const Kernel broken{.name = "broken",
                      .source = "#if KILN_NOWHERE\n#include <cuda_fp16.h>\n#endif\nKERNEL {\n  nonsense;\n}\n"};
  const auto result = device_->compile(request(broken));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("line 5"), std::string::npos) << result.error().describe();
}

TEST_P(KernelContract, AnErrorInWhatIsDeclaredForAKernelNamesTheDeclaration) {
  Kernel broken = scale(3);
  broken.name = "broken";
  broken.shared = {{"tile", Type::f32, {"TILES"}}};
  const auto result = device_->compile(request(broken));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
  EXPECT_TRUE(result.error().message().starts_with("broken does not compile, in the line that Kiln generated, \""))
      << result.error().describe();
  EXPECT_NE(result.error().message().find("float tile[TILES];\": "), std::string::npos)
      << result.error().describe();
}

TEST_P(KernelContract, GemmComputesWhatTheCpuDoes) {
  constexpr int m = 70;
  constexpr int n = 45;
  constexpr int k = 51;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> a(m * k);
  std::vector<float> b(k * n);
  for (float& x : a) x = value(random);
  for (float& x : b) x = value(random);
  const auto da = upload(*device_, a).value();
  const auto db = upload(*device_, b).value();
  const auto dc = upload(*device_, std::vector<float>(m * n)).value();
  const Compiled compiled = device_->compile(request(gemm())).value();
  const Launch launch = gemm().launch({2, 3, 1}, {da.get(), db.get(), dc.get()}, {m, n, k}).value();
  device_->launch(*compiled.module, launch).value();
  const auto c = download<float>(*device_, *dc).value();
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < n; ++column) {
      double sum = 0;
      double size = 0;
      for (int i = 0; i < k; ++i) {
        const double term =
            double{a[static_cast<std::size_t>(row * k + i)]} * double{b[static_cast<std::size_t>(i * n + column)]};
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(c[static_cast<std::size_t>(row * n + column)], sum, 1e-4 * std::abs(sum) + 1e-6 * size);
    }
}

TEST_P(KernelContract, EveryWordOfTheDialectMeansTheSame) {
  const Kernel words = contract::words();
  // 2, 0.5, 3 and -4 as halves.
  const std::vector<std::uint16_t> halves = {0x4000, 0x3800, 0x4200, 0xc400};
  std::vector<std::uint32_t> counts = {0, 1000, 0, 0, 0xffffffff, 0, 7, 5};
  const auto quads = upload(*device_, std::vector<float>{1, 2, 3, 4}).value();
  const auto in = upload(*device_, halves).value();
  const auto out = upload(*device_, std::vector<std::uint16_t>(2)).value();
  const auto unsigned_counts = upload(*device_, counts).value();
  const auto signed_counts = upload(*device_, std::vector<std::int32_t>{10}).value();
  const auto values = upload(*device_, std::vector<float>(21)).value();
  const Compiled compiled = device_->compile(request(words)).value();
  const Launch launch =
      words
          .launch({2, 1, 1},
                  {quads.get(), in.get(), out.get(), unsigned_counts.get(), signed_counts.get(), values.get()},
                  {1.5F, std::uint32_t{0xff0f}, std::int32_t{-7}})
          .value();
  device_->launch(*compiled.module, launch).value();
  EXPECT_EQ(download<std::uint32_t>(*device_, *unsigned_counts).value(),
            (std::vector<std::uint32_t>{64, 0, 3, 0xff, 0xffffff00, 0, 9, 0xff0f}));
  EXPECT_EQ(download<std::int32_t>(*device_, *signed_counts).value(), std::vector<std::int32_t>{-54});
  EXPECT_EQ(download<std::uint16_t>(*device_, *out).value(), (std::vector<std::uint16_t>{0x3e00, 0xbe00}));
  const std::vector<float> expected = {3, 0,     24, 30, -1,  0.5F, 32, 31, -2, 12, -1.5F,
                                       6, 4.25F, 10, 1,  211, 2,    5,  13, 0,  1};
  const auto got = download<float>(*device_, *values).value();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << "value " << i;
}

TEST_P(KernelContract, TheLastOfAnOddNumberOfHalvesIsReadLikeTheOthers) {
  const Kernel kernel{.name = "halves",
                      .buffers = {{"a", Type::f16, Access::read}, {"values", Type::f32, Access::write}},
                      .group_size = {1, 1, 1},
                      .source = "KERNEL { for (int i = 0; i < 3; ++i) values[i] = load_half(a, i); }\n"};
  const Compiled compiled = device_->compile(request(kernel)).value();
  // 2, 0.5 and 3.
  const auto a = upload(*device_, std::vector<std::uint16_t>{0x4000, 0x3800, 0x4200}).value();
  EXPECT_EQ(a->size(), 6U);
  const auto values = upload(*device_, std::vector<float>(3)).value();
  device_->launch(*compiled.module, kernel.launch({1, 1, 1}, {a.get(), values.get()}, {}).value()).value();
  EXPECT_EQ(download<float>(*device_, *values).value(), (std::vector<float>{2, 0.5F, 3}));
}

TEST_P(KernelContract, NativeAtomicsStandBesideThoseOfTheDialect) {
  const Kernel kernel = native_atomics();
  const auto counts = upload(*device_, std::vector<std::uint32_t>(2)).value();
  const Compiled compiled = device_->compile(request(kernel)).value();
  device_->launch(*compiled.module, kernel.launch({3, 1, 1}, {counts.get()}, {}).value()).value();
  EXPECT_EQ(download<std::uint32_t>(*device_, *counts).value(), (std::vector<std::uint32_t>{192, 192}));
}

TEST_P(KernelContract, AGroupSeesInABufferWhatItsOthersWroteBeforeTheBarrier) {
  const Kernel turn{.name = "turn",
                    .buffers = {{"values", Type::u32, Access::read_write}},
                    .group_size = {128, 1, 1},
                    .source = R"(KERNEL {
  for (int round = 0; round < 64; ++round) {
    uint next = values[group_id_x * GROUP_X + (local_id_x + 1) % GROUP_X];
    group_barrier();
    values[global_id_x] = next;
    group_barrier();
  }
}
)"};
  std::vector<std::uint32_t> values(1024);
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = i;
  const auto buffer = upload(*device_, values).value();
  const Compiled compiled = device_->compile(request(turn)).value();
  device_->launch(*compiled.module, turn.launch({8, 1, 1}, {buffer.get()}, {}).value()).value();
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = i / 128 * 128 + (i + 64) % 128;
  EXPECT_EQ(download<std::uint32_t>(*device_, *buffer).value(), values);
}

TEST_P(KernelContract, KernelsMayHaveAnyName) {
  for (const char* name : {"scalars", "given", "from_half", "new", "float4", "main", "3x3 \"conv\""}) {
    Kernel kernel = scale(3);
    kernel.name = name;
    const auto compiled = device_->compile(request(kernel));
    EXPECT_TRUE(compiled) << compiled.error().describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Apis, KernelContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
