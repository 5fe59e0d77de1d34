#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

#include <kiln/request.hpp>

#include "commands.hpp"
#include "difference.hpp"
#include "inventory.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

struct Options {
  std::string file = {};
  std::optional<std::string> name = {};
  std::vector<std::string> defines = {};
  std::vector<std::string> includes = {};
  std::vector<std::string> options = {};
  std::string entry = "main";
};

std::string read_source(const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error))
    throw Failure(
        Error(ErrorCode::io, fmt::format("cannot read {}; is it a file with the program's source?", path)));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Request request_of(const Options& options) {
  Request::Fields fields;
  fields.name = options.name.value_or(std::filesystem::path(options.file).stem().string());
  fields.entry = options.entry;
  fields.options = options.options;
  for (const auto& define : options.defines) {
    const std::size_t equals = define.find('=');
    if (equals == 0) throw UsageError(fmt::format("--define takes NAME=VALUE, not \"{}\"", define));
    // A name alone is 1, as compilers have it.
    fields.defines[define.substr(0, equals)] = equals == std::string::npos ? "1" : define.substr(equals + 1);
  }
  for (const auto& folder : options.includes) fields.include_folders.emplace_back(folder);
  fields.source = read_source(options.file);
  Request request(std::move(fields));
  if (request.error()) {
    const bool missing = request.error()->code() == ErrorCode::include_not_found;
    throw Failure(Error(request.error()->code(),
                        request.error()->message() + (missing ? "; name its folder with --include DIR" : "")));
  }
  return request;
}

/// What a get() of the request would meet on disk.
struct Answer {
  bool hit = false;
  /// Where the entry is, or would be.
  std::filesystem::path file;
  /// Why it would miss, as a clause.
  std::string reason = {};
};

Answer look_up(const std::filesystem::path& root, const Identity& identity, const Request& request) {
  const auto folder = root / identity.folder();
  const std::string name = store::entry_file_name(request.key());
  Answer answer{false, folder / name};
  std::error_code error;
  if (identity.formats.empty()) {
    answer.reason = "the driver gives no binaries out, so that nothing can be kept on disk for it";
  } else if (!std::filesystem::exists(std::filesystem::symlink_status(answer.file, error))) {
    answer.reason = "it is not stored for this device";
  } else if (const auto entry = store::read_entry(folder, name); !entry) {
    answer.reason = fmt::format("its entry is damaged: {}", entry.error().message());
  } else {
    answer.hit = true;
  }
  return answer;
}

/// A stored program that is like the request, and in what it is not.
struct Nearest {
  const StoredProgram* program;
  std::vector<Difference> request;
  std::vector<Difference> identity;

  /// Smaller is nearer: the name first, then the request, then the device, then the latest.
  auto rank(const Request& wanted) const {
    return std::tuple(program->name() != wanted.name(), request.size(), identity.size(),
                      -program->file.last_use.time_since_epoch().count());
  }
};

std::optional<Nearest> nearest(const Inventory& inventory, const Request& request, const Identity& identity) {
  const Json asked = Json::parse(request.describe());
  std::optional<Nearest> best;
  for (const auto& program : inventory.programs) {
    if (!program.damage.empty()) continue;
    const auto& folder = inventory.folders[program.folder];
    Nearest candidate{&program, request_differences(program.facts, asked), {}};
    if (folder.path.filename() != identity.folder()) {
      if (folder.identity) candidate.identity = identity_differences(*folder.identity, identity);
      if (candidate.identity.empty())
        candidate.identity.push_back(
            {"device", folder.path.filename().string() + " (its manifest.json is missing)", identity.folder()});
    }
    if (!best || candidate.rank(request) < best->rank(request)) best = std::move(candidate);
  }
  if (best && best->request.empty() && best->program->file.key.digest != request.key().digest)
    best->request.push_back(
        {"version of the key", best->program->file.key.digest.hex(12), request.key().digest.hex(12)});
  return best;
}

Json difference_json(const std::vector<Difference>& differences, std::string_view of) {
  auto list = Json::array();
  for (const auto& [field, stored, asked] : differences)
    list.push_back({{"of", of},
                    {"field", field},
                    {"stored", stored ? Json(*stored) : Json(nullptr)},
                    {"asked", asked ? Json(*asked) : Json(nullptr)}});
  return list;
}

Json answer_json(const Request& request, const Identity& identity, const Answer& answer,
                 const std::optional<Nearest>& near, const Inventory& inventory) {
  Json object = {{"hit", answer.hit},         {"name", request.name()},       {"key", request.key().digest.hex()},
                 {"device", identity.device}, {"file", answer.file.string()}, {"reason", or_null(answer.reason)},
                 {"nearest", nullptr},        {"differences", Json::array()}};
  if (!near) return object;
  object["nearest"] = {{"name", near->program->name()},
                       {"key", near->program->file.key.digest.hex()},
                       {"folder", inventory.folder_name(*near->program)},
                       {"last_use", iso_time(near->program->file.last_use)}};
  object["differences"] = difference_json(near->request, "key");
  for (auto& difference : difference_json(near->identity, "identity"))
    object["differences"].push_back(std::move(difference));
  return object;
}

std::string nearest_text(const Request& request, const Nearest& near, const Inventory& inventory,
                         const Terminal& terminal) {
  const auto& program = *near.program;
  std::string text;
  if (program.name() != request.name()) text += "No program of that name is stored. ";
  text += fmt::format("The nearest stored is {} ({}), last used {} ago, in {}.\n\n", printable(program.name()),
                      program.file.key.digest.hex(12),
                      human_age(program.file.last_use, std::chrono::system_clock::now()),
                      inventory.folder_name(program));
  Table table({{"DIFFERS IN"}, {"STORED"}, {"ASKED FOR"}});
  for (const auto* differences : {&near.request, &near.identity})
    for (const auto& [field, stored, asked] : *differences)
      table.add({{field, Ink::warning},
                 {stored.value_or("(none)"), stored ? Ink::plain : Ink::faint},
                 {asked.value_or("(none)"), asked ? Ink::plain : Ink::faint}});
  return text + table.format(terminal);
}

void run(Context& context, const Options& options) {
  const auto root = context.directory();
  const auto request = request_of(options);
  const auto device = context.open_device();
  const Identity& identity = device->identity();
  const auto answer = look_up(root, identity, request);
  Inventory inventory;
  if (!answer.hit) inventory = take_inventory(root);
  for (const auto& problem : inventory.problems) complain(problem);
  const auto near = nearest(inventory, request, identity);

  context.status = answer.hit ? exit_status::ok : exit_status::failed;
  if (context.json) return print_json(answer_json(request, identity, answer, near, inventory));
  const auto terminal = context.terminal();
  const std::string what = fmt::format("{} ({})", printable(request.name()), request.key().digest.hex(12));
  if (answer.hit)
    return print(fmt::format("{}: {} is stored for {} in {}\n", paint("hit", Ink::good, terminal.colors), what,
                             identity.device, answer.file.string()));
  print(fmt::format("{}: {} would be compiled for {}: {}.\n", paint("miss", Ink::bad, terminal.colors), what,
                    identity.device, answer.reason));
  // Where the entry itself is there and damaged, or can never be, no other one explains anything.
  if (near && !(near->request.empty() && near->identity.empty()) && !identity.formats.empty())
    print(nearest_text(request, *near, inventory, terminal));
  if (inventory.programs.empty()) remark(context, fmt::format("Nothing is stored in {} at all.", root.string()));
}

}  // namespace

void add_why(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("why", "Tell why a program would be found or compiled, and what differs");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "The GLSL source of the program")->required();
  command->add_option("--name", options->name, "The program's name; by default that of the file")
      ->type_name("NAME");
  const auto repeatable = [command](const char* flag, std::vector<std::string>& values, const char* help,
                                    const char* type) {
    command->add_option(flag, values, help)->allow_extra_args(false)->type_name(type);
  };
  repeatable("--define,-D", options->defines, "A define; a name alone is 1; may be repeated", "NAME=VALUE");
  repeatable("--include,-I", options->includes, "A folder for #include; may be repeated", "DIR");
  repeatable("--option", options->options, "A compiler option; may be repeated", "TEXT");
  command->add_option("--entry", options->entry, "The entry point")->type_name("NAME");
  context.add_device_option(*command);
  command->footer(
      "The key of a program is made of its name, source, headers, defines, options, entry point and language;\n"
      "they must be given as the program gives them. Exits with 0 for a hit and with 1 for a miss.\n\n"
      "Examples:\n"
      "  kiln why conv2d.comp --define TILE=16\n"
      "  kiln why shaders/conv2d.comp --name conv2d_3x3 --include shaders/common --json");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
