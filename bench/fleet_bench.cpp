// One node of a fleet. `./dev fleet` starts many of them in network namespaces of their own.
//
// `node DIRECTORY DEVICE URL MODE COUNT`: prints "ready", waits for a line, gets COUNT programs and prints one JSON
//   object. The device `none` has a compiler that sleeps for 300 ms, as if each node had processors of its own. The
//   mode is `get` (one after the other) or `preload` (all at once, on two threads).
// `fill DIRECTORY URL RECORD COUNT`: compiles and uploads programs, and records them.
// `bulk DIRECTORY URL RECORD`: the time to get the programs of a record at once, and one by one.
#include <chrono>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

CacheOptions options_for(const std::string& directory, const std::string& url) {
  CacheOptions options;
  options.directory = directory;
  options.stores = std::vector<SharedStore>{url};
  options.upload_limit = std::chrono::minutes(1);
  options.write_queue = 1024;
  options.log = Log(LogLevel::error, [](const LogRecord& record) { std::cerr << record.message << "\n"; });
  return options;
}

std::vector<Request> numbered_requests(int count) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back(numbered_request(i));
  return requests;
}

Json node(const std::string& directory, const std::string& api, const std::string& url, const std::string& mode,
          int count) {
  std::shared_ptr<Backend> backend;
  std::vector<Request> requests;
  if (api == "none") {
    backend = std::make_shared<NoDriver>(std::chrono::milliseconds(300));
    requests = numbered_requests(count);
  } else {
    const auto device = open_device(api).value();
    for (const Kernel& kernel : programs(static_cast<std::size_t>(count)))
      requests.push_back(kernel.request(*device).value());
    backend = device;
  }
  CacheOptions options = options_for(directory, url);
  options.threads = 2;
  Cache cache(backend, options);
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  const auto start = Clock::now();
  std::size_t got = 0;
  if (mode == "preload")
    got = cache.preload(requests).ready;
  else
    for (const Request& each : requests) got += cache.get(each).ok() ? 1U : 0U;
  const double took = milliseconds_since(start);
  cache.flush();
  const StoreStats store = cache.stats().stores.at(0);
  return {{"ms", took},
          {"programs", got},
          {"compiles", cache.stats().compiles},
          {"leases", store.leases},
          {"lease_waits", store.lease_waits},
          {"lease_timeouts", store.lease_timeouts},
          {"errors", store.errors}};
}

Json fill(const std::string& directory, const std::string& url, const std::string& record, int count) {
  CacheOptions options = options_for(directory, url);
  options.record = record;
  Cache cache(std::make_shared<NoDriver>(std::chrono::milliseconds(0)), options);
  const auto report = cache.preload(numbered_requests(count));
  cache.flush();
  return {{"programs", report.ready}, {"uploads", cache.stats().stores.at(0).uploads}};
}

Json bulk(const std::string& directory, const std::string& url, const std::string& record) {
  const auto backend = std::make_shared<NoDriver>(std::chrono::seconds(10));
  Json result;
  {
    Cache cache(backend, options_for(directory + "/bulk", url));
    const auto start = Clock::now();
    const auto report = cache.warm(record);
    result["programs"] = report.ready;
    result["bulk_ms"] = milliseconds_since(start);
  }
  {
    Cache cache(backend, options_for(directory + "/single", url));
    const auto start = Clock::now();
    for (const Request& each : numbered_requests(result["programs"].get<int>()))
      if (cache.find(each).value() == std::nullopt) throw std::runtime_error("the store lacks a program");
    result["single_ms"] = milliseconds_since(start);
  }
  result["ratio"] = result["single_ms"].get<double>() / result["bulk_ms"].get<double>();
  return result;
}

int run(std::span<char*> arguments) {
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  const std::string command = words.empty() ? "" : words[0];
  Json result;
  if (command == "node" && words.size() == 6)
    result = node(words[1], words[2], words[3], words[4], std::stoi(words[5]));
  else if (command == "fill" && words.size() == 5)
    result = fill(words[1], words[2], words[3], std::stoi(words[4]));
  else if (command == "bulk" && words.size() == 4)
    result = bulk(words[1], words[2], words[3]);
  else
    return std::cerr << "run `./dev fleet`, which runs this\n", 2;
  std::cout << result.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int count, char** arguments) try {
  return kiln::bench::run(std::span(arguments, static_cast<std::size_t>(count)));
} catch (const std::exception& error) {
  std::cerr << "fleet_bench: " << error.what() << "\n";
  return 1;
}
