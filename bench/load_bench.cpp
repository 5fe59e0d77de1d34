// What it costs to get a program that is not in memory but was compiled before, on OpenGL:
//
// `kiln`: Cache::get of a program that was evicted from memory, so that the disk level answers.
// `bare`: reading a file with the driver's binary and nothing else, and glProgramBinary.
// `driver_cache`: compiling and linking from source where the driver has kept the result in a shader cache of its
// own, which is what a second start costs without Kiln.
//
// `Time` is wall time for one program, the mean of many; `median_us` their median, with which the ratios are
// computed. Dropping the program again is not part of it.

#include <chrono>
#include <fstream>

#include <epoxy/gl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

#include "fixtures.hpp"
#include "report.hpp"
#include "shaders.hpp"

namespace kiln::bench {
namespace {

using Clock = IterationTimes::Clock;

constexpr std::size_t program_count = 8;

/// A program that Kiln has on disk, whose binary also lies in a file of its own.
struct Subject {
  std::string name;
  Request request;
  std::filesystem::path file;
  GLenum format;
  std::chrono::nanoseconds compile_time;
};

Subject prepare(Cache& cache, const std::filesystem::path& folder, const Shader& shader) {
  Request request({.name = shader.name, .source = shader.source});
  const kiln::Program program = cache.get(request).value();
  const GLuint id = program.as<opengl::Module>().id();
  GLint length = 0;
  glGetProgramiv(id, GL_PROGRAM_BINARY_LENGTH, &length);
  std::vector<char> bytes(static_cast<std::size_t>(length));
  GLenum format = 0;
  glGetProgramBinary(id, length, nullptr, &format, bytes.data());
  std::filesystem::path file = folder / shader.name;
  std::ofstream(file, std::ios::binary).write(bytes.data(), length);
  return {shader.name, std::move(request), std::move(file), format, program.compile_time()};
}

void load_with_kiln(benchmark::State& state, Cache& cache, const Subject& subject) {
  IterationTimes times(state);
  for (auto _ : state) {
    cache.evict(subject.request);
    const auto start = Clock::now();
    const auto program = cache.get(subject.request);
    times.add_since(start);
    if (!program || program->origin() != Origin::disk) {
      state.SkipWithError("the program did not come from disk");
      break;
    }
  }
}

std::vector<char> read_whole(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0) return {};
  std::vector<char> bytes(static_cast<std::size_t>(status.st_size));
  const ssize_t got = read(file, bytes.data(), bytes.size());
  close(file);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

void load_bare(benchmark::State& state, const Subject& subject) {
  IterationTimes times(state);
  for (auto _ : state) {
    const auto start = Clock::now();
    const std::vector<char> bytes = read_whole(subject.file);
    const GLuint id = glCreateProgram();
    glProgramBinary(id, subject.format, bytes.data(), static_cast<GLsizei>(bytes.size()));
    GLint linked = 0;
    glGetProgramiv(id, GL_LINK_STATUS, &linked);
    times.add_since(start);
    glDeleteProgram(id);
    if (linked == 0) {
      state.SkipWithError("the driver refused its own binary");
      break;
    }
  }
}

void load_from_driver_cache(benchmark::State& state, const Subject& subject) {
  IterationTimes times(state);
  for (auto _ : state) {
    const auto start = Clock::now();
    const GLuint shader = glCreateShader(GL_COMPUTE_SHADER);
    const char* text = subject.request.source().c_str();
    glShaderSource(shader, 1, &text, nullptr);
    glCompileShader(shader);
    const GLuint id = glCreateProgram();
    glAttachShader(id, shader);
    glLinkProgram(id);
    GLint linked = 0;
    glGetProgramiv(id, GL_LINK_STATUS, &linked);
    times.add_since(start);
    glDeleteShader(shader);
    glDeleteProgram(id);
    if (linked == 0) {
      state.SkipWithError("the program does not link");
      break;
    }
  }
}

void conclude(const std::vector<Subject>& subjects, const Measured& measured, Figures& figures) {
  std::vector<double> over_bare;
  std::vector<double> under_driver;
  std::vector<double> under_compiling;
  figures.section("Kiln's disk hit / (reading the file + glProgramBinary), wall time");
  for (const Subject& subject : subjects) {
    const auto real = [&](std::string_view name) {
      return measured.counter(fmt::format("{}/{}", name, subject.name), "median_us");
    };
    const auto kiln = real("kiln");
    const auto bare = real("bare");
    const auto to_bare = ratio(kiln, bare);
    figures.add(fmt::format("{}.ratio", subject.name),
                kiln && bare ? fmt::format("{}: {:.1f} us / {:.1f} us", subject.name, *kiln, *bare) : subject.name,
                to_bare, "x");
    if (to_bare) over_bare.push_back(*to_bare);
    if (const auto to_driver = ratio(real("driver_cache"), kiln)) under_driver.push_back(*to_driver);
    if (kiln) under_compiling.push_back(static_cast<double>(subject.compile_time.count()) / 1000 / *kiln);
  }
  const auto of = [](const std::vector<double>& values) {
    return values.empty() ? std::nullopt : std::optional(median(values));
  };
  figures.add("median.ratio", "median of the programs", of(over_bare), "x", at_most(1.5));
  figures.section("The same against what an application has without Kiln");
  figures.add("median.driver_cache_ratio", "the driver's own shader cache / kiln, median", of(under_driver), "x");
  figures.add("median.compile_ratio", "compiling it once / kiln, median", of(under_compiling), "x");
}

int run(int argc, char** argv) {
  CommandLine command_line(argc, argv, 9, 0.02);
  const TemporaryFolder folder;
  // This process starts with an empty cache of the driver's, and fills it.
  use_driver_cache(folder.path() / "driver");

  const auto device = open_device("opengl");
  if (!device) {
    fmt::print(stderr, "load_bench measures OpenGL: {}\n", device.error().message());
    return 0;
  }
  if ((*device)->identity().formats.empty()) {
    fmt::print(stderr, "load_bench measures binaries, and this driver gives out none\n");
    return 0;
  }
  benchmark::AddCustomContext("OpenGL", (*device)->identity().device);
  const auto current = opengl::make_current(**device).value();
  Cache cache(*device, {.directory = folder.path() / "kiln"});
  std::vector<Subject> subjects;
  for (const Shader& shader : shaders(program_count)) subjects.push_back(prepare(cache, folder.path(), shader));
  cache.flush();

  for (const Subject& subject : subjects) {
    const auto add = [&](std::string_view name, auto function) {
      benchmark::RegisterBenchmark(fmt::format("{}/{}", name, subject.name).c_str(), function)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add("kiln", [&](benchmark::State& state) { load_with_kiln(state, cache, subject); });
    add("bare", [&](benchmark::State& state) { load_bare(state, subject); });
    add("driver_cache", [&](benchmark::State& state) { load_from_driver_cache(state, subject); });
  }
  return command_line.run(
      [&](const Measured& measured, Figures& figures) { conclude(subjects, measured, figures); });
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
