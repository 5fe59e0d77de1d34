// What shared stores cost and save. `./dev sharing` starts servers and runs this program in network namespaces;
// each command prints one JSON object.
//
// `node DIRECTORY DEVICE [URL]`: gets 24 programs one after the other, as a node of a fleet does at its start.
// `hit DIRECTORY URL DEVICE`: the time of a get() that the store answers with a signed entry, and of one that the
//   disk answers, in turn. With the device `none`, entries have 10 kB and are loaded without a driver; so it is for
//   the following commands.
// `silent URL`: 8 threads get 200 programs, without the store and with it, when the store does not answer; then the
//   time that each further get() takes longer.
// `back URL COMMAND`: a store that does not answer, until COMMAND has run: the time until it is used again.
// `exit URL`: the time to destroy a cache with pending uploads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <span>
#include <thread>

#include <nlohmann/json.hpp>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

#include "no_driver.hpp"
#include "programs.hpp"

namespace kiln::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

CacheOptions options_for(const std::string& url) {
  CacheOptions options;
  options.stores.emplace();
  if (!url.empty()) options.stores->emplace_back(url);
  // Warnings are expected here.
  options.log = Log(LogLevel::error, [](const LogRecord& record) { std::cerr << record.message << "\n"; });
  return options;
}

Json node(const std::string& directory, const std::string& api, const std::string& url) {
  const auto device = open_device(api).value();
  CacheOptions options = options_for(url);
  options.directory = directory;
  options.upload_limit = std::chrono::minutes(1);
  std::vector<Request> requests;
  for (const Kernel& kernel : programs(24)) requests.push_back(kernel.request(*device).value());
  Cache cache(device, options);
  const auto start = Clock::now();
  for (const Request& each : requests) static_cast<void>(cache.get(each).value());
  const double took = milliseconds_since(start);
  cache.flush();
  const Stats stats = cache.stats();
  return {{"ms", took},
          {"compiles", stats.compiles},
          {"disk", stats.disk_hits},
          {"shared", stats.shared_hits},
          {"failures", stats.store_failures}};
}

Json hit(const std::string& directory, const std::string& url, const std::string& api) {
  std::shared_ptr<Backend> backend = std::make_shared<NoDriver>(std::chrono::microseconds(0));
  std::vector<Request> requests;
  if (api == "none") {
    for (int i = 0; i < 50; ++i) requests.push_back(numbered_request(i));
  } else {
    const auto device = open_device(api).value();
    for (const Kernel& kernel : programs(8)) requests.push_back(kernel.request(*device).value());
    backend = device;
  }
  CacheOptions disk = options_for({});
  disk.directory = directory;
  CacheOptions shared = options_for(url);
  shared.directory = directory + "-empty";
  shared.upload_limit = std::chrono::minutes(1);
  std::uint64_t bytes = 0;
  {
    // Fills both.
    CacheOptions both = shared;
    both.directory = directory;
    Cache cache(backend, both);
    for (const Request& each : requests) static_cast<void>(cache.get(each).value());
    cache.flush();
    bytes = cache.stats().stores.at(0).bytes_written / requests.size();
  }
  // What comes from the store is not kept on disk.
  shared.save = false;
  Cache from_disk(backend, disk);
  Cache from_store(backend, shared);
  std::vector<double> disk_us, store_us;
  const auto end = Clock::now() + std::chrono::seconds(3);
  for (int round = 0; Clock::now() < end; ++round)
    for (const Request& each : requests)
      for (auto* cache : {&from_disk, &from_store}) {
        cache->trim(0);
        const auto start = Clock::now();
        const Program program = cache->get(each).value();
        const double took = 1000 * milliseconds_since(start);
        if (program.origin() != (cache == &from_disk ? Origin::disk : Origin::shared))
          throw std::runtime_error("a get was not a hit");
        if (round > 0) (cache == &from_disk ? disk_us : store_us).push_back(took);
      }
  const auto median = [](std::vector<double>& times) {
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
  };
  const double of_disk = median(disk_us);
  const double of_store = median(store_us);
  const double answer =
      std::chrono::duration<double, std::micro>(from_store.stats().stores.at(0).latency_p50).count();
  return {{"bytes", bytes},
          {"disk_us", of_disk},
          {"store_us", of_store},
          {"answer_us", answer},
          {"ratio", of_store / of_disk}};
}

/// The time in which 8 threads get `count` new programs.
double get_with_8_threads(Cache& cache, int first, int count) {
  std::atomic<int> next{0};
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = next++; i < count; i = next++) static_cast<void>(cache.get(numbered_request(first + i)).value());
    });
  for (std::thread& thread : threads) thread.join();
  return milliseconds_since(start);
}

Json silent(const std::string& url) {
  const auto slow = std::make_shared<NoDriver>(std::chrono::milliseconds(5));
  CacheOptions options = options_for({});
  options.disk = false;
  Cache alone(slow, options);
  const double without = get_with_8_threads(alone, 0, 200);
  options.stores = std::vector<SharedStore>{url};
  options.upload_limit = std::chrono::milliseconds(0);
  Cache cache(slow, options);
  const double with = get_with_8_threads(cache, 0, 200);

  // The circuit breaker is open now. A compiler that takes no time shows what a get() costs in addition.
  const auto fast = std::make_shared<NoDriver>(std::chrono::microseconds(0));
  CacheOptions read_only = options;
  read_only.stores->front() = SharedStore(url + (url.find('?') == std::string::npos ? "?" : "&") + "mode=ro");
  CacheOptions no_store = options;
  no_store.stores.emplace();
  Cache fast_alone(fast, no_store);
  Cache fast_cache(fast, read_only);
  for (int i = 0; fast_cache.stats().stores.at(0).reading && i < 100; ++i)
    static_cast<void>(fast_cache.get(numbered_request(10'000 + i)).value());
  constexpr int gets = 2000;
  std::vector<double> difference;
  for (int i = 0; i < gets; ++i) {
    double took[2];
    const bool store_first = i % 2 == 0;
    for (Cache* each : {store_first ? &fast_cache : &fast_alone, store_first ? &fast_alone : &fast_cache}) {
      const Request wanted = numbered_request(20'000 + i);
      const auto start = Clock::now();
      static_cast<void>(each->get(wanted).value());
      took[each == &fast_cache] = 1000 * milliseconds_since(start);
    }
    difference.push_back(took[1] - took[0]);
  }
  std::ranges::sort(difference);
  double sum = 0;
  for (const double each : difference) sum += each;
  return {{"without_ms", without},
          {"with_ms", with},
          {"added_ms", with - without},
          {"breaker_open", !fast_cache.stats().stores.at(0).reading},
          {"added_per_get_us_median", difference[difference.size() / 2]},
          {"added_per_get_us_mean", sum / gets}};
}

Json back(const std::string& url, const std::string& command) {
  const auto backend = std::make_shared<NoDriver>(std::chrono::microseconds(100));
  CacheOptions options = options_for(url);
  options.disk = false;
  options.upload_limit = std::chrono::milliseconds(0);
  Cache cache(backend, options);
  int number = 0;
  // For long enough that the pauses between probes have grown.
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (Clock::now() < end) {
    static_cast<void>(cache.get(numbered_request(number++)).value());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const bool was_open = !cache.stats().stores.at(0).reading;
  if (std::system(command.c_str()) != 0) throw std::runtime_error("the command failed");
  const auto start = Clock::now();
  while (!cache.stats().stores.at(0).reading && milliseconds_since(start) < 120'000) {
    static_cast<void>(cache.get(numbered_request(number++)).value());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {{"was_skipped", was_open},
          {"used_again", cache.stats().stores.at(0).reading},
          {"after_s", milliseconds_since(start) / 1000}};
}

Json at_exit(const std::string& url) {
  const auto backend = std::make_shared<NoDriver>(std::chrono::microseconds(100));
  CacheOptions options = options_for(url);
  options.disk = false;
  auto cache = std::make_unique<Cache>(backend, options);
  for (int i = 0; i < 20; ++i) static_cast<void>(cache->get(numbered_request(i)).value());
  const auto start = Clock::now();
  cache.reset();
  return {{"destructor_s", milliseconds_since(start) / 1000}};
}

int run(std::span<char*> arguments) {
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  const std::string command = words.empty() ? "" : words[0];
  Json result;
  if (command == "node" && (words.size() == 3 || words.size() == 4))
    result = node(words[1], words[2], words.size() == 4 ? words[3] : "");
  else if (command == "hit" && words.size() == 4)
    result = hit(words[1], words[2], words[3]);
  else if (command == "silent" && words.size() == 2)
    result = silent(words[1]);
  else if (command == "back" && words.size() == 3)
    result = back(words[1], words[2]);
  else if (command == "exit" && words.size() == 2)
    result = at_exit(words[1]);
  else
    return std::cerr << "run `./dev sharing`, which runs this\n", 2;
  std::cout << result.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int count, char** arguments) try {
  return kiln::bench::run(std::span(arguments, static_cast<std::size_t>(count)));
} catch (const std::exception& error) {
  std::cerr << "sharing_bench: " << error.what() << "\n";
  return 1;
}
