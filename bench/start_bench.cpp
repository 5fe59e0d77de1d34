// How long a cache takes until it can be used, with 100 and with 10,000 programs in its directory, and how much
// memory programs take. `--long` adds a directory with 100,000 programs for `flush` and `stats`.
//
// `ready`: the constructor of a Cache. `first_get`: the same and the first program from disk. `close`: its
// destructor, after one program was loaded. `flush`: Cache::flush() after one program was compiled, with the save
// of that program. `stats`: Cache::stats(). `scan`: listing the directory with the sizes of its files, which is
// what a cache has to do that keeps an index in memory. `Time` is wall time for one of these, the mean of a few;
// `median_us` their median, which the figures show. The files are in the page cache. `resident` loads programs in a
// process of its own and counts megabytes. `bundle`: opening a bundle.

#include <chrono>
#include <map>
#include <optional>
#include <random>

#include <fmt/format.h>

#include <kiln/cache.hpp>

#include "fixtures.hpp"
#include "report.hpp"
#include "resident.hpp"
#include "store/bundle.hpp"
#include "store/directory.hpp"
#include "store/disk_store.hpp"

namespace kiln::bench {
namespace {

using Clock = IterationTimes::Clock;

constexpr std::size_t few = 100;
constexpr std::size_t many = 10'000;
constexpr std::size_t most = 100'000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Cache directories with a number of made-up programs in them, filled when first asked for.
class Directories {
 public:
  const std::filesystem::path& with(std::size_t count) {
    auto& path = paths_[count];
    if (path.empty()) {
      path = folder_.path() / std::to_string(count);
      fill(path, count);
    }
    return path;
  }
  /// A bundle with as many programs.
  const std::filesystem::path& bundle_with(std::size_t count) {
    auto& path = bundles_[count];
    if (!path.empty()) return path;
    path = folder_.path() / fmt::format("{}.kiln", count);
    const Identity identity = EmptyBackend().identity();
    const std::shared_ptr<store::DiskStore> disk = store::DiskStore::open(with(count), identity, Log()).value();
    store::BundleContents contents{.identities = {identity}};
    for (const store::StoredItem& item : disk->list().value())
      contents.entries.push_back(
          {.key = item.key.digest, .read = [disk, address = EntryAddress{identity.digest(), item.key}] {
             return Result(disk->get(address).value().value());
           }});
    store::write_bundle(path, contents).value();
    return path;
  }
  /// One that is not there yet.
  std::filesystem::path fresh() { return folder_.path() / fmt::format("fresh_{}", next_++); }

 private:
  static void fill(const std::filesystem::path& path, std::size_t count) {
    const auto store = store::DiskStore::open(path, EmptyBackend().identity(), Log()).value();
    std::mt19937 random(1);
    const Identity identity = EmptyBackend().identity();
    store::Entry entry;
    Binary& binary = entry.parts[std::string(store::binary_part)];
    binary.format = 1;
    binary.bytes.resize(2048);
    entry.created = std::chrono::system_clock::now();
    for (const Request& request : made_up_requests(count)) {
      for (std::byte& byte : binary.bytes) byte = static_cast<std::byte>(random());
      entry.facts = request.describe();
      const store::EntryLabel label{request.key().digest, identity.digest(), identity.target_digest()};
      const auto sealed = store::seal_entry(label, entry);
      store->put({label.identity, request.key()}, sealed, store::meta_of(label, entry, sealed.size())).value();
    }
    store->save_notes().value();
  }

  TemporaryFolder folder_;
  std::map<std::size_t, std::filesystem::path> paths_;
  std::map<std::size_t, std::filesystem::path> bundles_;
  int next_ = 0;
};

/// What of a cache's life is timed.
enum class Part { ready, first_get, close };

void start(benchmark::State& state, Part part, std::size_t count, Directories& directories) {
  const std::filesystem::path& directory = directories.with(count);
  const auto backend = std::make_shared<EmptyBackend>();
  const Request request = made_up_requests(1).front();
  IterationTimes times(state);
  for (auto _ : state) {
    CacheOptions options = {.directory = directory};
    auto begin = Clock::now();
    std::optional<Cache> cache(std::in_place, backend, std::move(options));
    double seconds = seconds_since(begin);
    if (part != Part::ready) {
      const auto program = cache->get(request);
      seconds = seconds_since(begin);
      if (!program || program->origin() != Origin::disk) {
        state.SkipWithError("the program did not come from disk");
        break;
      }
    }
    begin = Clock::now();
    cache.reset();
    times.add(part == Part::close ? seconds_since(begin) : seconds);
  }
}

void open_bundle(benchmark::State& state, std::size_t count, Directories& directories) {
  const std::filesystem::path& path = directories.bundle_with(count);
  IterationTimes times(state);
  for (auto _ : state) {
    const auto begin = Clock::now();
    const auto bundle = store::BundleFile::open(path);
    times.add_since(begin);
    if (!bundle || (*bundle)->size() != count) {
      state.SkipWithError("the bundle cannot be opened");
      break;
    }
  }
}

void flush(benchmark::State& state, std::size_t count, Directories& directories) {
  Cache cache(std::make_shared<EmptyBackend>(), {.directory = directories.with(count)});
  static int next = 0;
  IterationTimes times(state);
  for (auto _ : state) {
    const Request fresh({.name = fmt::format("fresh_{}", next++), .source = "void main() {}"});
    const auto begin = Clock::now();
    const auto program = cache.get(fresh);
    cache.flush();
    times.add_since(begin);
    if (!program || program->origin() != Origin::compiled) {
      state.SkipWithError("the program was not compiled");
      break;
    }
  }
}

void stats(benchmark::State& state, std::size_t count, Directories& directories) {
  const Cache cache(std::make_shared<EmptyBackend>(), {.directory = directories.with(count)});
  IterationTimes times(state);
  for (auto _ : state) {
    const auto begin = Clock::now();
    const Stats stats = cache.stats();
    times.add_since(begin);
    if (stats.disk_programs < count) {
      state.SkipWithError("programs are missing");
      break;
    }
  }
}

void scan(benchmark::State& state, std::size_t count, Directories& directories) {
  const std::filesystem::path& directory = directories.with(count);
  IterationTimes times(state);
  for (auto _ : state) {
    const auto begin = Clock::now();
    std::map<std::string, std::uintmax_t> sizes;
    for (const auto& file : std::filesystem::recursive_directory_iterator(directory))
      if (file.is_regular_file()) sizes.emplace(file.path().filename(), file.file_size());
    benchmark::DoNotOptimize(sizes);
    times.add_since(begin);
  }
}

void resident(benchmark::State& state, const ResidentCase& which) {
  for (auto _ : state) {
    const auto begin = Clock::now();
    const auto measured = measure_resident(which);
    state.SetIterationTime(seconds_since(begin));
    if (!measured) {
      state.SkipWithError(measured.error().message().c_str());
      break;
    }
    state.counters["growth_MB"] = measured->growth;
    state.counters["total_MB"] = measured->total;
  }
}

void conclude(const Measured& measured, Figures& figures) {
  const auto milliseconds = [&](std::string_view name, std::size_t count) {
    const auto microseconds = measured.counter(fmt::format("{}/{}", name, count), "median_us");
    return microseconds ? std::optional(*microseconds / 1000) : std::nullopt;
  };
  for (const std::size_t count : {few, many}) {
    figures.section(fmt::format("A cache with {} stored programs, wall time", count));
    const auto add = [&](std::string_view name, std::string text, std::optional<Target> target = {}) {
      figures.add(fmt::format("{}_{}_ms", name, count), std::move(text), milliseconds(name, count), "ms", target);
    };
    add("ready", "ready", below(count == few ? 10 : 50));
    add("first_get", "ready and the first program from disk");
    add("close", "closed again");
    add("scan", "for comparison: a listing of the directory with sizes");
    add("bundle", "a bundle with as many programs is opened",
        count == many ? std::optional(at_most(1)) : std::nullopt);
    figures.add(fmt::format("scan_ratio_{}", count), "the listing / ready",
                ratio(milliseconds("scan", count), milliseconds("ready", count)), "x");
  }
  figures.section("Calls that must not depend on the number of stored programs, wall time");
  for (const std::string_view name : {"flush", "stats"}) {
    for (const std::size_t count : {few, many, most})
      figures.add(fmt::format("{}_{}_ms", name, count), fmt::format("{}() with {} programs", name, count),
                  milliseconds(name, count), "ms");
    for (const std::size_t count : {many, most})
      figures.add(fmt::format("{}_ratio_{}", name, count), fmt::format("  {} programs / {}", count, few),
                  ratio(milliseconds(name, count), milliseconds(name, few)), "x", below(2));
  }
  figures.section("Resident memory");
  const auto add = [&](std::string_view name, std::string_view counter, std::string text,
                       std::optional<Target> target = {}) {
    figures.add(fmt::format("{}.{}", name, counter), std::move(text),
                measured.counter(fmt::format("resident/{}", name), counter), "MB", target);
  };
  add("opengl_disk/100", "growth_MB", "100 OpenGL programs from disk", below(50));
  add("opengl_disk/100", "total_MB", "  the whole process, driver and all");
  add("opengl_bare/100", "growth_MB", "for comparison: the same programs loaded without Kiln");
  add("opengl_compiled/100", "growth_MB", "100 OpenGL programs compiled, with what the compiler keeps");
  add("empty/100", "growth_MB", "Kiln's own part: 100 empty programs from disk", below(50));
  add("empty/10000", "growth_MB", "Kiln's own part: 10,000 empty programs from disk");
}

int run(int argc, char** argv) {
  if (const auto status = resident_process(argc, argv)) return *status;
  CommandLine command_line(argc, argv, 9, 0.1);
  Directories directories;
  const auto add = [](const std::string& name, auto function, const Runs& runs = {}) {
    return add_case(name, function, runs)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  for (const std::size_t count : {few, many}) {
    const auto part = [&](std::string_view name, Part which) {
      add(fmt::format("{}/{}", name, count), [which, count, &directories](benchmark::State& state) {
        start(state, which, count, directories);
      })->Iterations(10);
    };
    part("ready", Part::ready);
    part("first_get", Part::first_get);
    part("close", Part::close);
    add(fmt::format("bundle/{}", count), [count, &directories](benchmark::State& state) {
      open_bundle(state, count, directories);
    })->Iterations(10);
    add(fmt::format("scan/{}", count), [count, &directories](benchmark::State& state) {
      scan(state, count, directories);
    })->Iterations(3);
    add(fmt::format("resident/empty/{}", count),
        [count, &directories](benchmark::State& state) {
          resident(state, {"empty", count, directories.with(count)});
        },
        {.repetitions = 3})
        ->Iterations(1)
        ->Repetitions(3);
  }
  for (const std::size_t count : {few, many, most}) {
    if (count == most && !command_line.is_long()) continue;
    add(fmt::format("flush/{}", count), [count, &directories](benchmark::State& state) {
      flush(state, count, directories);
    })->Iterations(10);
    add(fmt::format("stats/{}", count), [count, &directories](benchmark::State& state) {
      stats(state, count, directories);
    })->Iterations(10);
  }
  const auto opengl = directories.fresh();
  for (const std::string kind : {"disk", "bare", "compiled"}) {
    add(fmt::format("resident/opengl_{}/{}", kind, few),
        [&directories, &opengl, kind](benchmark::State& state) {
          const bool compiles = kind == "compiled";
          // The first process to use the directory compiles; that one is not counted.
          if (!compiles && !std::filesystem::exists(opengl)) (void)measure_resident({"compiled", few, opengl});
          resident(state, {kind, few, compiles ? directories.fresh() : opengl});
        },
        {.repetitions = 3})
        ->Iterations(1)
        ->Repetitions(3);
  }
  return command_line.run(conclude);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
