#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>
#include <kiln/stream_executor.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/cuda_samples.hpp"
#include "backend/offline.hpp"
#include "base/dynamic_library.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using fakes::cuda_launch;
using fakes::cuda_scale;
using fakes::cuda_scales;

/// A real NVIDIA GPU; the tests are left out where there is none.
class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    auto device = open_device("cuda");
    if (!device) GTEST_SKIP() << device.error().message();
    device_ = std::move(*device);
  }

  std::shared_ptr<Device> device_;
};

TEST_F(CudaDevice, KnowsWhatItIs) {
  const Identity& identity = device_->identity();
  EXPECT_EQ(identity.api, "cuda");
  EXPECT_EQ(identity.vendor, "NVIDIA");
  EXPECT_TRUE(identity.device.starts_with("sm_")) << identity.device;
  EXPECT_TRUE(identity.driver.starts_with("CUDA ")) << identity.driver;
  EXPECT_TRUE(identity.compiler.starts_with("NVRTC ")) << identity.compiler;
  EXPECT_EQ(identity.formats.size(), 1U);
  EXPECT_FALSE(device_->info().label.empty());
  EXPECT_GE(device_->info().limits.max_group_items, 512U);
  EXPECT_GE(device_->info().limits.shared_bytes, 32768U);
  EXPECT_EQ(open_device("cuda").value()->identity(), identity);
}

TEST_F(CudaDevice, CompilesLaunchesAndReadsBack) {
  const Compiled compiled = device_->compile(cuda_scale(3)).value();
  EXPECT_TRUE(cuda_scales(*device_, *compiled.module, 3, 0.5F));
}

TEST_F(CudaDevice, ABinaryLoadsToTheSameProgram) {
  const Compiled compiled = device_->compile(cuda_scale(3)).value();
  const auto loaded = device_->load(compiled.binary.value()).value();
  EXPECT_TRUE(cuda_scales(*device_, *loaded, 3, 1));
}

TEST_F(CudaDevice, RefusesDamagedBinaries) {
  const Binary binary = device_->compile(cuda_scale(3)).value().binary.value();
  Binary other = binary;
  other.format += 7;
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
  other = binary;
  other.bytes.resize(other.bytes.size() / 2);
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
  other.bytes.assign(binary.bytes.size(), std::byte{0});
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
  other.bytes.clear();
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
}

/// What NVRTC makes for an architecture, and its target.
struct ForTarget {
  Identity target;
  Binary binary;
};

ForTarget compiled_for(std::string_view architecture) {
  return {cuda::identity_for(architecture).value(), cuda::compile_for(cuda_scale(3), architecture).value()};
}

TEST_F(CudaDevice, LoadsWhatWasCompiledForItsArchitectureElsewhere) {
  const auto [target, binary] = compiled_for(device_->info().traits.architecture);
  EXPECT_GT(device_->accepts(target), 0U);
  EXPECT_TRUE(cuda_scales(*device_, *device_->adapt(target, binary).value().module, 3, 1));
}

TEST_F(CudaDevice, MakesABinaryOfItsOwnFromPtx) {
  const auto [target, binary] = compiled_for("compute_75");
  EXPECT_GT(device_->accepts(target), 0U);
  EXPECT_LT(device_->accepts(target), device_->accepts(device_->identity()));
  const Compiled adapted = device_->adapt(target, binary).value();
  EXPECT_TRUE(cuda_scales(*device_, *adapted.module, 3, 1));
  ASSERT_TRUE(adapted.binary);
  EXPECT_TRUE(cuda_scales(*device_, *device_->load(*adapted.binary).value(), 3, 1));
}

TEST_F(CudaDevice, RefusesPtxThatIsNewerThanTheDriver) {
  const auto [target, binary] = compiled_for("compute_75");
  const auto parts = cuda::parts_of(binary, cuda::ImageKind::ptx).value();
  std::string text = fakes::text_of(parts.image);
  const std::size_t version = text.find(".version ") + std::string_view(".version ").size();
  text.replace(version, text.find('\n', version) - version, "99.0");
  const auto bytes = std::as_bytes(std::span(text));
  const Binary newer =
      cuda::to_binary(cuda::ImageKind::ptx, {{bytes.begin(), bytes.end()}, parts.entries}, "newer");
  EXPECT_EQ(device_->adapt(target, newer).error().code(), ErrorCode::load_failed);
}

TEST_F(CudaDevice, RefusesMachineCodeOfOtherArchitectures) {
  for (const std::string& architecture : backend::cuda_architectures().value()) {
    const auto [target, binary] = compiled_for(architecture);
    const auto adapted = device_->adapt(target, binary);
    if (device_->accepts(target) == 0) {
      ASSERT_FALSE(adapted) << architecture;
      EXPECT_EQ(adapted.error().code(), ErrorCode::load_failed) << architecture;
    } else {
      EXPECT_TRUE(adapted) << architecture;
    }
  }
}

TEST_F(CudaDevice, AnEntryThatIsNotThereIsACompileError) {
  const auto result = device_->compile(Request({.name = "conv",
                                                .source = "__global__ void conv(float* x) { *x = 1; }\n",
                                                .entries = {"convolve"},
                                                .language = Language::cuda}));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
  EXPECT_NE(result.error().message().find("convolve"), std::string::npos) << result.error().message();
}

TEST_F(CudaDevice, RunsFromSixteenThreadsAtOnce) {
  const Compiled compiled = device_->compile(cuda_scale(2)).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round)
        if (!cuda_scales(*device_, *compiled.module, 2, static_cast<float>(t))) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CudaDevice, AnAllocationThatCannotBeIsOutOfMemory) {
  for (const int shift : {45, 50, 62}) {
    const auto result = device_->allocate(std::size_t{1} << shift);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::out_of_memory) << result.error().message();
  }
  const auto nothing = device_->allocate(0).value();
  EXPECT_EQ(nothing->size(), 0U);
  EXPECT_TRUE(device_->write(*nothing, {}));
  EXPECT_TRUE(device_->read(*nothing, {}));
}

TEST_F(CudaDevice, LaunchesThatCannotBeAreErrors) {
  const Compiled compiled = device_->compile(cuda_scale(1)).value();
  const auto buffer = device_->allocate(1024).value();
  const auto code = [&](auto change) {
    Launch launch = cuda_launch(*buffer, 1);
    change(launch);
    const auto result = device_->launch(*compiled.module, launch);
    EXPECT_FALSE(result);
    return result ? ErrorCode::io : result.error().code();
  };
  EXPECT_EQ(code([](Launch& l) { l.group_size = {0, 0, 0}; }), ErrorCode::invalid_request);
  EXPECT_EQ(code([](Launch& l) { l.group_size = {2048, 1, 1}; }), ErrorCode::invalid_request);
  EXPECT_EQ(code([](Launch& l) { l.group_size = {1024, 2, 1}; }), ErrorCode::invalid_request);
  EXPECT_EQ(code([](Launch& l) { l.groups = {1, 1, 1U << 20}; }), ErrorCode::invalid_request);
  EXPECT_EQ(code([](Launch& l) {
              l.arguments = {static_cast<const Buffer*>(nullptr), 1.0F};
            }),
            ErrorCode::invalid_request);
  const auto& function = dynamic_cast<cuda::Module&>(*compiled.module);
  EXPECT_NE(function.native(), nullptr);
  EXPECT_NE(function.function(), nullptr);
  EXPECT_EQ(code([](Launch& l) { l.arguments[1] = 1.0; }), ErrorCode::invalid_request);
  EXPECT_EQ(code([](Launch& l) { l.arguments.pop_back(); }), ErrorCode::invalid_request);
  EXPECT_EQ(code([](Launch& l) { l.arguments.insert(l.arguments.begin(), l.arguments[0]); }),
            ErrorCode::invalid_request);
  EXPECT_TRUE(cuda_scales(*device_, *compiled.module, 1, 2)) << "and the device is none the worse";
}

TEST_F(CudaDevice, OutlivedByItsProgramsAndMemory) {
  auto compiled = device_->compile(cuda_scale(2)).value();
  auto buffer = device_->allocate(16).value();
  device_.reset();
  std::thread([module = std::move(compiled.module), memory = std::move(buffer)]() mutable {
    module.reset();
    memory.reset();
  }).join();
}

TEST_F(CudaDevice, GivesTheCacheWhatItKeeps) {
  const fakes::TemporaryFolder folder;
  CacheOptions options;
  options.directory = folder.path() / "cache";
  for (int round = 0; round < 2; ++round) {
    Cache cache(device_, options);
    const Program program = cache.get(cuda_scale(4)).value();
    EXPECT_TRUE(cuda_scales(*device_, program.as<cuda::Module>(), 4, 1));
    EXPECT_EQ(cache.stats().compiles, round == 0 ? 1U : 0U);
  }
}

/// A context of the caller's own.
class OwnContext {
 public:
  OwnContext() : library_(base::DynamicLibrary::open("libcuda.so.1").value()) {
    library_.function<int(CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&context_, 0);
  }
  ~OwnContext() { library_.function<int(int)>("cuDevicePrimaryCtxRelease_v2")(0); }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;

  CUcontext get() const noexcept { return context_; }
  CUcontext current() const {
    CUcontext context = nullptr;
    library_.function<int(CUcontext*)>("cuCtxGetCurrent")(&context);
    return context;
  }

 private:
  base::DynamicLibrary library_;
  CUcontext context_ = nullptr;
};

TEST_F(CudaDevice, AdoptsAContextAndLeavesWhatIsCurrent) {
  const OwnContext own;
  ASSERT_NE(own.get(), nullptr);
  const CUcontext before = own.current();
  const auto adopted = cuda::adopt(own.get()).value();
  EXPECT_EQ(adopted->info().name, "cuda:adopted");
  EXPECT_EQ(adopted->identity(), device_->identity());
  const Compiled compiled = adopted->compile(cuda_scale(5)).value();
  EXPECT_TRUE(cuda_scales(*adopted, *compiled.module, 5, 1));
  EXPECT_EQ(own.current(), before);
  const auto buffer = device_->allocate(1024).value();
  EXPECT_EQ(adopted->launch(*compiled.module, cuda_launch(*buffer, 1)).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(cuda::adopt(nullptr).error().code(), ErrorCode::invalid_request);
}

/// The caller's own stream and memory, in the primary context, which open_device() uses too.
class CudaOwn : public CudaDevice {
 protected:
  void SetUp() override {
    CudaDevice::SetUp();
    if (IsSkipped()) return;
    library_ = base::DynamicLibrary::open("libcuda.so.1").value();
    own_ = std::make_unique<OwnContext>();
    call<int(CUcontext)>("cuCtxPushCurrent_v2")(own_->get());
    ASSERT_EQ(call<int(CUstream*, unsigned)>("cuStreamCreate")(&stream_, 1), 0);
    ASSERT_EQ(call<int(std::uintptr_t*, std::size_t)>("cuMemAlloc_v2")(&memory_, 256 * sizeof(float)), 0);
    const std::vector<float> ones(256, 1.0F);
    call<int(std::uintptr_t, const void*, std::size_t)>("cuMemcpyHtoD_v2")(memory_, ones.data(), 1024);
    program_ = device_
                   ->compile(Request({.name = "own",
                                      .source = "extern \"C\" __global__ void add(float more, float* to) {\n"
                                                "  to[blockIdx.x * blockDim.x + threadIdx.x] += more;\n}\n",
                                      .language = Language::cuda}))
                   .value()
                   .module;
  }
  void TearDown() override {
    if (own_ == nullptr) return;
    program_.reset();
    call<int(std::uintptr_t)>("cuMemFree_v2")(memory_);
    call<int(CUstream)>("cuStreamDestroy_v2")(stream_);
    CUcontext popped = nullptr;
    call<int(CUcontext*)>("cuCtxPopCurrent_v2")(&popped);
  }
  template <class Function>
  Function* call(const char* name) const {
    return library_->function<Function>(name);
  }
  std::vector<float> numbers() const {
    std::vector<float> result(256);
    call<int(CUstream)>("cuStreamSynchronize")(stream_);
    call<int(void*, std::uintptr_t, std::size_t)>("cuMemcpyDtoH_v2")(result.data(), memory_, 1024);
    return result;
  }

  std::unique_ptr<OwnContext> own_;
  std::optional<base::DynamicLibrary> library_;
  CUstream stream_ = nullptr;
  std::uintptr_t memory_ = 0;
  std::unique_ptr<Module> program_;
};

TEST_F(CudaOwn, MemoryAndStreamAreUsed) {
  const auto memory = cuda::wrap(*device_, memory_, 1024).value();
  EXPECT_EQ(memory->size(), 1024U);
  const auto stream = cuda::stream(*device_, stream_).value();
  stream->launch(*program_, {.groups = {4}, .group_size = {64}, .arguments = {2.0F, memory}}).value();
  EXPECT_EQ(numbers(), std::vector<float>(256, 3.0F));
  const auto on_default = cuda::stream(*device_, nullptr).value();
  on_default->launch(*program_, {.groups = {4}, .group_size = {64}, .arguments = {1.0F, memory_}}).value();
  call<int()>("cuCtxSynchronize")();
  EXPECT_EQ(numbers(), std::vector<float>(256, 4.0F)) << "an address is a value of 8 bytes too";
  EXPECT_EQ(cuda::wrap(*device_, memory_, std::size_t{1} << 50U).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(cuda::wrap(*device_, 0, 4).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(cuda::wrap(*device_, 4096, 4).error().code(), ErrorCode::invalid_request);
  std::uintptr_t freed = 0;
  ASSERT_EQ(call<int(std::uintptr_t*, std::size_t)>("cuMemAlloc_v2")(&freed, std::size_t{64} << 20U), 0);
  ASSERT_EQ(call<int(std::uintptr_t)>("cuMemFree_v2")(freed), 0);
  EXPECT_EQ(cuda::wrap(*device_, freed, 4).error().code(), ErrorCode::invalid_request);
}

TEST_F(CudaOwn, AStreamOfAnotherContextIsRefused) {
  CUcontext other = nullptr;
  int device = 0;
  call<int(int*, int)>("cuDeviceGet")(&device, 0);
  if (call<int(CUcontext*, unsigned, int)>("cuCtxCreate_v2")(&other, 0, device) != 0) GTEST_SKIP() << "no context";
  CUstream stream = nullptr;
  call<int(CUstream*, unsigned)>("cuStreamCreate")(&stream, 1);
  EXPECT_EQ(cuda::stream(*device_, stream).error().code(), ErrorCode::invalid_request);
  call<int(CUcontext)>("cuCtxDestroy_v2")(other);
}

TEST_F(CudaOwn, ALaunchIsCapturedIntoAGraphAndReplayed) {
  const auto stream = cuda::stream(*device_, stream_).value();
  const auto memory = cuda::wrap(*device_, memory_, 1024).value();
  // CU_STREAM_CAPTURE_MODE_GLOBAL, in which unsafe calls of any thread fail. The function is looked up in the
  // capture.
  ASSERT_EQ(call<int(CUstream, int)>("cuStreamBeginCapture_v2")(stream_, 0), 0);
  const auto launched = stream->launch(*program_, {.groups = {4}, .group_size = {64}, .arguments = {1.0F, memory}});
  EXPECT_TRUE(launched) << launched.error().message();
  void* graph = nullptr;
  ASSERT_EQ(call<int(CUstream, void**)>("cuStreamEndCapture")(stream_, &graph), 0);
  EXPECT_EQ(numbers(), std::vector<float>(256, 1.0F)) << "nothing ran yet";
  void* replay = nullptr;
  ASSERT_EQ(call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&replay, graph, 0), 0);
  for (int round = 0; round < 3; ++round)
    ASSERT_EQ(call<int(void*, CUstream)>("cuGraphLaunch")(replay, stream_), 0);
  EXPECT_EQ(numbers(), std::vector<float>(256, 4.0F));
  call<int(void*)>("cuGraphExecDestroy")(replay);
  call<int(void*)>("cuGraphDestroy")(graph);
}

TEST_F(CudaOwn, AJobIsCapturedIntoAGraphAndReplayed) {
  const auto stream = cuda::stream(*device_, stream_).value();
  const fakes::TemporaryFolder folder;
  Cache cache(device_, {.directory = folder.path()});
  StreamExecutor executor(cache, *stream);
  const std::shared_ptr<Buffer> memory = cuda::wrap(*device_, memory_, 1024).value();
  const Request set({.name = "set",
                     .source = "extern \"C\" __global__ void set(float to, float* numbers) {\n"
                               "  numbers[blockIdx.x * blockDim.x + threadIdx.x] = to;\n}\n",
                     .language = Language::cuda});
  const Request sum({.name = "sum",
                     .source = "extern \"C\" __global__ void sum(const float* more, float* numbers) {\n"
                               "  numbers[blockIdx.x * blockDim.x + threadIdx.x] +=\n"
                               "      more[blockIdx.x * blockDim.x + threadIdx.x];\n}\n",
                     .language = Language::cuda});
  const Job job{
      .memory = {{.bytes = 1024}, {.buffer = memory}},
      .steps = {{.request = set, .launch = {.groups = {4}, .group_size = {64}, .arguments = {3.0F, job_memory(0)}}},
                {.request = sum,
                 .launch = {.groups = {4}, .group_size = {64}, .arguments = {job_memory(0), job_memory(1)}}}}};
  // Programs are loaded and memory is allocated before the capture.
  executor.submit(job).value();
  EXPECT_EQ(numbers(), std::vector<float>(256, 4.0F));
  // Freed by a later call of hold(), which the capture must survive.
  stream->hold(std::shared_ptr<Buffer>(device_->allocate(1 << 20).value()));
  call<int(CUstream)>("cuStreamSynchronize")(stream_);
  ASSERT_EQ(call<int(CUstream, int)>("cuStreamBeginCapture_v2")(stream_, 0), 0);
  EXPECT_TRUE(stream->is_captured());
  const auto submitted = executor.submit(job);
  EXPECT_TRUE(submitted) << submitted.error().message();
  stream->hold(std::make_shared<int>(1));
  EXPECT_TRUE(device_->allocate(1 << 20)) << "freed at once, too";
  void* graph = nullptr;
  ASSERT_EQ(call<int(CUstream, void**)>("cuStreamEndCapture")(stream_, &graph), 0);
  EXPECT_FALSE(stream->is_captured());
  cache.trim();
  // Memory that a graph was lent is not lent again.
  Job other = job;
  other.memory.pop_back();
  other.steps.pop_back();
  other.steps[0].launch.arguments[0] = 100.0F;
  void* replay = nullptr;
  ASSERT_EQ(call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&replay, graph, 0), 0);
  CUstream another = nullptr;
  ASSERT_EQ(call<int(CUstream*, unsigned)>("cuStreamCreate")(&another, 1), 0);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(call<int(void*, CUstream)>("cuGraphLaunch")(replay, another), 0);
    for (int i = 0; i < 20; ++i) executor.submit(other).value();
  }
  call<int(CUstream)>("cuStreamSynchronize")(another);
  EXPECT_EQ(numbers(), std::vector<float>(256, 13.0F));
  call<int(CUstream)>("cuStreamDestroy_v2")(another);
  call<int(void*)>("cuGraphExecDestroy")(replay);
  call<int(void*)>("cuGraphDestroy")(graph);
}

TEST_F(CudaOwn, MoreSharedMemoryThanTheDefaultIsAllowed) {
  const Compiled compiled =
      device_
          ->compile(Request({.name = "shared",
                             .source = "extern \"C\" __global__ void last(unsigned n, float* to) {\n"
                                       "  extern __shared__ float numbers[];\n"
                                       "  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) numbers[i] = i;\n"
                                       "  __syncthreads();\n"
                                       "  if (threadIdx.x == 0) to[0] = numbers[n - 1];\n}\n",
                             .language = Language::cuda}))
          .value();
  const auto memory = cuda::wrap(*device_, memory_, 1024).value();
  std::vector<std::thread> threads;
  for (unsigned bytes : {60'000U, 40'000U, 50'000U, 90'000U})
    threads.emplace_back([&, bytes] {
      const auto to = device_->allocate(4).value();
      const auto launched = device_->launch(
          *compiled.module, {.group_size = {64}, .shared_bytes = bytes, .arguments = {bytes / 4, to}});
      EXPECT_TRUE(launched) << launched.error().message();
      EXPECT_EQ(download<float>(*device_, *to).value()[0], static_cast<float>(bytes / 4 - 1));
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kiln
