#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include <kiln/kernel.hpp>

#include "backend/source_text.hpp"
#include "commands.hpp"
#include "demo/case.hpp"
#include "key/record_writer.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

struct Options {
  std::string kernel = {};
  std::string language = {};
  /// Gets the requests; empty: the source is printed.
  std::string record = {};
};

void list(const Context& context, const std::vector<demo::Case>& cases) {
  Json names = Json::array();
  std::string lines;
  for (const demo::Case& one : cases) {
    names.push_back(one.kernel.name);
    lines += one.kernel.name + "\n";
  }
  if (context.json)
    print_json(names);
  else
    print(lines);
}

/// The API of the devices that take a language of kernels.
std::string_view api_of(Language language) { return language == Language::glsl ? "opengl" : to_string(language); }

Language language_of(const Options& options) {
  if (const auto language = kiln::language_of(options.language)) return *language;
  throw UsageError("emit needs a language: --language glsl, opencl, cuda, hip or vulkan");
}

/// Adds the request of one kernel, or of all, to a record.
void add_to_record(const Context& context, const Options& options, const std::vector<demo::Case>& cases) {
  const Language language = language_of(options);
  key::RecordWriter writer(options.record);
  std::size_t requests = 0;
  std::size_t added = 0;
  for (const demo::Case& one : cases) {
    if (!options.kernel.empty() && one.kernel.name != options.kernel) continue;
    ++requests;
    added += writer.add(one.kernel.request(language).value(), api_of(language), {}).value() ? 1 : 0;
  }
  if (context.json)
    return print_json({{"file", options.record}, {"requests", requests}, {"added", added}, {"failed", 0}});
  print(fmt::format("added {} of {} to {}\n", added, human_count(requests, "request"), printable(options.record)));
}

void run(const Context& context, const Options& options) {
  const std::vector<demo::Case> cases = demo::cases();
  if (options.kernel.empty() && options.record.empty()) return list(context, cases);
  if (options.kernel.empty()) return add_to_record(context, options, cases);
  const auto found = std::find_if(cases.begin(), cases.end(),
                                  [&](const demo::Case& one) { return one.kernel.name == options.kernel; });
  if (found == cases.end())
    throw UsageError(
        fmt::format("the demo has no kernel \"{}\"; `kiln emit` lists its kernels", printable(options.kernel)));
  if (!options.record.empty()) return add_to_record(context, options, cases);
  const Request request = found->kernel.request(language_of(options)).value();
  const std::string source = backend::with_defines(request);
  if (context.json)
    print_json({{"kernel", found->kernel.name},
                {"language", options.language},
                {"entry", request.entries().at(0)},
                {"group_size", found->kernel.group_size},
                {"source", source}});
  else
    print(source);
}

}  // namespace

void add_emit(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("emit", "Print the source of a demo kernel in a language");
  const auto options = std::make_shared<Options>();
  command->add_option("KERNEL", options->kernel, "Name of the kernel; without it, the command lists the names")
      ->type_name("");
  command->add_option("--language", options->language, "glsl, opencl, cuda, hip or vulkan")
      ->check(CLI::IsMember({"glsl", "opencl", "cuda", "hip", "vulkan"}).description(""))
      ->type_name("NAME");
  command
      ->add_option("--record", options->record,
                   "Print nothing, but add the request of the kernel, or of all kernels, to this record")
      ->type_name("FILE");
  command->footer(
      "Kiln translates one kernel source to all five languages. This command prints the complete source that\n"
      "the compiler of a language gets. It needs no device.\n\n"
      "Examples:\n"
      "  kiln emit\n"
      "  kiln emit nbody_step --language cuda > nbody_step.cu\n"
      "  kiln emit nbody_step --language opencl --json | jq -r .entry\n"
      "  kiln emit --language cuda --record demo.kilnreq");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
