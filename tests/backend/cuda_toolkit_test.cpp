#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/offline.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/toolkit.hpp"

// Sources that include the headers of the CUDA toolkit.
namespace kiln {
namespace {

class CudaToolkit : public testing::Test {
 protected:
  void SetUp() override {
    if (auto rtc = cuda::open_nvrtc(INT_MAX); !rtc) GTEST_SKIP() << rtc.error().message();
    if (key::toolkit_folders(Language::cuda).empty()) GTEST_SKIP() << "there are no headers of CUDA";
  }
  static Request including(const std::string& header, const std::string& more = "",
                           std::vector<std::string> entries = {}) {
    return Request({.name = header,
                    .source = "#include <" + header + ">\n" + more + "extern \"C\" __global__ void nothing() {}\n",
                    .entries = std::move(entries),
                    .language = Language::cuda});
  }
};

TEST_F(CudaToolkit, HeadersCompileAndAreFoundWithoutBeingNamed) {
  for (const char* header :
       {"cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "mma.h", "cooperative_groups.h", "curand_kernel.h",
        "cuda/std/atomic", "cuda/std/complex", "cub/block/block_reduce.cuh", "thrust/functional.h"}) {
    const Request request = including(header);
    ASSERT_FALSE(request.error()) << request.error()->message();
    EXPECT_GT(request.files().size(), 10U) << header;
    const auto binary = cuda::compile_for(request, "sm_90");
    EXPECT_TRUE(binary) << header << ": " << binary.error().describe().substr(0, 2000);
  }
}

TEST_F(CudaToolkit, ABlockReductionOfCubCompilesForSeveralTypes) {
  const Request request = including("cub/block/block_reduce.cuh", R"(
template <class T, int items>
__global__ void reduce(const T* in, T* out) {
  using Reduce = cub::BlockReduce<T, items>;
  __shared__ typename Reduce::TempStorage storage;
  const T sum = Reduce(storage).Sum(in[blockIdx.x * items + threadIdx.x]);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
)",
                                    {"reduce<float, 128>", "reduce<int, 256>"});
  const auto binary = cuda::compile_for(request, "sm_90");
  ASSERT_TRUE(binary) << binary.error().describe().substr(0, 2000);
  EXPECT_EQ(cuda::parts_of(*binary, cuda::ImageKind::cubin).value().entries.size(), 2U);
}

TEST_F(CudaToolkit, AKernelOfLibcuxxCompiles) {
  const auto binary = cuda::compile_for(including("cuda/std/array", R"(
#include <cuda/atomic>
__global__ void count(int* total, cuda::std::array<int, 4> numbers) {
  cuda::atomic_ref<int, cuda::thread_scope_device> sum(*total);
  sum.fetch_add(numbers[threadIdx.x % 4], cuda::std::memory_order_relaxed);
}
)",
                                                  {"count"}),
                                        "sm_90");
  EXPECT_TRUE(binary) << binary.error().describe().substr(0, 2000);
}

TEST_F(CudaToolkit, HeadersThatAreEditedAreNoticedAndACopyElsewhereIsTheSame) {
  const fakes::TemporaryFolder folder;
  const auto toolkit = key::toolkit_folders(Language::cuda).front();
  const auto copy = folder.path() / "cuda/include";
  std::filesystem::create_directories(copy);
  for (const char* header : {"cuda_fp16.h", "cuda_fp16.hpp", "vector_types.h", "nv/target",
                             "nv/detail/__target_macros", "nv/detail/__preprocessor"})
    for (const auto& place : key::toolkit_folders(Language::cuda))
      if (std::filesystem::exists(place / header)) {
        std::filesystem::create_directories((copy / header).parent_path());
        std::filesystem::copy_file(place / header, copy / header, std::filesystem::copy_options::skip_existing);
      }
  std::filesystem::create_directory(folder.path() / "other");
  std::filesystem::copy(copy, folder.path() / "other/include", std::filesystem::copy_options::recursive);
  const auto key_with = [](const std::filesystem::path& home) {
    return fakes::in_child([&]() -> std::string {
      setenv("CUDA_HOME", home.c_str(), 1);
      const Request request = including("cuda_fp16.h");
      if (request.include_folders().at(0) != home / "include") return "another toolkit";
      return request.key().digest.hex();
    });
  };
  const std::string before = key_with(folder.path() / "cuda");
  EXPECT_EQ(before.size(), 64U) << before;
  EXPECT_EQ(key_with(folder.path() / "other"), before);
  fakes::write_file(folder.path() / "other/include/cuda_fp16.hpp",
                    fakes::read_file(copy / "cuda_fp16.hpp") + "// edited\n");
  EXPECT_NE(key_with(folder.path() / "other"), before);
}

TEST_F(CudaToolkit, ProgramsForAGpuThatIsNotHereAreCompiledOnce) {
  const fakes::TemporaryFolder folder;
  const Request request = including("cuda_fp16.h");
  for (const bool again : {false, true}) {
    Cache cache(backend::open_offline("sm_90").value(), {.directory = folder.path()});
    EXPECT_EQ(cache.get(request).value().origin(), again ? Origin::disk : Origin::compiled);
  }
}

TEST_F(CudaToolkit, EntryPointsOfAProgramForAGpuThatIsNotHereAreFoundByName) {
  const auto offline = backend::open_offline("sm_90").value();
  const auto compile = [&](std::vector<std::string> entries) {
    return offline
        ->compile(Request({.name = "two",
                           .source = "template <class T> __global__ void scale(T* x) { *x *= 2; }\n",
                           .entries = std::move(entries),
                           .language = Language::cuda}))
        .value();
  };
  const Compiled two = compile({"scale<float>", "scale<int>"});
  Module* entry = two.module->entry("scale<int>");
  ASSERT_NE(entry, nullptr);
  EXPECT_NE(entry, two.module.get());
  EXPECT_EQ(entry->entries(), std::vector<std::string>{"scale<int>"});
  EXPECT_EQ(entry->entry("scale<int>"), entry);
  EXPECT_EQ(two.module->entry("scale"), nullptr);
  const Compiled one = compile({"scale<float>"});
  EXPECT_EQ(one.module->entry("scale<float>"), one.module.get());
}

TEST_F(CudaToolkit, ArchitecturesThatAreNoneAreRefusedByName) {
  const Request request = including("cuda_fp16.h");
  for (const char* architecture :
       {"", "sm_", "90", "sm_90x", "compute_", "compute_90x", "gfx906", "sm_-1", "sm_90 ", "sm_090", "sm_0"})
    EXPECT_EQ(cuda::compile_for(request, architecture).error().code(), ErrorCode::invalid_request) << architecture;
  const auto unknown = cuda::compile_for(request, "sm_33");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), ErrorCode::unsupported);
  EXPECT_NE(unknown.error().message().find("sm_90"), std::string::npos) << unknown.error().message();
  EXPECT_TRUE(cuda::compile_for(request, "sm_90a"));
  const Request other({.name = "x", .source = "x", .language = Language::hip});
  EXPECT_EQ(cuda::compile_for(other, "sm_90").error().code(), ErrorCode::invalid_request);
}

TEST_F(CudaToolkit, ArchitecturesWithASuffixAreOptionsOfRequestsAndNotOfDevices) {
  const auto opened = backend::open_offline("sm_90a");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(opened.error().message(),
            "no device has the architecture sm_90a; compile for sm_90 with the option -arch=sm_90a (--arch sm_90 "
            "--option=-arch=sm_90a)");
  EXPECT_EQ(backend::open_offline("sm_090").error().message(),
            "\"sm_090\" is not an NVIDIA architecture: write sm_ and a number without leading zeros, as in sm_90, "
            "or compute_90 for PTX");
}

TEST_F(CudaToolkit, OptionsThatSelectAnArchitectureOfAnotherNumberAreRefused) {
  const auto compile = [](std::vector<std::string> options) {
    return cuda::compile_for(Request({.name = "nothing",
                                      .source = "extern \"C\" __global__ void nothing() {}\n",
                                      .language = Language::cuda,
                                      .options = std::move(options)}),
                             "sm_90");
  };
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"-arch=sm_80"},
                                             {"-arch", "sm_80"},
                                             {" -arch=sm_80"},
                                             {"--gpu-architecture=sm_100a"},
                                             {"--gpu-architecture", "compute_80"},
                                             {"-arch=sm_90", "-arch=sm_80"}}) {
    const auto binary = compile(options);
    ASSERT_FALSE(binary) << options.back();
    EXPECT_EQ(binary.error().code(), ErrorCode::invalid_request) << binary.error().message();
  }
  EXPECT_EQ(
      compile({"-arch=sm_80"}).error().message(),
      "nothing has an option that selects sm_80, but is compiled for sm_90; remove the option, or compile for "
      "sm_80");
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"-arch=sm_90"}, {"-arch", "sm_90"}, {"--gpu-architecture=sm_90a"}}) {
    const auto binary = compile(options);
    EXPECT_TRUE(binary) << binary.error().message();
  }
  EXPECT_EQ(compile({"-arch"}).error().code(), ErrorCode::compile_failed);
}

}  // namespace
}  // namespace kiln
