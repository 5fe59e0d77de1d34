#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <kiln/executor.hpp>
#include <kiln/slot.hpp>
#include <kiln/stream.hpp>

#include "contract/contract.hpp"

// Kernels with argument lists as existing programs have them.
namespace kiln::contract {
namespace {

constexpr std::size_t elements = 256;

struct Pair {
  std::int32_t first = 0;
  float second = 0;
};

/// Arguments that a pattern can have, by letter. `x` and `y` are the buffers that a kernel reads and writes.
///   x, y  buffers of floats      i  int       u  uint       f  float      d  double     l  64-bit int
///   s  short   c  char   v  four floats   p  a struct   n  a null pointer   m  shared memory
struct Letter {
  const char* type;
  /// What the kernel adds to its sum for argument {0}.
  const char* term;
  double value;
};

Letter letter(char code) {
  switch (code) {
    case 'i': return {"int", "(float){0}", 3};
    case 'u': return {"unsigned int", "(float){0}", 5};
    case 'f': return {"float", "{0}", 0.5};
    case 'd': return {"double", "(float){0}", 0.25};
    case 'l': return {"LONG", "(float)({0} >> 32)", 7};
    case 's': return {"short", "(float){0}", 11};
    case 'c': return {"char", "(float){0}", 13};
    case 'v': return {"FLOAT4", "{0}.x + {0}.y + {0}.z + {0}.w", 10};
    case 'p': return {"struct Pair", "(float){0}.first + {0}.second", 17.5};
    case 'n': return {"GLOBAL float*", "({0} == 0 ? 1.0f : 100.0f)", 1};
    default: return {"", "", 0};
  }
}

Argument argument(char code, const Buffer& x, const Buffer& y) {
  switch (code) {
    case 'x': return x;
    case 'y': return y;
    case 'i': return 3;
    case 'u': return 5U;
    case 'f': return 0.5F;
    case 'd': return 0.25;
    case 'l': return std::int64_t{7} << 32U;
    case 's': return std::int16_t{11};
    case 'c': return std::int8_t{13};
    case 'v': return std::array<float, 4>{1, 2, 3, 4};
    case 'p': return Pair{9, 8.5F};
    case 'm': return local(64 * sizeof(float));
    default: return nullptr;
  }
}

/// y[i] = x[i] + the sum of all values, through shared memory if the pattern has some.
std::string kernel_of(const std::string& pattern, Language language) {
  const bool opencl = language == Language::opencl;
  std::string text = opencl ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#define GLOBAL __global\n"
                              "#define LONG long\n#define FLOAT4 float4\n"
                            : "#define GLOBAL\n#define LONG long long\n#define FLOAT4 float4\n";
  text += "struct Pair { int first; float second; };\n";
  text += opencl ? "__kernel void run(" : "extern \"C\" __global__ void run(";
  std::string sum = "0.0f";
  std::string shared;
  bool is_first = true;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string name = fmt::format("a{}", i);
    std::string declared;
    if (pattern[i] == 'x')
      declared = "GLOBAL const float* x";
    else if (pattern[i] == 'y')
      declared = "GLOBAL float* y";
    else if (pattern[i] == 'm')
      shared = name, declared = opencl ? "__local float* " + name : "";
    else
      declared = fmt::format("{} {}", letter(pattern[i]).type, name),
      sum += " + " + fmt::format(fmt::runtime(letter(pattern[i]).term), name);
    if (!declared.empty()) text += (is_first ? "" : ", ") + declared, is_first = false;
  }
  text += ") {\n";
  text += opencl ? "  int i = get_global_id(0), j = get_local_id(0);\n"
                 : "  int i = blockIdx.x * blockDim.x + threadIdx.x, j = threadIdx.x;\n";
  if (!shared.empty()) {
    if (!opencl) text += fmt::format("  extern __shared__ float {}[];\n", shared);
    text += fmt::format("  {}[63 - j] = x[i - j + 63 - j];\n  {}\n  float in = {}[j];\n", shared,
                        opencl ? "barrier(CLK_LOCAL_MEM_FENCE);" : "__syncthreads();", shared);
  } else {
    text += "  float in = x[i];\n";
  }
  return text + fmt::format("  y[i] = in + ({});\n}}\n", sum);
}

double sum_of(const std::string& pattern) {
  return std::accumulate(pattern.begin(), pattern.end(), 0.0,
                         [](double sum, char code) { return sum + letter(code).value; });
}

class LaunchContract : public Contract {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (IsSkipped()) return;
    if (is_glsl()) GTEST_SKIP() << "arguments of GLSL have bindings and names";
    numbers_.resize(elements);
    std::iota(numbers_.begin(), numbers_.end(), 1.0F);
    x_ = upload(*device_, numbers_).value();
    y_ = device_->allocate(elements * sizeof(float)).value();
  }
  bool is_glsl() const {
    return device_->info().language == Language::glsl || device_->info().language == Language::vulkan_glsl;
  }
  bool is_opencl() const { return device_->info().language == Language::opencl; }
  Request program(const std::string& pattern) const {
    return Request({.name = "run_" + pattern,
                    .source = kernel_of(pattern, device_->info().language),
                    .entries = {"run"},
                    .language = device_->info().language});
  }
  /// A launch of the whole range with the arguments of a pattern.
  Launch launch_of(const std::string& pattern, const Buffer& x, const Buffer& y) const {
    Launch launch{.groups = {elements / 64}, .group_size = {64}};
    for (const char code : pattern) {
      if (code == 'm' && !is_opencl())
        launch.shared_bytes = 64 * sizeof(float);
      else
        launch.arguments.push_back(argument(code, x, y));
    }
    return launch;
  }
  /// What differs from x + sum; empty if nothing does.
  std::string problem_of(const Buffer& y, double sum) const {
    const auto result = download<float>(*device_, y).value();
    for (std::size_t i = 0; i < result.size(); ++i)
      if (std::abs(result[i] - (numbers_[i] + static_cast<float>(sum))) > 1e-4F * result[i])
        return fmt::format("{} at {}", result[i], i);
    return "";
  }
  void expect_sum(const Buffer& y, double sum, const std::string& what) const {
    EXPECT_EQ(problem_of(y, sum), "") << what;
  }
  std::string refusal(Module& module, const Launch& launch) const {
    const auto launched = device_->launch(module, launch);
    if (launched) return "launched";
    EXPECT_EQ(launched.error().code(), ErrorCode::invalid_request) << launched.error().describe();
    return launched.error().message();
  }

  std::vector<float> numbers_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> y_;
};

/// Scalars before buffers, between them and after them; many scalars; structs; null; local memory. 56 in all.
const std::vector<std::string> patterns = {
    "xy",    "yx",      "xyi",    "xyf",    "ixy",    "fxy",     "xiy",      "xfy",        "ifxy",     "nxy",
    "xyn",   "xyif",    "xyiif",  "xyiifu", "iixy",   "uxfy",    "dxy",      "xyd",        "lxyi",     "xysi",
    "scxy",  "xcsdy",   "vxy",    "xyvi",   "pxy",    "xypi",    "fpvxy",    "xmy",        "mxy",      "xyim",
    "imxyf", "xnyi",    "ninxfy", "cxsyd",  "xyiiii", "ffffxy",  "iuflxyd",  "xyiufdlsc",  "icvpxymf", "xyvvpp",
    "yxu",   "uyx",     "xyu",    "ixyi",   "fxyf",   "ixfyi",   "xyiiiiii", "ffffffffxy", "xyifuifu", "mxyiu",
    "ymxf",  "fixmyuu", "pixyfv", "vxyv",   "dxyfi",  "uuuxyff",
};

/// Launches every pattern of `some`, whose programs the cache has, from 16 threads at once, on buffers of their
/// own.
void launch_from_sixteen_threads(const std::vector<std::string>& some,
                                 const std::function<std::string(std::size_t thread, const std::string&)>& run) {
  std::vector<std::thread> threads;
  std::vector<std::string> problems(16);
  for (std::size_t thread = 0; thread < problems.size(); ++thread)
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < some.size() && problems[thread].empty(); ++i) {
        // Some threads launch one program together, others launch different ones.
        const std::string& pattern = some[(i + thread / 2 * 5) % some.size()];
        if (const std::string problem = run(thread, pattern); !problem.empty())
          problems[thread] = pattern + ": " + problem;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
}

TEST_P(LaunchContract, ArgumentsOfEveryKindAreInTheOrderOfTheKernel) {
  const auto launch_all = [&](Cache& cache) {
    std::vector<std::unique_ptr<Buffer>> results;
    for (int thread = 0; thread < 16; ++thread)
      results.push_back(device_->allocate(elements * sizeof(float)).value());
    launch_from_sixteen_threads(patterns, [&](std::size_t thread, const std::string& pattern) {
      const auto compiled = cache.get(program(pattern));
      if (!compiled) return compiled.error().describe();
      const Buffer& y = *results[thread];
      const auto launched = device_->launch(compiled->module(), launch_of(pattern, *x_, y));
      return launched ? problem_of(y, sum_of(pattern)) : launched.error().message();
    });
  };
  Cache cache(device_, options());
  launch_all(cache);
  EXPECT_EQ(cache.stats().compiles, patterns.size());
  // Programs that are loaded know their arguments as those that were compiled do.
  cache.flush();
  Cache again(device_, options());
  launch_all(again);
  EXPECT_EQ(again.stats().compiles, 0U);
}

TEST_P(LaunchContract, OneProgramRunsWithOtherArgumentsOnEachOfSixteenThreads) {
  Cache cache(device_, options());
  const Program compiled = cache.get(program("ixfy")).value();
  std::vector<std::thread> threads;
  std::vector<std::string> problems(16);
  for (int thread = 0; thread < 16; ++thread)
    threads.emplace_back([&, thread] {
      const auto y = device_->allocate(elements * sizeof(float)).value();
      const auto slot = device_->open_slot().value();
      for (int round = 0; round < 10; ++round) {
        const float more = static_cast<float>(thread) + 0.25F * static_cast<float>(round);
        const Grid grid{elements / 64, 64};
        if (round % 2 == 0) {
          compiled["run"](*device_, grid, thread, x_, more, y).value();
        } else {
          compiled["run"](*slot, grid, thread, x_, more, y).value();
          slot->submit().value();
          slot->wait().value();
        }
        const auto result = download<float>(*device_, *y).value();
        for (std::size_t i = 0; i < elements; ++i)
          if (std::abs(result[i] - (numbers_[i] + static_cast<float>(thread) + more)) > 1e-3F)
            problems[static_cast<std::size_t>(thread)] =
                fmt::format("round {}, number {}: {}", round, i, result[i]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
}

TEST_P(LaunchContract, JobsTakeTheSameArguments) {
  Cache cache(device_, options());
  const auto executor = Executor::create(device_, cache).value();
  std::vector<float> result(elements);
  Job job{.name = "mixed",
          .memory = {{.upload = std::as_bytes(std::span(numbers_))},
                     {.download = std::as_writable_bytes(std::span(result))}}};
  job.steps = {
      {.request = program("ixfy"),
       .launch = {
           .groups = {elements / 64}, .group_size = {64}, .arguments = {4, job_memory(0), 0.5F, job_memory(1)}}}};
  executor->submit(std::move(job)).get().value();
  for (std::size_t i = 0; i < elements; ++i) EXPECT_FLOAT_EQ(result[i], numbers_[i] + 4.5F);
  Job direct{
      .name = "direct",
      .steps = {{.request = program("ixfy"), .launch = {.group_size = {64}, .arguments = {4, x_, 0.5F, y_}}}}};
  const auto refused = executor->submit(std::move(direct)).get();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("put buffers into Job::memory"), std::string::npos);
  const auto outside = device_->launch(cache.get(program("ixfy")).value().module(),
                                       {.group_size = {64}, .arguments = {4, job_memory(0), 0.5F, job_memory(1)}});
  EXPECT_EQ(outside.error().message(), "run_ixfy: job_memory() is only for the steps of a job; give the buffer");
}

TEST_P(LaunchContract, ABufferIsGivenFromAnOffsetOn) {
  Cache cache(device_, options());
  const Program compiled = cache.get(program("xy")).value();
  // A multiple of the alignment of every device.
  constexpr std::size_t offset = 4096;
  const auto x = device_->allocate(offset + elements * sizeof(float)).value();
  const auto y = device_->allocate(offset + elements * sizeof(float)).value();
  device_->write(*x, std::as_bytes(std::span(numbers_)), offset).value();
  compiled["run"](*device_, {elements / 64, 64}, Argument(x, offset), Argument(y, offset)).value();
  std::vector<float> result(elements);
  device_->read(*y, std::as_writable_bytes(std::span(result)), offset).value();
  EXPECT_EQ(result, numbers_);
  EXPECT_NE(refusal(compiled.module(), {.group_size = {64}, .arguments = {Argument(x, x->size() + 1), y}})
                .find("argument 0"),
            std::string::npos);
}

TEST_P(LaunchContract, WrongArgumentsAreRefusedByNumber) {
  Cache cache(device_, options());
  const Program compiled = cache.get(program("ixfy")).value();
  Module& module = compiled.module();
  const auto message = [&](std::vector<Argument> arguments) {
    return refusal(module, {.groups = {elements / 64}, .group_size = {64}, .arguments = std::move(arguments)});
  };
  EXPECT_NE(message({4, x_, 0.5F}).find("takes 4 arguments; the launch has 3"), std::string::npos);
  EXPECT_NE(message({4, x_, 0.5F, y_, 1}).find("takes 4 arguments; the launch has 5"), std::string::npos);
  EXPECT_NE(message({4.0, x_, 0.5F, y_}).find("argument 0"), std::string::npos);
  EXPECT_NE(message({4, x_, 0.5, y_}).find("argument 2"), std::string::npos);
  EXPECT_NE(message({x_, 4, 0.5F, y_}).find("argument 0"), std::string::npos);
  EXPECT_NE(message({4, x_, 0.5F, static_cast<const Buffer*>(nullptr)}).find("argument 3"), std::string::npos);
  EXPECT_NE(message({4, x_, local(64), y_}).find("argument 2"), std::string::npos);
  EXPECT_NE(message({4, x_, named("factor", 0.5F), y_}).find("argument 2"), std::string::npos);
  EXPECT_NE(message({4, bound({.binding = 1}, x_), 0.5F, y_}).find("argument 1"), std::string::npos);
  const auto other = open_device(GetParam()).value();
  const auto foreign = other->allocate(elements * sizeof(float)).value();
  EXPECT_NE(message({4, x_, 0.5F, foreign}).find("belongs to another device"), std::string::npos);
  EXPECT_NE(compiled["walk"](*device_, {4, 64}, 4).error().message().find("no entry point called walk"),
            std::string::npos);
  compiled["run"](*device_, {elements / 64, 64}, 4, x_, 0.5F, y_).value();
  expect_sum(*y_, 4.5, "after the errors");
}

TEST_P(LaunchContract, WorkItemsAreGivenInPlaceOfGroups) {
  Cache cache(device_, options());
  const Program compiled = cache.get(program("xy")).value();
  device_->launch(compiled.module(), {.group_size = {64}, .items = {elements}, .arguments = {x_, y_}}).value();
  expect_sum(*y_, 0, "whole groups");
  const auto partial =
      device_->launch(compiled.module(), {.group_size = {64}, .items = {100}, .arguments = {x_, y_}});
  if (!partial) {
    EXPECT_NE(partial.error().message().find("100 work items in dimension 0 are not whole groups of 64"),
              std::string::npos)
        << partial.error().message();
  }
  if (is_opencl()) {
    device_->launch(compiled.module(), {.items = {elements}, .arguments = {x_, y_}}).value();
    expect_sum(*y_, 0, "the driver chooses the group size");
    const auto zeros = upload(*device_, std::vector<float>(elements, 0.0F)).value();
    device_->launch(compiled.module(), {.items = {10}, .offset = {20}, .arguments = {x_, zeros}}).value();
    const auto result = download<float>(*device_, *zeros).value();
    for (std::size_t i = 0; i < elements; ++i) EXPECT_EQ(result[i], i >= 20 && i < 30 ? numbers_[i] : 0) << i;
  } else {
    EXPECT_TRUE(device_->launch(compiled.module(), {.group_size = {64}, .offset = {0}, .arguments = {x_, y_}}));
    EXPECT_NE(device_->launch(compiled.module(), {.group_size = {64}, .offset = {64}, .arguments = {x_, y_}})
                  .error()
                  .message()
                  .find("has no Launch::offset"),
              std::string::npos);
  }
}

TEST_P(LaunchContract, SharedMemoryBeyondTheDeviceIsRefused) {
  Cache cache(device_, options());
  const Program compiled = cache.get(program("xmy")).value();
  Launch launch = launch_of("xmy", *x_, *y_);
  if (is_opencl())
    launch.arguments[1] = local(std::size_t{1} << 30U);
  else
    launch.shared_bytes = 1U << 30U;
  EXPECT_NE(refusal(compiled.module(), launch).find("1073741824 bytes"), std::string::npos);
  EXPECT_TRUE(device_->launch(compiled.module(), launch_of("xmy", *x_, *y_)));
}

/// Programs in GLSL with the same patterns: values are plain uniforms of OpenGL and push constants of Vulkan.
class GlslLaunchContract : public Contract {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (IsSkipped()) return;
    if (device_->info().language != Language::glsl && device_->info().language != Language::vulkan_glsl)
      GTEST_SKIP() << "arguments are in order";
    is_vulkan_ = device_->info().language == Language::vulkan_glsl;
  }

  /// Null pointers are for languages with pointers; GLSL without extensions has no integers of 8, 16 and 64 bits.
  static bool has(const std::string& pattern) { return pattern.find_first_of("nlsc") == std::string::npos; }
  Request program(const std::string& pattern) const {
    std::string buffers;
    std::string values;
    std::string sum = "0.0";
    bool is_shared = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const auto value = [&](const char* type, const char* term) {
        values += fmt::format("{}{} a{};\n", is_vulkan_ ? "  " : "uniform ", type, i);
        sum += " + " + fmt::format(fmt::runtime(term), fmt::format("a{}", i));
      };
      switch (pattern[i]) {
        case 'x': buffers += "layout(std430, binding = 0) readonly buffer X { float x[]; };\n"; break;
        case 'y': buffers += "layout(std430, binding = 1) buffer Y { float y[]; };\n"; break;
        case 'i': value("int", "float({})"); break;
        case 'u': value("uint", "float({})"); break;
        case 'f': value("float", "{}"); break;
        case 'd': value("double", "float({})"); break;
        case 'v': value("vec4", "{0}.x + {0}.y + {0}.z + {0}.w"); break;
        case 'p': value("Pair", "float({0}.first) + {0}.second"); break;
        case 'm': is_shared = true; break;
        default: break;
      }
    }
    if (is_vulkan_ && !values.empty()) values = "layout(push_constant) uniform Values {\n" + values + "};\n";
    std::string body = "  int i = int(gl_GlobalInvocationID.x), j = int(gl_LocalInvocationID.x);\n";
    body += is_shared ? "  tile[63 - j] = x[i - j + 63 - j];\n  barrier();\n  float in_ = tile[j];\n"
                      : "  float in_ = x[i];\n";
    return Request(
        {.name = "run_" + pattern,
         .source = "#version 450\nlayout(local_size_x = 64) in;\nstruct Pair { int first; float second; };\n" +
                   std::string(is_shared ? "shared float tile[64];\n" : "") + buffers + values + "void main() {\n" +
                   body + "  y[i] = in_ + " + sum + ";\n}\n",
         .language = device_->info().language});
  }
  Launch launch_of(const std::string& pattern, const Buffer& x, const Buffer& y) const {
    Launch launch{.groups = {elements / 64}, .arguments = {bound({.binding = 1}, y), bound({.binding = 0}, x)}};
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const std::string name = fmt::format("a{}", i);
      if (pattern[i] == 'x' || pattern[i] == 'y' || pattern[i] == 'm') continue;
      if (pattern[i] == 'p' && !is_vulkan_) {
        launch.arguments.push_back(named(name + ".second", 8.5F));
        launch.arguments.push_back(named(name + ".first", 9));
      } else {
        launch.arguments.push_back(named(name, argument(pattern[i], x, y)));
      }
    }
    return launch;
  }

  bool is_vulkan_ = false;
};

TEST_P(GlslLaunchContract, ArgumentsOfEveryKindAreFoundByTheirNames) {
  std::vector<std::string> some;
  std::ranges::copy_if(patterns, std::back_inserter(some), has);
  ASSERT_GT(some.size(), 35U);
  std::vector<float> numbers(elements);
  std::iota(numbers.begin(), numbers.end(), 1.0F);
  const auto x = upload(*device_, numbers).value();
  std::vector<std::unique_ptr<Buffer>> results;
  for (int thread = 0; thread < 16; ++thread)
    results.push_back(device_->allocate(elements * sizeof(float)).value());
  Cache cache(device_, options());
  launch_from_sixteen_threads(some, [&](std::size_t thread, const std::string& pattern) -> std::string {
    const auto compiled = cache.get(program(pattern));
    if (!compiled) return compiled.error().describe();
    const Buffer& y = *results[thread];
    const auto launched = device_->launch(compiled->module(), launch_of(pattern, *x, y));
    if (!launched) return launched.error().message();
    const auto result = download<float>(*device_, y).value();
    const auto sum = static_cast<float>(sum_of(pattern));
    for (std::size_t i = 0; i < elements; ++i)
      if (std::abs(result[i] - numbers[i] - sum) > 1e-4F * result[i]) return fmt::format("{} at {}", result[i], i);
    return "";
  });
}

INSTANTIATE_TEST_SUITE_P(Apis, LaunchContract, every_api(), name_of);
INSTANTIATE_TEST_SUITE_P(Apis, GlslLaunchContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
