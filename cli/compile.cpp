#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <thread>

#include <fmt/format.h>

#include <kiln/cache.hpp>

#include "commands.hpp"
#include "quantity.hpp"
#include "source_options.hpp"
#include "store/disk_store.hpp"

namespace kiln::cli {
namespace {

/// How long the command waits for uploads.
constexpr std::chrono::minutes longest_upload{5};

struct CompileOptions {
  std::vector<std::string> files = {};
  SourceOptions source = {};
};

/// The result for a file.
struct CompiledFile {
  std::string file;
  std::string name = {};
  std::optional<Digest> key = {};
  std::optional<Program> program = {};
  std::vector<std::string> entries = {};
  std::optional<Error> error = {};
  /// Another file before this one has the same key.
  bool is_repeated = false;

  bool is_compiled() const { return program && !is_repeated && program->origin() == Origin::compiled; }
  const char* outcome() const {
    if (!program) return "failed";
    if (!program->stored()) return "not stored";
    return is_compiled() ? "compiled" : "stored";
  }
  std::chrono::nanoseconds compile_time() const {
    return program ? program->compile_time() : std::chrono::nanoseconds{};
  }
};

/// Why a cache did not store a program that compiles.
Error why_not_stored(const Cache& cache, const std::filesystem::path& directory, const Identity& identity) {
  if (cache.stats().save_failures > 0)
    return Error(ErrorCode::io, "the program compiles, but cannot be saved; --verbose shows why");
  if (const auto disk = store::DiskStore::open(directory, identity, Log(LogLevel::off, {})); !disk)
    return Error(disk.error().code(), "the program compiles, but " + disk.error().message());
  return Error(ErrorCode::unsupported,
               "the program compiles, but the driver provides no binary to store; each process compiles it again");
}

/// Marks files with the key of an earlier file, and adds `reason` to programs that the cache did not store.
template <class Reason>
void check_stored(std::vector<CompiledFile>& results, Reason reason) {
  std::set<std::string> keys;
  for (CompiledFile& result : results) {
    if (!result.program) continue;
    result.is_repeated = !keys.insert(result.key->hex()).second;
    if (!result.program->stored()) result.error = reason();
  }
}

/// Results are in the order of the files.
std::vector<CompiledFile> compile_all(Cache& cache, const CompileOptions& options, const Target& target,
                                      ProgressBar& bar) {
  std::vector<CompiledFile> results;
  std::vector<Request> requests;
  // The place of each request's file.
  std::vector<std::size_t> places;
  for (const std::string& file : options.files) {
    CompiledFile& result = results.emplace_back(CompiledFile{.file = file});
    try {
      requests.push_back(request_for(options.source, file, target.language));
      places.push_back(results.size() - 1);
      result.name = requests.back().name();
      result.key = requests.back().key().digest;
    } catch (const Failure& failure) {
      result.error = failure.error();
    }
  }
  cache.preload(requests, [&](const Progress& progress) {
    if (progress.error != nullptr) results[places[progress.index]].error = *progress.error;
    bar.update(progress.done, progress.total, progress.name, progress.remaining);
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CompiledFile& result = results[places[i]];
    if (result.error) continue;
    auto program = cache.get(requests[i]);
    if (!program) {
      result.error = std::move(program).error();
      continue;
    }
    result.entries = program->module().entries();
    result.program = *std::move(program);
  }
  return results;
}

Json json_of(const CompiledFile& result) {
  Json object = {{"file", result.file},
                 {"name", result.name},
                 {"key", result.key ? Json(result.key->hex()) : Json(nullptr)},
                 {"outcome", result.outcome()},
                 {"compile_ms", std::chrono::duration<double, std::milli>(result.compile_time()).count()},
                 {"entries", result.entries},
                 {"error", nullptr}};
  if (result.error)
    object["error"] = {{"code", to_string(result.error->code())},
                       {"message", result.error->message()},
                       {"log", result.error->log()}};
  return object;
}

void print_text(const std::vector<CompiledFile>& results, const Identity& identity, const Terminal& terminal) {
  Table table({{"OUTCOME"}, {"PROGRAM"}, {"KEY"}, {"COMPILE TIME", Table::Align::right}});
  std::size_t compiled = 0;
  std::size_t failed = 0;
  std::size_t unstored = 0;
  for (const CompiledFile& result : results) {
    failed += result.program ? 0 : 1;
    unstored += result.program && result.error ? 1 : 0;
    compiled += result.is_compiled() && !result.error ? 1 : 0;
    const Ink ink = result.error ? Ink::bad : result.is_compiled() ? Ink::plain : Ink::faint;
    table.add({{result.outcome(), ink},
               result.name.empty() ? result.file : result.name,
               result.key ? result.key->hex(12) : "-",
               result.program ? human_duration(result.compile_time()) : "-"});
  }
  print(table.format(terminal));
  for (const CompiledFile& result : results)
    if (result.error) complain(fmt::format("{}: {}", result.file, result.error->describe()));
  print(fmt::format("{} for {} ({}): {} compiled, {} stored before, {} failed{}\n",
                    human_count(results.size(), "program"), printable(identity.device), identity.api, compiled,
                    results.size() - compiled - failed - unstored, failed,
                    unstored > 0 ? fmt::format(", {} not stored", unstored) : ""));
}

void run(Context& context, const CompileOptions& options) {
  if (options.source.name && options.files.size() > 1)
    throw UsageError("--name names one program, but there are several files");
  const auto language = language_of_file(options.source, options.files.front());
  for (const std::string& file : options.files)
    if (language_of_file(options.source, file) != language)
      throw UsageError(fmt::format("{} and {} are in different languages; compile them one after the other",
                                   options.files.front(), file));
  const Target target = open_target(context, options.source, language);
  std::vector<CompiledFile> results;
  {
    ProgressBar bar(context.terminal(), "Compiling");
    CacheOptions cache_options;
    cache_options.directory = context.directory();
    // What a bundle has is not on disk.
    cache_options.bundles.emplace();
    cache_options.compile = CompilePolicy::always;
    cache_options.stores = context.stores();
    cache_options.max_programs = std::max(cache_options.max_programs, options.files.size());
    cache_options.max_disk_bytes = std::numeric_limits<std::uint64_t>::max();
    // Here uploads are wanted, and not only a by-product.
    cache_options.write_queue = std::max(cache_options.write_queue, options.files.size());
    cache_options.upload_limit = longest_upload;
    cache_options.log = context.log();
    Cache cache(target.backend, std::move(cache_options));
    results = compile_all(cache, options, target, bar);
    cache.flush();
    for (const StoreStats& store : cache.stats().stores)
      if (store.upload_errors > 0)
        complain(
            fmt::format("{} were not uploaded to {}", human_count(store.upload_errors, "program"), store.name));
    check_stored(results, [&] { return why_not_stored(cache, context.directory(), target.backend->identity()); });
  }
  const Identity& identity = target.backend->identity();
  if (std::ranges::any_of(results, [](const CompiledFile& result) { return result.error.has_value(); }))
    context.status = exit_status::failed;
  if (!context.json) return print_text(results, identity, context.terminal());
  auto list = Json::array();
  for (const CompiledFile& result : results) list.push_back(json_of(result));
  print_json({{"api", identity.api}, {"device", identity.device}, {"programs", std::move(list)}});
}

}  // namespace

void add_compile(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("compile", "Compile source files and store them in the cache");
  auto options = std::make_shared<CompileOptions>();
  command->add_option("FILE", options->files, "Source files, or programs that are compiled already")
      ->required()
      ->type_name("");
  options->source.add_to(*command, context);
  command->footer(
      "Applications find the programs if they request them with the same name, source, headers, defines,\n"
      "options, entry points and language. #include searches the folder of the source file first, then those of\n"
      "--include. The headers of CUDA and HIP are found without --include.\n\n"
      "With --arch, NVRTC or hipcc compiles for a GPU that need not be present. CUDA devices load such\n"
      "programs. HIP devices do not yet, because they compile with hipRTC.\n\n"
      "Exits with 1 if a program does not compile or cannot be stored.\n\n"
      "Examples:\n"
      "  kiln compile kernels/*.cl -I include -D TILE=16\n"
      "  kiln compile reduce.cu --entry 'sum<float>' --entry 'sum<int>' --arch sm_90\n"
      "  kiln compile scale.spv --device vulkan");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
