#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tuple>

#include <sys/stat.h>

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
  std::optional<std::string> entry = {};
  std::string language = {};
};

std::string read_source(const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error))
    throw Failure(
        Error(ErrorCode::io, fmt::format("cannot read {}; is it a file with the program's source?", path)));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// What the command line tells of the request; the language is the device's.
Request::Fields fields_of(const Options& options) {
  Request::Fields fields;
  fields.name = options.name.value_or(std::filesystem::path(options.file).stem().string());
  fields.options = options.options;
  for (const auto& define : options.defines) {
    const std::size_t equals = define.find('=');
    if (equals == 0) throw UsageError(fmt::format("--define takes NAME=VALUE, not \"{}\"", define));
    // A name alone is 1, as compilers have it.
    fields.defines[define.substr(0, equals)] = equals == std::string::npos ? "1" : define.substr(equals + 1);
  }
  for (const auto& folder : options.includes) fields.include_folders.emplace_back(folder);
  fields.source = read_source(options.file);
  return fields;
}

/// Opens the device that is named, or else one that compiles the language that is.
std::shared_ptr<Device> open_device_for(const Context& context, const std::string& language) {
  if (language.empty()) return context.open_device();
  const std::string api = language == "glsl" ? "opengl" : language;
  const char* preset = std::getenv("KILN_DEVICE");
  const std::string wanted = !context.device.empty() ? context.device : preset != nullptr ? preset : "";
  const bool fits = wanted == api || wanted.starts_with(api + ":");
  if (!context.device.empty() && !fits)
    throw UsageError(fmt::format("--device {} does not compile {}; that is for {}", wanted, language, api));
  return kiln::open_device(fits ? wanted : api, context.log()).value();
}

Request request_for(Language language, Request::Fields fields, const std::optional<std::string>& entry) {
  fields.language = language;
  // GLSL has no other entry point than main. Elsewhere a kernel has a name, most often that of its program.
  const bool is_glsl = language == Language::glsl || language == Language::vulkan_glsl;
  fields.entry = entry.value_or(is_glsl ? "main" : fields.name);
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
  struct stat status {};
  if (identity.formats.empty()) {
    answer.reason = "the driver gives no binaries out, so that nothing can be kept on disk for it";
  } else if (lstat(answer.file.c_str(), &status) != 0) {
    if (errno != ENOENT)
      throw Failure(
          Error(ErrorCode::io, fmt::format("cannot look for {}: {}", answer.file.string(), std::strerror(errno))));
    answer.reason = "it is not stored for this device";
  } else if (const auto entry = store::read_entry(folder, name); !entry) {
    const bool unreadable = entry.error().code() == ErrorCode::io;
    answer.reason =
        fmt::format("its entry {}: {}", unreadable ? "cannot be read" : "is damaged", entry.error().message());
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
  Json object = {{"hit", answer.hit},
                 {"name", request.name()},
                 {"key", request.key().digest.hex()},
                 {"language", to_string(request.language())},
                 {"entry", request.entry()},
                 {"api", identity.api},
                 {"device", identity.device},
                 {"file", answer.file.string()},
                 {"reason", or_null(answer.reason)},
                 {"nearest", nullptr},
                 {"differences", Json::array()}};
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
  text += fmt::format("The nearest stored is {} ({}), last used {} ago, in\n  {}\n\n", printable(program.name()),
                      program.file.key.digest.hex(12),
                      human_age(program.file.last_use, std::chrono::system_clock::now()),
                      printable(inventory.folder_name(program)));
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
  auto fields = fields_of(options);
  const auto device = open_device_for(context, options.language);
  const auto request = request_for(device->info().language, std::move(fields), options.entry);
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
  const std::string where = fmt::format("{} ({})", printable(identity.device), printable(identity.api));
  if (answer.hit)
    return print(fmt::format("{}: {} is stored for {} in\n  {}\n", paint("hit", Ink::good, terminal.colors), what,
                             where, printable(answer.file.string())));
  print(fmt::format("{}: {} would be compiled for {}:\n  {}.\n", paint("miss", Ink::bad, terminal.colors), what,
                    where, printable(answer.reason)));
  // Where the entry itself is there and damaged, or can never be, no other one explains anything.
  if (near && !(near->request.empty() && near->identity.empty()) && !identity.formats.empty())
    print(nearest_text(request, *near, inventory, terminal));
  if (inventory.programs.empty()) remark(context, fmt::format("Nothing is stored in {} at all.", root.string()));
}

}  // namespace

void add_why(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("why", "Tell why a program would be found or compiled, and what differs");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "The source of the program, in the device's language")->required();
  command->add_option("--name", options->name, "The program's name; by default that of the file")
      ->type_name("NAME");
  const auto repeatable = [command](const char* flag, std::vector<std::string>& values, const char* help,
                                    const char* type) {
    command->add_option(flag, values, help)->allow_extra_args(false)->type_name(type);
  };
  repeatable("--define,-D", options->defines, "A define; a name alone is 1; may be repeated", "NAME=VALUE");
  repeatable("--include,-I", options->includes, "A folder for #include; may be repeated", "DIR");
  repeatable("--option", options->options, "A compiler option; may be repeated", "TEXT");
  command
      ->add_option("--entry", options->entry,
                   "The entry point; by default main in GLSL, and the program's name elsewhere")
      ->type_name("NAME");
  command
      ->add_option("--language", options->language,
                   "Ask a device of this language: glsl, opencl, cuda, hip or vulkan")
      ->check(CLI::IsMember({"glsl", "opencl", "cuda", "hip", "vulkan"}).description(""))
      ->type_name("NAME");
  context.add_device_option(*command);
  command->footer(
      "The key of a program is made of its name, source, headers, defines, options, entry point and language.\n"
      "Give them as the program gives them. The language is that of the device. Exits with 0 for a hit and with 1\n"
      "for a miss.\n\n"
      "Examples:\n"
      "  kiln why conv2d.comp --device opengl --define TILE=16\n"
      "  kiln why scan.cu --language cuda --name scan_1024 --entry scan\n"
      "  kiln why conv2d.cl --device opencl:1 --option -cl-fast-relaxed-math --json");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
