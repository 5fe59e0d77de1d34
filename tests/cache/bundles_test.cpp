#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/gate.hpp"
#include "fakes/stores.hpp"
#include "key/record_writer.hpp"
#include "store/bundle.hpp"

// CacheOptions::bundles and CacheOptions::compile, $KILN_BUNDLES and $KILN_COMPILE, and Cache::refresh().
namespace kiln {
namespace {

namespace fs = std::filesystem;
using fakes::request;

class Bundled : public fakes::CacheTest {
 protected:
  CacheOptions options() {
    CacheOptions options = CacheTest::options();
    options.bundles = {Bundle{path_}};
    return options;
  }
  CacheOptions options(CompilePolicy policy) {
    CacheOptions options = this->options();
    options.compile = policy;
    return options;
  }

  static std::vector<std::byte> sealed(const Identity& identity, const Request& request, const std::string& text) {
    store::Entry entry{.compile_time = std::chrono::seconds(1), .facts = request.describe()};
    Binary binary{7, {}};
    for (const char c : text) binary.bytes.push_back(static_cast<std::byte>(c));
    entry.parts.emplace(store::binary_part, std::move(binary));
    return store::seal_entry({request.key().digest, identity.digest(), identity.target_digest()}, entry);
  }

  struct Made {
    Identity identity;
    std::vector<int> requests = {};
    std::string prefix = "binary:";
  };
  /// A bundle with these programs.
  static void write(const fs::path& path, const std::vector<Made>& made, const fs::path& record = {}) {
    store::BundleContents contents;
    contents.record = record;
    for (const Made& part : made) {
      for (const int number : part.requests)
        contents.entries.push_back({.identity = contents.identities.size(),
                                    .key = request(number).key().digest,
                                    .read = [part, number]() -> Result<std::vector<std::byte>> {
                                      return sealed(part.identity, request(number),
                                                    part.prefix + request(number).source());
                                    }});
      contents.identities.push_back(part.identity);
    }
    store::write_bundle(path, contents).value();
  }
  void write_own(const std::vector<int>& requests) { write(path_, {{backend_->identity(), requests}}); }

  /// A record of these requests.
  fs::path record_of(const std::vector<Request>& requests) {
    key::RecordWriter writer(folder_.path() / "app.kilnreq");
    for (const Request& one : requests) writer.add(one, "fake", std::chrono::milliseconds(5)).value();
    return folder_.path() / "app.kilnreq";
  }

  /// Gets the program again until it is ready, or fails with another error.
  static Result<Program> get_when_ready(Cache& cache, const Request& request) {
    for (;;) {
      auto program = cache.get(request);
      if (program || program.error().code() != ErrorCode::not_compiled) return program;
      std::this_thread::yield();
    }
  }

  /// Whether a thread of this process waits.
  static bool is_asleep(pid_t thread) {
    const std::string stat = fakes::read_file("/proc/self/task/" + std::to_string(thread) + "/stat");
    return stat.compare(stat.rfind(')') + 2, 1, "S") == 0;
  }

  const fs::path path_ = folder_.path() / "app.kiln";
};

TEST_F(Bundled, AProgramIsNeitherCompiledNorCopiedToDisk) {
  write_own({1, 2});
  Cache cache(backend_, options());
  const Program program = cache.get(request(1)).value();
  EXPECT_EQ(text(program), request(1).source());
  EXPECT_EQ(program.origin(), Origin::bundle);
  EXPECT_EQ(program.compile_time(), std::chrono::seconds(1));
  cache.flush();
  EXPECT_EQ(backend_->compiles, 0);
  EXPECT_TRUE(entries().empty());
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.bundle_hits, 1U);
  EXPECT_EQ(stats.saves, 0U);
  EXPECT_EQ(stats.compile_time_saved, std::chrono::seconds(1));
  fakes::expect_counts_add_up(stats);
  EXPECT_TRUE(book_.records().empty());
}

TEST_F(Bundled, EveryWayToRequestAProgramFindsIt) {
  write_own({1, 2, 3, 4});
  Cache cache(backend_, options());
  EXPECT_TRUE(cache.find(request(1)).value().has_value());
  EXPECT_EQ(cache.get_async(request(2)).get().value().origin(), Origin::bundle);
  const std::vector<Request> requests = {request(3), request(4)};
  EXPECT_EQ(cache.preload(requests).ready, 2U);
  EXPECT_EQ(backend_->compiles, 0);
  EXPECT_EQ(cache.stats().bundle_hits, 4U);
}

TEST_F(Bundled, TheDiskIsSearchedFirst) {
  Cache(backend_, CacheTest::options()).get(request(1)).value();
  write_own({1});
  Cache cache(backend_, options());
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::disk);
}

TEST_F(Bundled, SharedStoresAreAskedOnlyForWhatNoBundleHas) {
  write_own({1});
  CacheOptions with = options();
  std::atomic<int> gets{0};
  const auto get = [&](const EntryAddress&) {
    ++gets;
    return std::optional<std::vector<std::byte>>();
  };
  const auto put = [](const EntryAddress&, std::span<const std::byte>) { return Result<void>(); };
  with.stores = {std::make_shared<fakes::FunctionStore>(get, put)};
  Cache cache(backend_, with);
  cache.get(request(1)).value();
  EXPECT_EQ(gets, 0);
  cache.get(request(2)).value();
  EXPECT_EQ(gets, 1);
}

TEST_F(Bundled, TheFirstOfSeveralBundlesAnswers) {
  const fs::path second = folder_.path() / "second.kiln";
  write(path_, {{backend_->identity(), {1}}});
  write(second, {{backend_->identity(), {1, 2}, "binary:second "}});
  CacheOptions with = options();
  with.bundles->push_back(Bundle{second});
  Cache cache(backend_, with);
  EXPECT_EQ(text(cache.get(request(1)).value()), request(1).source());
  EXPECT_EQ(text(cache.get(request(2)).value()), "second " + request(2).source());
}

TEST_F(Bundled, TheTargetThatSuitsBestAnswersThenTheOthers) {
  const auto target = [](const std::string& device) {
    return Identity{"fake", "Kiln", device, "", "some compiler", {7}};
  };
  write(path_, {{target("worse"), {1}, "binary:worse "},
                {target("best"), {1}, "no binary:"},
                {target("unfit"), {1, 2}, "binary:unfit "},
                {target("good"), {1}, "binary:good "}});
  backend_->on_accepts = [](const Identity& made_for) {
    return made_for.device == "best" ? 9U : made_for.device == "good" ? 5U : made_for.device == "worse" ? 1U : 0U;
  };
  Cache cache(backend_, options());
  EXPECT_EQ(text(cache.get(request(1)).value()), "good " + request(1).source()) << "the driver refuses the best";
  ASSERT_EQ(book_.records().size(), 1U);
  EXPECT_NE(book_.records()[0].message.find("program_1"), std::string::npos);
  EXPECT_NE(book_.records()[0].message.find(path_.string()), std::string::npos);
  EXPECT_EQ(cache.get(request(2)).value().origin(), Origin::compiled);
}

TEST_F(Bundled, AnotherCompilerMadeItForTheSameTarget) {
  Identity other = backend_->identity();
  other.compiler = "another compiler";
  write(path_, {{other, {1}}});
  const auto without_compiler = std::make_shared<fakes::FakeBackend>(
      Identity{other.api, other.vendor, other.device, other.driver, "", other.formats});
  EXPECT_EQ(Cache(without_compiler, options()).get(request(1)).value().origin(), Origin::bundle);
}

TEST_F(Bundled, WhatTheDriverMakesOfAPortableProgramIsKeptOnDisk) {
  write(path_, {{Identity{"fake", "", "portable", "", backend_->identity().compiler, {7}}, {1}}});
  backend_->on_accepts = [](const Identity& target) { return target.device == "portable" ? 1U : 0U; };
  EXPECT_EQ(Cache(backend_, options()).get(request(1)).value().origin(), Origin::bundle);
  ASSERT_EQ(entries().size(), 1U);
  EXPECT_EQ(Cache(backend_, options()).get(request(1)).value().origin(), Origin::disk);
  CacheOptions without_disk = options();
  without_disk.disk = false;
  EXPECT_EQ(Cache(backend_, without_disk).get(request(1)).value().origin(), Origin::bundle);
  EXPECT_EQ(backend_->compiles, 0);
}

TEST_F(Bundled, WhatAnotherCompilerMadeIsNotKeptAsIfItWereOfThisOne) {
  write(path_, {{Identity{"fake", "", "portable", "", "another compiler", {7}}, {1}}});
  const auto accepts = [](const Identity& target) { return target.device == "portable" ? 1U : 0U; };
  backend_->on_accepts = accepts;
  EXPECT_EQ(Cache(backend_, options()).get(request(1)).value().origin(), Origin::bundle);
  EXPECT_TRUE(entries().empty());
  const auto without_compiler =
      std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "nothing", "1.0", "", {7}});
  without_compiler->on_accepts = accepts;
  EXPECT_EQ(Cache(without_compiler, options()).get(request(1)).value().origin(), Origin::bundle);
  EXPECT_EQ(entries().size(), 1U) << "a device without a compiler has no other programs";
}

TEST_F(Bundled, AnEntryThatIsRefusedIsNotTriedAgain) {
  write(path_, {{backend_->identity(), {1}, "no binary:"}});
  Cache cache(backend_, options());
  for (int i = 0; i < 3; ++i) {
    cache.get(request(1)).value();
    cache.evict(request(1));
    cache.clear().value();
  }
  EXPECT_EQ(book_.records().size(), 1U);
  EXPECT_EQ(cache.stats().store_failures, 1U);
}

TEST_F(Bundled, ADamagedEntryIsCompiled) {
  write_own({1, 2});
  const auto bundle = store::BundleFile::open(path_).value();
  std::string bytes = fakes::read_file(path_);
  bytes[bundle->program(0).offset + 100] ^= 1;
  fakes::write_file(path_, bytes);
  Cache cache(backend_, options());
  EXPECT_EQ(text(cache.get(request(1)).value()), request(1).source());
  EXPECT_EQ(text(cache.get(request(2)).value()), request(2).source());
  EXPECT_EQ(cache.stats().compiles, 1U);
  EXPECT_EQ(cache.stats().bundle_hits, 1U);
  EXPECT_EQ(cache.stats().store_failures, 1U);
}

TEST_F(Bundled, ABundleThatIsTruncatedWhileItIsOpenIsAnsweredByTheNextLevel) {
  write_own({1});
  Cache cache(backend_, options());
  fs::resize_file(path_, 200);
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::compiled);
}

TEST_F(Bundled, ABundleThatIsReplacedWhileItIsOpenStaysAsItWas) {
  write_own({1});
  Cache cache(backend_, options());
  write_own({2});
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::bundle);
  EXPECT_EQ(cache.get(request(2)).value().origin(), Origin::compiled);
}

TEST_F(Bundled, AFileThatIsNoBundleIsNamedOnceAndSkipped) {
  fakes::write_file(path_, "no bundle");
  Cache cache(backend_, options());
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::compiled);
  ASSERT_EQ(book_.records().size(), 1U);
  EXPECT_NE(book_.records()[0].message.find(path_.string()), std::string::npos) << book_.records()[0].message;
}

TEST_F(Bundled, WithoutASignatureItIsNotUsedIfOneIsRequired) {
  write_own({1});
  CacheOptions required = options();
  required.bundles->front().verify = Verification::required;
  Cache cache(backend_, required);
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::compiled);
  ASSERT_EQ(book_.records().size(), 1U);
}

TEST_F(Bundled, AForkedChildUsesIt) {
  write_own({1, 2});
  Cache cache(backend_, options());
  cache.get(request(1)).value();
  fakes::Child child(
      [&](const auto& report) { report(std::string(to_string(cache.get(request(2)).value().origin()))); });
  EXPECT_EQ(child.report(), "bundle");
}

TEST_F(Bundled, AForkedChildUsesTheSettingsOfItsParent) {
  write_own({1});
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  setenv("KILN_BUNDLES", "app.kiln", 1);
  setenv("KILN_COMPILE", "never", 1);
  Cache cache(backend_, CacheTest::options());
  unsetenv("KILN_BUNDLES");
  unsetenv("KILN_COMPILE");
  fs::current_path(before);
  fakes::Child child([&](const auto& report) {
    const bool has_bundle = cache.get(request(1)).value().origin() == Origin::bundle;
    const bool compiles = cache.get(request(2)).ok();
    report(has_bundle && !compiles ? "the same" : "others");
  });
  EXPECT_EQ(child.report(), "the same");
}

TEST_F(Bundled, ManyThreadsLoadEachProgramOnce) {
  constexpr int programs = 32;
  std::vector<int> numbers;
  for (int i = 0; i < programs; ++i) numbers.push_back(i);
  write_own(numbers);
  Cache cache(backend_, options());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < programs; ++i) {
        const Request one = request((i + t) % programs);
        if (text(cache.get(one).value()) != one.source()) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(backend_->loads, programs);
  EXPECT_EQ(cache.stats().bundle_hits, static_cast<std::uint64_t>(programs));
  fakes::expect_counts_add_up(cache.stats());
}

TEST_F(Bundled, VariablesNameBundlesAndThePolicy) {
  write_own({1});
  setenv("KILN_BUNDLES", ("/nowhere/other.kiln:" + path_.string()).c_str(), 1);
  setenv("KILN_COMPILE", "never", 1);
  Cache cache(backend_, CacheTest::options());
  CacheOptions none = CacheTest::options();
  none.bundles.emplace();
  none.compile = CompilePolicy::always;
  Cache without(backend_, none);
  unsetenv("KILN_BUNDLES");
  unsetenv("KILN_COMPILE");
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::bundle);
  EXPECT_EQ(cache.get(request(2)).error().code(), ErrorCode::not_compiled);
  EXPECT_EQ(without.get(request(1)).value().origin(), Origin::compiled);
}

TEST_F(Bundled, WithNeverAMissingProgramIsAnErrorThatNamesProgramKeyAndBundles) {
  write_own({1});
  Cache cache(backend_, options(CompilePolicy::never));
  cache.get(request(1)).value();
  const Error error = cache.get(request(2)).error();
  EXPECT_EQ(error.code(), ErrorCode::not_compiled);
  for (const std::string& part : {std::string("program_2"), request(2).key().digest.hex(), path_.string()})
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  EXPECT_FALSE(cache.find(request(2)).value().has_value());
  EXPECT_EQ(cache.get_async(request(3)).get().error().code(), ErrorCode::not_compiled);
  const std::vector<Request> requests = {request(1), request(4)};
  const PreloadReport report = cache.preload(requests);
  EXPECT_EQ(report.ready, 1U);
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_EQ(report.errors[0].code(), ErrorCode::not_compiled);
  EXPECT_EQ(backend_->compiles, 0);
  fakes::expect_counts_add_up(cache.stats());
}

TEST_F(Bundled, WithNeverDiskAndSharedStoresStillAnswer) {
  const auto store = std::make_shared<fakes::MemoryStore>();
  CacheOptions sharing = CacheTest::options();
  sharing.stores = {store};
  sharing.directory = folder_.path() / "another machine";
  Cache(backend_, sharing).get(request(1)).value();
  CacheOptions never = CacheTest::options();
  never.stores = {store};
  never.compile = CompilePolicy::never;
  EXPECT_EQ(Cache(backend_, never).get(request(1)).value().origin(), Origin::shared);
  EXPECT_EQ(Cache(backend_, never).get(request(1)).value().origin(), Origin::disk);
}

TEST_F(Bundled, WithNeverAProgramThatIsCompiledAlreadyIsLoaded) {
  Cache cache(backend_, options(CompilePolicy::never));
  const Request cubin({.name = "given", .source = "the bytes of a cubin", .language = Language::cubin});
  EXPECT_TRUE(cache.get(cubin));
  EXPECT_EQ(cache.get(request(1)).error().code(), ErrorCode::not_compiled);
}

TEST_F(Bundled, WithoutADiskNothingIsWritten) {
  write_own({1});
  CacheOptions never = options(CompilePolicy::never);
  never.disk = false;
  {
    Cache cache(backend_, never);
    cache.get(request(1)).value();
    cache.flush();
  }
  std::vector<fs::path> left;
  for (const auto& item : fs::directory_iterator(folder_.path())) left.push_back(item.path());
  EXPECT_EQ(left, std::vector<fs::path>{path_});
}

TEST_F(Bundled, InTheBackgroundAGetFailsUntilTheProgramIsReady) {
  fakes::Gate gate;
  backend_->on_compile = [&](const Request&) { gate.pass(); };
  Cache cache(backend_, options(CompilePolicy::background));
  EXPECT_EQ(cache.get(request(1)).error().code(), ErrorCode::not_compiled);
  EXPECT_EQ(cache.get(request(1)).error().code(), ErrorCode::not_compiled) << "nobody waits for the compiler";
  gate.open();
  EXPECT_EQ(text(get_when_ready(cache, request(1)).value()), request(1).source());
  EXPECT_EQ(backend_->compiles, 1);
  fakes::expect_counts_add_up(cache.stats());
}

TEST_F(Bundled, InTheBackgroundTheFirstGetBeginsToCompile) {
  for (int i = 0; i < 100; ++i) {
    Cache cache(backend_, options(CompilePolicy::background));
    const int before = backend_->compiles;
    EXPECT_FALSE(cache.get(request(100 + i)));
    while (backend_->compiles == before) std::this_thread::yield();
  }
}

TEST_F(Bundled, InTheBackgroundAGetDoesNotWaitForThePreloadThatCompilesTheProgram) {
  fakes::Gate gate;
  backend_->on_compile = [&](const Request&) { gate.pass(); };
  Cache cache(backend_, options(CompilePolicy::background));
  const std::vector<Request> requests = {request(1)};
  std::thread preload([&] { EXPECT_EQ(cache.preload(requests).ready, 1U); });
  gate.wait_for_somebody();
  EXPECT_EQ(cache.get(request(1)).error().code(), ErrorCode::not_compiled);
  gate.open();
  preload.join();
  EXPECT_EQ(backend_->compiles, 1);
  EXPECT_TRUE(get_when_ready(cache, request(1)));
}

TEST_F(Bundled, InTheBackgroundAnAsynchronousRequestBesideAGetCompiles) {
  fakes::Gate gate;
  const auto get = [&](const EntryAddress&) {
    gate.pass();
    return std::optional<std::vector<std::byte>>();
  };
  const auto put = [](const EntryAddress&, std::span<const std::byte>) { return Result<void>(); };
  CacheOptions with = options(CompilePolicy::background);
  with.stores = {std::make_shared<fakes::FunctionStore>(get, put)};
  Cache cache(backend_, with);
  std::thread beside([&] { EXPECT_EQ(cache.get(request(1)).error().code(), ErrorCode::not_compiled); });
  gate.wait_for_somebody();
  auto future = cache.get_async(request(1));
  gate.open();
  EXPECT_TRUE(future.get());
  beside.join();
}

TEST_F(Bundled, InTheBackgroundTheErrorOfTheCompilerIsReturnedOnceThenItIsTriedAgain) {
  const Request wrong({.name = "wrong", .source = "does not compile"});
  Cache cache(backend_, options(CompilePolicy::background));
  EXPECT_EQ(get_when_ready(cache, wrong).error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(get_when_ready(cache, wrong).error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(backend_->compiles, 2);
}

TEST_F(Bundled, InTheBackgroundAsynchronousRequestsAndPreloadsCompile) {
  Cache cache(backend_, options(CompilePolicy::background));
  EXPECT_EQ(cache.get_async(request(1)).get().value().origin(), Origin::compiled);
  const std::vector<Request> requests = {request(2)};
  EXPECT_EQ(cache.preload(requests).ready, 1U);
  EXPECT_EQ(cache.get(request(2)).value().name(), "program_2");
}

TEST_F(Bundled, TheEndOfACacheDropsWhatIsNotCompiledYet) {
  CacheOptions one_thread = options(CompilePolicy::background);
  one_thread.threads = 1;
  fakes::Gate gate;
  backend_->on_compile = [&](const Request&) { gate.pass(); };
  auto cache = std::make_unique<Cache>(backend_, one_thread);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(cache->get(request(i)));
  gate.wait_for_somebody();
  std::atomic<pid_t> ending{0};
  std::thread end([&] {
    ending = gettid();
    cache.reset();
  });
  while (ending == 0 || !is_asleep(ending)) std::this_thread::yield();
  gate.open();
  end.join();
  EXPECT_EQ(backend_->compiles, 1);
}

TEST_F(Bundled, RequestsForOtherDevicesAreCompiledAtTheFirstRun) {
  const auto record = record_of({request(1), request(2), request(3)});
  write(path_, {{Identity{"fake", "Kiln", "another device", "", "", {7}}, {1, 2}}}, record);
  Cache cache(backend_, options());
  cache.get(request(1)).value();
  while (cache.stats().compiles < 3) std::this_thread::yield();
  cache.flush();
  EXPECT_EQ(entries().size(), 3U);
  EXPECT_EQ(backend_->compiles, 3);
  // Nobody asked for the others.
  while (cache.stats().programs > 1) std::this_thread::yield();
}

TEST_F(Bundled, AFindDoesNotBeginToCompileTheRequests) {
  write(path_, {}, record_of({request(1), request(2)}));
  {
    Cache cache(backend_, options());
    EXPECT_FALSE(cache.find(request(1)).value().has_value());
  }
  EXPECT_EQ(backend_->compiles, 0);
}

TEST_F(Bundled, RequestsAreNotCompiledIfThePolicyForbidsIt) {
  write(path_, {{backend_->identity(), {1}}}, record_of({request(1), request(2)}));
  {
    Cache cache(backend_, options(CompilePolicy::never));
    EXPECT_FALSE(cache.get(request(2)));
  }
  EXPECT_EQ(backend_->compiles, 0);
}

TEST_F(Bundled, ARefreshCompilesARecordOnceAndTheNextProcessNothing) {
  const auto record = record_of({request(1), request(2), request(3)});
  Cache(backend_, CacheTest::options()).get(request(1)).value();
  const auto updated =
      std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "nothing", "2.0 (another driver)", "1.0", {7}});
  {
    Cache cache(updated, CacheTest::options());
    std::set<std::string> reported;
    const auto report = cache.refresh(record, [&](const Progress& progress) { reported.insert(progress.name); });
    EXPECT_EQ(report.ready, 3U);
    EXPECT_TRUE(report.errors.empty());
    EXPECT_EQ(reported.size(), 3U);
    EXPECT_EQ(cache.stats().programs, 0U) << "nothing is kept in memory";
    EXPECT_EQ(cache.refresh(record).ready, 3U);
  }
  EXPECT_EQ(updated->compiles, 3);
  Cache next(updated, CacheTest::options());
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(next.get(request(i)).value().origin(), Origin::disk);
  EXPECT_EQ(updated->compiles, 3);
}

TEST_F(Bundled, ARefreshReportsARequestThatDependsOnTheWorkingFolder) {
  const fs::path before = fs::current_path();
  fakes::write_file(folder_.path() / "work" / "factor.h", "#define FACTOR 2\n");
  fs::current_path(folder_.path() / "work");
  const Request scale(
      {.name = "scale", .source = "#include \"factor.h\"\nkernel void scale() {}\n", .language = Language::opencl});
  const auto record = record_of({scale, request(1)});
  fs::current_path(before);
  Cache cache(backend_, CacheTest::options());
  const auto report = cache.refresh(record);
  EXPECT_EQ(report.ready, 1U);
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_EQ(report.errors[0].code(), ErrorCode::outdated);
  EXPECT_NE(report.errors[0].message().find("scale"), std::string::npos);
}

TEST_F(Bundled, ARefreshOfManyProgramsReportsEachOnce) {
  std::vector<Request> requests;
  for (int i = 0; i < 300; ++i) requests.push_back(request(i));
  const auto record = record_of(requests);
  Cache cache(backend_, CacheTest::options());
  std::set<std::size_t> places;
  std::size_t last = 0;
  const auto report = cache.refresh(record, [&](const Progress& progress) {
    EXPECT_EQ(progress.total, 300U);
    last = progress.done;
    places.insert(progress.index);
  });
  EXPECT_EQ(report.ready, 300U);
  EXPECT_EQ(places.size(), 300U);
  EXPECT_EQ(last, 300U);
  EXPECT_EQ(cache.stats().programs, 0U);
}

TEST_F(Bundled, ARefreshReportsWhatFailsAndCompilesTheRest) {
  const Request wrong({.name = "wrong", .source = "does not compile"});
  const auto record = record_of({request(1), wrong, request(2)});
  Cache cache(backend_, CacheTest::options());
  const auto report = cache.refresh(record);
  EXPECT_EQ(report.ready, 2U);
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_EQ(report.errors[0].code(), ErrorCode::compile_failed);
  EXPECT_EQ(cache.refresh(folder_.path() / "absent").errors.size(), 1U);
}

}  // namespace
}  // namespace kiln
