#include <gtest/gtest.h>

#include <array>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <kiln/opencl.hpp>
#include <kiln/stream_executor.hpp>

#include "backend/opencl/library.hpp"
#include "backend/opencl/program.hpp"
#include "backend/quirks/nvidia_opencl.hpp"
#include "backend/quirks/opencl_loader.hpp"
#include "backend/sections.hpp"
#include "base/dynamic_library.hpp"
#include "fakes/cache_fixture.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

/// The real driver of this machine: PoCL where there is no GPU.
class OpenClDevice : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_device("opencl", book_.log(LogLevel::debug));
    if (!opened) GTEST_SKIP() << opened.error().message();
    device_ = *opened;
  }

  static Request program(const std::string& arguments, const std::string& body = "") {
    return Request({.name = "odd",
                    .source = "__kernel void odd(" + arguments + ") { " + body + " }\n",
                    .entries = {"odd"},
                    .language = Language::opencl});
  }

  /// What a launch of one work item is refused with: of the program as compiled, and as loaded, which is the same.
  std::string refusal(const Request& request, Launch launch) {
    launch.group_size = {1, 1, 1};
    const Compiled compiled = device_->compile(request).value();
    const auto loaded = device_->load(compiled.binary.value()).value();
    const auto first = device_->launch(*compiled.module, launch);
    const auto second = device_->launch(*loaded, launch);
    if (first && second) return "none";
    if (first || second || first.error().message() != second.error().message()) return "not the same twice";
    EXPECT_EQ(first.error().code(), ErrorCode::invalid_request);
    return first.error().message();
  }

  /// How often PoCL was caught at leaving the program out of a binary.
  std::ptrdiff_t times_left_out() const {
    return std::ranges::count(book_.records(), "PoCL left the program out of the binary of odd",
                              &LogRecord::message);
  }

  fakes::LogBook book_;
  std::shared_ptr<Device> device_;
};

TEST_F(OpenClDevice, AnArgumentOfAnotherKindIsNamedWithItsNumber) {
  const auto buffer = device_->allocate(64).value();
  const std::vector<std::byte> parameters(8);
  EXPECT_EQ(
      refusal(program("__global float* a, __global float* b"), {.arguments = {buffer.get(), by_value(parameters)}}),
      "odd: argument 1 (float* b) takes a buffer; the launch has a value of 8 bytes");
  EXPECT_EQ(refusal(program("__constant float* a, ulong b"), {.arguments = {buffer.get(), buffer.get()}}),
            "odd: argument 1 (ulong b) takes a value; the launch has a buffer");
  EXPECT_EQ(refusal(program("__global float* a, __local float* b"), {.arguments = {buffer.get(), buffer.get()}}),
            "odd: argument 1 (float* b) takes local memory, as local(bytes); the launch has a buffer");
  EXPECT_EQ(refusal(program("__global float* a, __global float* b"), {.arguments = {buffer.get()}}),
            "odd takes 2 arguments; the launch has 1 and lacks argument 1 (float* b)");
}

TEST_F(OpenClDevice, ImagesAndSamplersCannotBeGiven) {
  const auto buffer = device_->allocate(64).value();
  EXPECT_EQ(refusal(program("__read_only image2d_t a"), {.arguments = {buffer.get()}}),
            "odd: argument 0 (image2d_t a) takes an image; the launch has a buffer");
  EXPECT_EQ(refusal(program("sampler_t a"), {.arguments = {8.0}}),
            "odd: argument 0 (sampler_t a) takes a sampler; the launch has a value of 8 bytes");
}

TEST_F(OpenClDevice, ASourceOfOnesOwnTakesBuffersAndOneValueOfAnyType) {
  const auto buffer = upload(*device_, std::vector<float>{1, 2}).value();
  const Launch launch{.arguments = {buffer, 3.0F}};
  EXPECT_EQ(refusal(program("__global float* a, float b", "a[0] *= b;"), launch), "none");
  EXPECT_EQ(download<float>(*device_, *buffer).value(), (std::vector<float>{9, 2})) << "compiled, and loaded";
  EXPECT_EQ(refusal(program(""), {}), "none");
}

// PoCL 3.1 takes the records of launches of different widths for each other, and aborts.
TEST_F(OpenClDevice, TakesWiderAndWiderLaunchesFromManyThreads) {
  constexpr std::uint32_t rounds = 300;
  constexpr std::uint32_t threads = 4;
  const auto compiled = device_->compile(program("__global float* a", "a[get_global_id(0) % 64] = 1;")).value();
  std::vector<std::jthread> all;
  for (std::uint32_t thread = 0; thread < threads; ++thread)
    all.emplace_back([&, thread] {
      const auto buffer = device_->allocate(256).value();
      for (std::uint32_t i = 1; i <= rounds; ++i)
        ASSERT_TRUE(device_->launch(
            *compiled.module,
            {.groups = {i * threads + thread, 1, 1}, .group_size = {64, 1, 1}, .arguments = {buffer.get()}}));
    });
}

class PoClBinary : public OpenClDevice {
 protected:
  void SetUp() override {
    OpenClDevice::SetUp();
    if (IsSkipped()) return;
    if (!image_of(compiled()).starts_with("poclbin")) GTEST_SKIP() << "this is not PoCL";
  }
  Binary compiled() { return device_->compile(program("__global float* a", "a[0] = 1;")).value().binary.value(); }
  /// A command that runs this test with PoCL's files in a folder, and tells it so.
  static std::string this_test_in(const std::filesystem::path& folder) {
    return fmt::format(
        "KILN_TEST_POCL='{0}' POCL_CACHE_DIR='{0}' '{1}' --gtest_brief=1 --gtest_filter=PoClBinary.{2}",
        folder.string(), std::filesystem::read_symlink("/proc/self/exe").string(),
        testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  static std::string image_of(const Binary& binary) {
    return std::string(backend::as_text(backend::unseal_sections(binary.bytes, 4).value()[3]));
  }
};

TEST_F(PoClBinary, WithoutItsProgramIsRefused) {
  const Binary good = compiled();
  std::string image = image_of(good);
  const std::size_t length = image.find("/program.bc") + std::strlen("/program.bc");
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, image.data() + length, sizeof bytes);
  image.replace(length, sizeof bytes + bytes, sizeof bytes, '\0');
  const auto sections = backend::unseal_sections(good.bytes, 4).value();
  const auto loaded = device_->load(
      {good.format, backend::seal_sections({sections[0], sections[1], sections[2], backend::as_section(image)})});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), ErrorCode::load_failed);
  EXPECT_EQ(loaded.error().message(), "the binary of odd is incomplete: PoCL left its program out");
}

// Each of four processes has the same programs compiled that nobody has compiled before.
TEST_F(PoClBinary, IsWholeWhereProcessesCompileTheSame) {
  constexpr int programs = 12;
  if (std::getenv("KILN_TEST_POCL") == nullptr) {
    const fakes::TemporaryFolder own;
    EXPECT_EQ(std::system(fmt::format("for i in 1 2 3 4; do {} & all=\"$all $!\"; done; "
                                      "for i in $all; do wait $i || exit 1; done",
                                      this_test_in(own.path()))
                              .c_str()),
              0);
    return;
  }
  for (int i = 0; i < programs; ++i) {
    const auto compiled = device_->compile(program("__global float* a", fmt::format("a[0] = {};", i)));
    ASSERT_TRUE(compiled) << compiled.error().message();
    ASSERT_TRUE(compiled->binary);
    EXPECT_TRUE(device_->load(*compiled->binary));
  }
  EXPECT_EQ(times_left_out(), 0) << "the first time as well";
}

TEST_F(PoClBinary, IsMadeByOneAtATime) {
  using namespace std::chrono_literals;
  const auto cl = opencl::Library::open().value();
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  ASSERT_EQ(cl->clGetPlatformIDs(1, &platform, nullptr), CL_SUCCESS);
  ASSERT_EQ(cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), CL_SUCCESS);
  const auto cache = backend::quirks::PoclKernelCache::of(*cl, device, book_.log());
  const auto other = backend::quirks::PoclKernelCache::of(*cl, device, book_.log());
  if (!cache) GTEST_SKIP() << "this PoCL does not need the lock";
  std::optional lock = cache->lock("some text", "-w", 0ms);
  EXPECT_TRUE(lock->held());
  EXPECT_FALSE(cache->lock("some text", "-w", 0ms).held()) << "in the same process";
  EXPECT_FALSE(other->lock("some text", "-w", 1ms).held());
  EXPECT_TRUE(other->lock("another text", "-w", 0ms).held());
  EXPECT_TRUE(other->lock("some text", "", 0ms).held());
  lock.reset();
  EXPECT_TRUE(other->lock("some text", "-w", 0ms).held());
}

TEST(PoclQuirks, ApplyToTheVersionsThatHaveTheBug) {
  const std::string pocl = "OpenCL 3.0 pocl HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512";
  const std::string later = "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-haswell";
  const auto kernel_cache = [](const std::string& device, const char* driver) {
    return backend::quirks::PoclKernelCache::affects(device, driver);
  };
  const auto dlhandle_cache = [](const std::string& device, const char* driver) {
    return backend::quirks::PoclDlhandleCache::affects(device, driver);
  };
  EXPECT_TRUE(kernel_cache(pocl, "3.1+debian"));
  EXPECT_TRUE(kernel_cache(later, "5.0"));
  EXPECT_FALSE(kernel_cache(later, "6.0"));
  EXPECT_FALSE(kernel_cache(later, "10.2"));
  EXPECT_TRUE(dlhandle_cache(pocl, "3.1+debian"));
  EXPECT_TRUE(dlhandle_cache(later, "6.0"));
  EXPECT_FALSE(dlhandle_cache(later, "7.0-pre"));
  EXPECT_TRUE(kernel_cache(pocl, "unknown") && dlhandle_cache(pocl, "")) << "assume the bug if in doubt";
  EXPECT_FALSE(kernel_cache("OpenCL 3.0 CUDA", "560.35.03")) << "another driver";
  EXPECT_FALSE(dlhandle_cache("OpenCL 3.0 CUDA", "560.35.03"));
}

TEST(NvidiaOpenClQuirk, AppliesToNvidiaAlone) {
  EXPECT_TRUE(backend::quirks::NvidiaOpenCl::affects("NVIDIA Corporation"));
  EXPECT_FALSE(backend::quirks::NvidiaOpenCl::affects("GenuineIntel"));
  EXPECT_FALSE(backend::quirks::NvidiaOpenCl::affects(""));
}

TEST(OpenClError, OfALostDeviceSaysToOpenItAnew) {
  const auto message = [](cl_int error) { return opencl::cl_error(error, "launching odd").message(); };
  EXPECT_EQ(message(-9999),
            "OpenCL error -9999 (illegal memory access) while launching odd: the device was lost; open it again");
  EXPECT_EQ(message(CL_INVALID_COMMAND_QUEUE),
            "OpenCL error CL_INVALID_COMMAND_QUEUE while launching odd: the device was lost; open it again");
  EXPECT_EQ(message(CL_DEVICE_NOT_AVAILABLE),
            "OpenCL error CL_DEVICE_NOT_AVAILABLE while launching odd: the device was lost; open it again");
  EXPECT_NE(message(CL_OUT_OF_RESOURCES).find("open it again"), std::string::npos) << message(CL_OUT_OF_RESOURCES);
  EXPECT_EQ(message(CL_INVALID_VALUE), "OpenCL error CL_INVALID_VALUE while launching odd");
}

/// A context of the caller's own, made without Kiln's backend.
class OpenClAdopt : public OpenClDevice {
 protected:
  void SetUp() override {
    OpenClDevice::SetUp();
    if (IsSkipped()) return;
    cl_ = opencl::Library::open().value();
    cl_platform_id platform = nullptr;
    ASSERT_EQ(cl_->clGetPlatformIDs(1, &platform, nullptr), CL_SUCCESS);
    ASSERT_EQ(cl_->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &mine_, nullptr), CL_SUCCESS);
    context_ = cl_->clCreateContext(nullptr, 1, &mine_, nullptr, nullptr, nullptr);
    ASSERT_NE(context_, nullptr);
  }
  void TearDown() override {
    if (context_ != nullptr) cl_->clReleaseContext(context_);
  }

  std::shared_ptr<const opencl::Library> cl_;
  cl_device_id mine_ = nullptr;
  cl_context context_ = nullptr;
};

/// What PoCL's clGetProgramInfo does while another process, without Kiln, compiles the same.
class PoClLeavesOut : public OpenClAdopt {
 protected:
  void SetUp() override {
    OpenClAdopt::SetUp();
    if (IsSkipped()) return;
    auto library = std::const_pointer_cast<opencl::Library>(cl_);
    really_ = std::exchange(library->clGetProgramInfo, &without_program);
    const auto context = std::make_shared<const opencl::Context>(library, std::exchange(context_, nullptr), mine_,
                                                                 book_.log(LogLevel::debug));
    if (!context->pocl_kernel_cache()) GTEST_SKIP() << "this driver does not need the work-around";
    compile_ = [=] { return opencl::BuiltProgram::compile(context, program("__global float* a", "a[0] = 2;")); };
  }

  static cl_int without_program(cl_program program, cl_program_info what, std::size_t size, void* value,
                                std::size_t* needed) {
    const cl_int error = really_(program, what, size, value, needed);
    if (what != CL_PROGRAM_BINARIES || ++asked_ > times_) return error;
    unsigned char* image = *static_cast<unsigned char**>(value);
    const std::string_view name = "/program.bc";
    std::size_t at = 0;
    while (std::memcmp(image + at, name.data(), name.size()) != 0) ++at;
    std::memset(image + at + name.size(), 0, sizeof(std::uint32_t));
    return error;
  }

  static inline decltype(&::clGetProgramInfo) really_ = nullptr;
  static inline int times_ = 0;
  static inline int asked_ = 0;
  std::function<Result<Compiled>()> compile_;
};

TEST_F(PoClLeavesOut, TheProgramAndItIsCompiledAgain) {
  asked_ = 0;
  times_ = 3;
  const auto compiled = compile_();
  ASSERT_TRUE(compiled) << compiled.error().message();
  EXPECT_EQ(asked_, 4);
  EXPECT_EQ(times_left_out(), 3);
  EXPECT_TRUE(device_->load(compiled->binary.value()));
}

TEST_F(PoClLeavesOut, TheProgramAlwaysAndItHasNoBinary) {
  asked_ = 0;
  times_ = 1000;
  const auto compiled = compile_();
  ASSERT_TRUE(compiled) << compiled.error().message();
  EXPECT_FALSE(compiled->binary);
  EXPECT_LT(asked_, 100);
  EXPECT_NE(compiled->module, nullptr);
}

TEST_F(OpenClAdopt, AProgramThatPoClCompletesAtItsFirstLaunchIsReportedUntilThen) {
  if (!opencl::pocl_major_version(cl_->text(mine_, CL_DEVICE_VERSION), cl_->text(mine_, CL_DRIVER_VERSION)))
    GTEST_SKIP() << "the driver is not PoCL";
  // A text that PoCL has never compiled.
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const Request request(
      {.name = "new",
       .source = fmt::format("__kernel void set(__global float* a) {{ a[0] = {}; }}\n", now % 1'000'000),
       .language = Language::opencl});
  CacheOptions options;
  const fakes::TemporaryFolder folder;
  options.directory = folder.path();
  {
    Cache cache(device_, options);
    EXPECT_TRUE(cache.get(request).value().is_complete()) << "compiled here";
    EXPECT_EQ(cache.stats().incomplete, 0U);
  }
  Cache cache(device_, options);
  const Program loaded = cache.get(request).value();
  EXPECT_EQ(loaded.origin(), Origin::disk);
  EXPECT_FALSE(loaded.is_complete());
  EXPECT_EQ(cache.stats().incomplete, 1U);
  const auto buffer = upload(*device_, std::vector<float>(64, 0)).value();
  device_->launch(loaded.module(), {.group_size = {8, 1, 1}, .arguments = {buffer.get()}}).value();
  Cache later(device_, options);
  EXPECT_TRUE(later.get(request).value().is_complete());
  EXPECT_EQ(later.stats().incomplete, 0U);
}

TEST_F(OpenClAdopt, BuffersCanBeUsedWithTheCallersQueues) {
  const auto device = opencl::adopt(context_, mine_, book_.log()).value();
  EXPECT_EQ(device->info().name, "opencl:adopted");
  const auto buffer = upload(*device, std::vector<float>{1, 2}).value();
  cl_command_queue queue = cl_->clCreateCommandQueue(context_, mine_, 0, nullptr);
  float second = 0;
  EXPECT_EQ(cl_->clEnqueueReadBuffer(queue, opencl::memory(*buffer), CL_TRUE, sizeof second, sizeof second, &second,
                                     0, nullptr, nullptr),
            CL_SUCCESS);
  EXPECT_EQ(second, 2);
  cl_->clReleaseCommandQueue(queue);
}

TEST_F(OpenClAdopt, LaunchesOnTheCallersQueueWithTheCallersMemoryImagesAndSamplers) {
  const auto device = opencl::adopt(context_, mine_, book_.log()).value();
  const auto compiled = device
                            ->compile(Request({.name = "look",
                                               .source = R"(
__kernel void look(float more, read_only image2d_t image, sampler_t sampler, __global float* to) {
  const int i = get_global_id(0);
  to[i] = read_imagef(image, sampler, (int2)(i, 0)).x + more;
}
)",
                                               .language = Language::opencl}))
                            .value();
  cl_command_queue queue = cl_->clCreateCommandQueue(context_, mine_, 0, nullptr);
  std::array<float, 8> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  const cl_image_format format{CL_R, CL_FLOAT};
  cl_image_desc of{};
  of.image_type = CL_MEM_OBJECT_IMAGE2D;
  of.image_width = numbers.size();
  of.image_height = 1;
  const auto library = base::DynamicLibrary::open("libOpenCL.so.1").value();
  cl_mem image = library.function<decltype(clCreateImage)>("clCreateImage")(
      context_, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &of, numbers.data(), nullptr);
  cl_sampler sampler = library.function<decltype(clCreateSampler)>("clCreateSampler")(
      context_, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, nullptr);
  cl_mem memory = cl_->clCreateBuffer(context_, CL_MEM_READ_WRITE, sizeof numbers, nullptr, nullptr);
  {
    const auto to = opencl::wrap(*device, memory).value();
    EXPECT_EQ(to->size(), sizeof numbers);
    const auto stream = opencl::stream(*device, queue).value();
    const auto launch = [&](std::vector<Argument> arguments) {
      return stream->launch(*compiled.module,
                            {.groups = {2}, .group_size = {4}, .arguments = std::move(arguments)});
    };
    launch({0.5F, opencl::image(image), opencl::sampler(sampler), to}).value();
    std::array<float, 8> result = {};
    EXPECT_EQ(
        cl_->clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof result, result.data(), 0, nullptr, nullptr),
        CL_SUCCESS);
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(result[i], numbers[i] + 0.5F);
    EXPECT_EQ(launch({0.5F, opencl::sampler(sampler), opencl::image(image), to}).error().message(),
              "look: argument 1 (image2d_t image) takes an image; the launch has a sampler");
    EXPECT_EQ(launch({0.5F, to, opencl::sampler(sampler), to}).error().code(), ErrorCode::invalid_request);
    EXPECT_EQ(opencl::wrap(*device, image).error().message(),
              "the memory object is not a buffer; pass images by opencl::image()");
  }
  EXPECT_EQ(opencl::wrap(*device, nullptr).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(opencl::stream(*device, nullptr).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(opencl::wrap(*device_, memory).error().code(), ErrorCode::invalid_request) << "of another context";
  EXPECT_EQ(opencl::stream(*device_, queue).error().code(), ErrorCode::invalid_request) << "of another context";
  cl_->clReleaseMemObject(memory);
  cl_->clReleaseMemObject(image);
  library.function<decltype(clReleaseSampler)>("clReleaseSampler")(sampler);
  cl_->clReleaseCommandQueue(queue);
}

TEST_F(OpenClAdopt, StreamsWaitForAndSignalTheCallersEvents) {
  const auto device = opencl::adopt(context_, mine_, book_.log()).value();
  cl_command_queue queue = cl_->clCreateCommandQueue(context_, mine_, 0, nullptr);
  const auto library = base::DynamicLibrary::open("libOpenCL.so.1").value();
  const Compiled twice =
      device
          ->compile(Request({.name = "twice",
                             .source = "__kernel void twice(__global float* x, float offset) {\n"
                                       "  x[get_global_id(0)] = 2 * x[get_global_id(0)] + offset;\n}\n",
                             .language = Language::opencl}))
          .value();
  {
    const auto x = upload(*device, std::vector<float>(64, 1)).value();
    const auto stream = opencl::stream(*device, queue).value();
    cl_int error = 0;
    cl_event may_begin = library.function<decltype(clCreateUserEvent)>("clCreateUserEvent")(context_, &error);
    cl_event ended = nullptr;
    const auto barrier = library.function<decltype(clEnqueueBarrierWithWaitList)>("clEnqueueBarrierWithWaitList");
    ASSERT_EQ(barrier(queue, 1, &may_begin, nullptr), CL_SUCCESS);
    stream->launch(*twice.module, {.groups = {1}, .group_size = {64}, .arguments = {x, 3.0F}}).value();
    ASSERT_EQ(cl_->clEnqueueMarkerWithWaitList(queue, 0, nullptr, &ended), CL_SUCCESS);
    cl_->clFlush(queue);
    cl_int state = CL_COMPLETE;
    cl_->clGetEventInfo(ended, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
    EXPECT_NE(state, CL_COMPLETE);
    library.function<decltype(clSetUserEventStatus)>("clSetUserEventStatus")(may_begin, CL_COMPLETE);
    EXPECT_EQ(cl_->clWaitForEvents(1, &ended), CL_SUCCESS);
    EXPECT_EQ(download<float>(*device, *x).value(), std::vector<float>(64, 5));
    cl_->clReleaseEvent(may_begin);
    cl_->clReleaseEvent(ended);
  }
  cl_->clReleaseCommandQueue(queue);
}

TEST_F(OpenClAdopt, JobsAreRefusedOnAQueueThatIsNotInOrder) {
  const auto device = opencl::adopt(context_, mine_, book_.log()).value();
  cl_command_queue queue =
      cl_->clCreateCommandQueue(context_, mine_, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, nullptr);
  if (queue == nullptr) GTEST_SKIP() << "the device has no out-of-order queues";
  {
    const auto stream = opencl::stream(*device, queue).value();
    EXPECT_FALSE(stream->in_order());
    Cache cache(device, {.disk = false});
    StreamExecutor executor(cache, *stream);
    EXPECT_EQ(executor.submit({.name = "steps"}).error().message(),
              "steps: the steps of a job must run in order, but the queue is out-of-order");
  }
  cl_->clReleaseCommandQueue(queue);
}

TEST_F(OpenClAdopt, ADeviceOfAnotherContextCannotBeAdopted) {
  int no_device = 0;
  const auto result = opencl::adopt(context_, reinterpret_cast<cl_device_id>(&no_device), book_.log());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(result.error().message(), "the device to adopt is not in the cl_context, whose device count is 1");
  EXPECT_EQ(opencl::adopt(nullptr, mine_).error().code(), ErrorCode::invalid_request);
}

/// What the Khronos loader does to a list of files.
void take_apart(const char* name) {
  for (char* colon = std::getenv(name); (colon = std::strchr(colon, ':')) != nullptr; ++colon) *colon = '\0';
}

TEST(OpenClLoader, LeavesTheListsOfDriversAndLayersAsTheyWere) {
  setenv("OCL_ICD_FILENAMES", "libfirst.so:libsecond.so:libthird.so", 1);
  setenv("OPENCL_LAYERS", "libone.so", 1);
  {
    const backend::quirks::KeepOpenClVariables keep_variables;
    take_apart("OCL_ICD_FILENAMES");
    ASSERT_STREQ(std::getenv("OCL_ICD_FILENAMES"), "libfirst.so");
  }
  EXPECT_STREQ(std::getenv("OCL_ICD_FILENAMES"), "libfirst.so:libsecond.so:libthird.so");
  EXPECT_STREQ(std::getenv("OPENCL_LAYERS"), "libone.so");
  unsetenv("OCL_ICD_FILENAMES");
  unsetenv("OPENCL_LAYERS");
  const backend::quirks::KeepOpenClVariables nothing_to_keep;
}

}  // namespace
}  // namespace kiln
