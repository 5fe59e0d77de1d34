#include <algorithm>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/try.hpp"
#include "commands.hpp"
#include "key/record_writer.hpp"
#include "key/request_record.hpp"
#include "quantity.hpp"
#include "source_options.hpp"

namespace kiln::cli {
namespace {

using key::OutsideFile;
using key::RecordedFile;
using key::RecordedRequest;
using key::RequestRecord;

/// The smallest number of digits that selects requests by key, and how many are listed.
constexpr std::size_t least_digits = 4;
constexpr std::size_t shown_digits = 12;

RequestRecord read_record(Context& context, const std::string& path) {
  auto record = RequestRecord::read(path).value();
  if (record.damaged() == 0) return record;
  complain(fmt::format("{}: skipped {}", path, human_count(record.damaged(), "damaged item")));
  context.status = exit_status::failed;
  return record;
}

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

void list_requests(Context& context, const std::string& path) {
  const auto record = read_record(context, path);
  if (context.json) {
    auto list = Json::array();
    for (const auto& entry : record.entries())
      list.push_back({{"name", entry.key.name},
                      {"key", entry.key.digest.hex()},
                      {"language", to_string(entry.language)},
                      {"api", entry.api},
                      {"compile_ms", milliseconds(entry.compile_time)},
                      {"source_bytes", entry.source_bytes},
                      {"headers", entry.headers}});
    return print_json(list);
  }
  if (record.entries().empty()) return remark(context, fmt::format("{} has no requests.", path));
  using enum Table::Align;
  Table table({{"NAME", left, Table::Overflow::cut},
               {"LANGUAGE"},
               {"API"},
               {"COMPILE", right},
               {"SOURCE", right},
               {"HEADERS", right},
               {"KEY"}});
  for (const auto& entry : record.entries())
    table.add({entry.key.name, std::string(to_string(entry.language)), entry.api,
               human_duration(entry.compile_time), human_size(entry.source_bytes), std::to_string(entry.headers),
               entry.key.digest.hex(shown_digits)});
  print(table.format(context.terminal()));
}

std::vector<RequestRecord::Entry> find(const RequestRecord& record, const std::string& wanted) {
  std::string prefix = wanted;
  std::ranges::transform(prefix, prefix.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_prefix = prefix.size() >= least_digits;
  std::vector<RequestRecord::Entry> found;
  for (const auto& entry : record.entries())
    if (entry.key.name == wanted || (is_prefix && entry.key.digest.hex().starts_with(prefix)))
      found.push_back(entry);
  if (found.empty())
    throw Failure(Error(ErrorCode::io, fmt::format("no request in {} has the name or key \"{}\"; `kiln record ls` "
                                                   "lists the requests; a key needs {} digits or more",
                                                   record.path().string(), printable(wanted), least_digits)));
  return found;
}

/// What the files are whose contents the record does not have.
std::string_view kind_of(const RecordedFile& file) {
  switch (file.kind) {
    case RecordedFile::Kind::stored: return "stored";
    case RecordedFile::Kind::present: return "only its existence matters";
    case RecordedFile::Kind::unreadable: return "could not be read";
  }
  return "unknown";
}

std::string_view kind_of(const OutsideFile& file) { return file.toolkit ? "of the toolkit" : "absolute path"; }

Json request_json(const RecordedRequest& request) {
  Json object = {{"name", request.key.name},
                 {"key", request.key.digest.hex()},
                 {"language", to_string(request.language)},
                 {"api", request.api},
                 {"compile_ms", milliseconds(request.compile_time)},
                 {"entries", request.entries},
                 {"options", request.options},
                 {"defines", request.defines},
                 {"constants", Json::object()},
                 {"source", {{"sha256", request.source.hex()}, {"bytes", request.source_bytes}}},
                 {"files", Json::array()}};
  for (const auto& [number, constant] : request.constants)
    object["constants"][std::to_string(number)] = to_string(constant);
  auto& files = object["files"];
  for (const auto& [name, digest] : request.headers)
    files.push_back({{"name", name}, {"kind", "given"}, {"sha256", digest.hex()}});
  for (const RecordedFile& file : request.tree.files)
    files.push_back(
        {{"name", file.path},
         {"kind", kind_of(file)},
         {"sha256", file.kind == RecordedFile::Kind::stored ? Json(file.digest.hex()) : Json(nullptr)}});
  for (const OutsideFile& file : request.tree.outside)
    files.push_back({{"name", file.path}, {"kind", kind_of(file)}, {"sha256", file.digest.hex()}});
  return object;
}

std::string describe(const RecordedRequest& request, const Terminal& terminal) {
  Table table = Table::of_fields();
  table.add({"  key", request.key.digest.hex()});
  table.add({"  language", std::string(to_string(request.language))});
  table.add({"  api", request.api});
  table.add({"  compile time", human_duration(request.compile_time)});
  if (request.entries.empty()) table.add({"  entry points", "all"});
  for (const std::string& entry : request.entries) table.add({"  entry point", entry});
  table.add({"  options", request.options.empty() ? "none" : fmt::format("{}", fmt::join(request.options, " "))});
  if (request.defines.empty()) table.add({"  defines", "none"});
  for (const auto& [name, value] : request.defines) table.add({"  define", fmt::format("{}={}", name, value)});
  for (const auto& [number, constant] : request.constants)
    table.add({"  constant", fmt::format("{} = {}", number, to_string(constant))});
  table.add({"  source", fmt::format("{} bytes, sha256 {}", request.source_bytes, request.source.hex())});
  for (const auto& [name, digest] : request.headers)
    table.add({"  header", fmt::format("{}, given, sha256 {}", name, digest.hex())});
  for (const RecordedFile& file : request.tree.files) {
    const bool is_stored = file.kind == RecordedFile::Kind::stored;
    table.add(
        {"  header", fmt::format("{}, {}", file.path, is_stored ? "sha256 " + file.digest.hex() : kind_of(file))});
  }
  for (const OutsideFile& file : request.tree.outside)
    table.add({"  header", fmt::format("{}, {}, sha256 {}", file.path, kind_of(file), file.digest.hex())});
  return paint(printable(request.key.name), Ink::heading, terminal.colors) + "\n" + table.format(terminal);
}

struct ShowOptions {
  std::string path = {};
  std::string wanted = {};
  bool prints_source = false;
};

void show_requests(Context& context, const ShowOptions& options) {
  const auto record = read_record(context, options.path);
  const auto found = find(record, options.wanted);
  if (options.prints_source) {
    if (context.json) throw UsageError("--source and --json cannot be combined");
    const Digest first = record.request(found.front()).value().source;
    for (const auto& entry : found)
      if (record.request(entry).value().source != first)
        throw Failure(Error(ErrorCode::io, fmt::format("{} has several requests of this name with different "
                                                       "sources; give the key of one",
                                                       options.path)));
    const auto source = record.contents(first).value();
    return print({reinterpret_cast<const char*>(source.data()), source.size()});
  }
  auto list = Json::array();
  std::string separator;
  for (const auto& entry : found) {
    const auto request = record.request(entry).value();
    if (context.json) {
      list.push_back(request_json(request));
    } else {
      print(separator + describe(request, context.terminal()));
      separator = "\n";
    }
  }
  if (context.json) print_json(list);
}

struct MergeOptions {
  std::string to = {};
  std::vector<std::string> from = {};
};

void merge_records(Context& context, const MergeOptions& options) {
  key::RecordWriter writer(options.to);
  std::size_t total = 0;
  std::size_t added = 0;
  std::vector<std::string> problems;
  for (const std::string& path : options.from) {
    const auto record = read_record(context, path);
    for (const auto& entry : record.entries()) {
      ++total;
      const auto result = writer.add(record, entry);
      if (result)
        added += *result ? 1 : 0;
      else if (result.error().code() == ErrorCode::damaged)
        problems.push_back(fmt::format("{}: {}", entry.key.name, result.error().message()));
      else
        throw Failure(result.error());
    }
  }
  for (const std::string& problem : problems) complain(problem);
  if (!problems.empty()) context.status = exit_status::failed;
  if (context.json)
    return print_json({{"file", options.to}, {"requests", total}, {"added", added}, {"failed", problems.size()}});
  print(fmt::format("added {} of {} to {}\n", added, human_count(total, "request"), printable(options.to)));
}

struct AddOptions {
  std::string to = {};
  std::vector<std::string> files = {};
  std::string api = {};
  SourceOptions source = {};
};

/// The API that a request is recorded for.
std::string api_for(const AddOptions& options, Language language, const std::string& file) {
  const auto apis = apis_of(language);
  if (options.api.empty()) return apis.front();
  if (std::ranges::find(apis, options.api) != apis.end()) return options.api;
  throw UsageError(fmt::format("{} is in the language {}, which devices of --api {} do not take", file,
                               to_string(language), options.api));
}

void add_requests(Context& context, const AddOptions& options) {
  if (options.source.name && options.files.size() > 1)
    throw UsageError("--name names one program, but there are several files");
  key::RecordWriter writer(options.to);
  std::size_t added = 0;
  std::size_t failed = 0;
  for (const std::string& file : options.files) {
    const auto language = language_of_file(options.source, file);
    if (!language)
      throw UsageError(fmt::format("the suffix of {} is that of no language; give one with --language", file));
    const std::string api = api_for(options, *language, file);
    try {
      // How long it takes to compile is not known.
      added += writer.add(request_for(options.source, file, *language), api, {}).value() ? 1 : 0;
    } catch (const Failure& failure) {
      ++failed;
      complain(fmt::format("{}: {}", file, failure.what()));
    }
  }
  if (failed > 0) context.status = exit_status::failed;
  if (context.json)
    return print_json(
        {{"file", options.to}, {"requests", options.files.size()}, {"added", added}, {"failed", failed}});
  print(fmt::format("added {} of {} to {}\n", added, human_count(options.files.size(), "request"),
                    printable(options.to)));
}

}  // namespace

void add_record(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("record", "List, show, merge and extend the records of requests");
  command->require_subcommand(1);
  auto path = std::make_shared<std::string>();
  auto* ls = command->add_subcommand("ls", "List the requests of a record");
  ls->add_option("FILE", *path, "The record")->required()->type_name("");
  ls->callback([&context, path] { list_requests(context, *path); });
  auto shown = std::make_shared<ShowOptions>();
  auto* show = command->add_subcommand("show", "Show all details of a request, with its files");
  show->add_option("FILE", shown->path, "The record")->required()->type_name("");
  show->add_option("PROGRAM", shown->wanted, "Name of the program, or the first 4 or more digits of its key")
      ->required()
      ->type_name("");
  show->add_flag("--source", shown->prints_source, "Print only the source");
  show->callback([&context, shown] { show_requests(context, *shown); });
  auto merged = std::make_shared<MergeOptions>();
  auto* merge = command->add_subcommand("merge", "Add the requests of records to another one");
  merge->add_option("OUT", merged->to, "The record that gets them; may exist, and may be in use")
      ->required()
      ->type_name("");
  merge->add_option("IN", merged->from, "The records that are read")->required()->type_name("");
  merge->callback([&context, merged] { merge_records(context, *merged); });
  auto added = std::make_shared<AddOptions>();
  auto* add = command->add_subcommand("add", "Add requests of source files, for devices that need not be present");
  add->add_option("OUT", added->to, "The record that gets them; may exist, and may be in use")
      ->required()
      ->type_name("");
  add->add_option("FILE", added->files, "Source files, or programs that are compiled already")
      ->required()
      ->type_name("");
  added->source.add_request_options(*add);
  add->add_option("--api", added->api, "For devices of this API [the first that takes the language]")
      ->check(CLI::IsMember({"opengl", "opencl", "vulkan", "cuda", "hip"}).description(""))
      ->type_name("NAME");
  add->callback([&context, added] { add_requests(context, *added); });
  for (auto* part : {ls, show, merge, add}) {
    part->group("Commands");
    context.add_common_options(*part);
  }
  command->footer(
      "A record has every request that an application made, with sources and headers. An application writes one\n"
      "if KILN_RECORD names a file. `kiln record add` needs no application and no device. Damaged items are "
      "skipped; the command then exits with 1.\n\n"
      "Examples:\n"
      "  KILN_RECORD=app.kilnreq ./app\n"
      "  kiln record ls app.kilnreq\n"
      "  kiln record show app.kilnreq conv2d_3x3 --source\n"
      "  kiln record merge all.kilnreq node-*.kilnreq\n"
      "  kiln record add app.kilnreq scale.cu --entry scale -D TILE=16");
}

}  // namespace kiln::cli
