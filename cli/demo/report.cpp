#include "report.hpp"

#include <algorithm>
#include <numeric>

namespace kiln::cli::demo {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

double ProcessReport::get_ms() const {
  return std::accumulate(programs.begin(), programs.end(), 0.0, [&](double sum, const ProgramReport& program) {
    return preloads ? std::max(sum, program.get_ms) : sum + program.get_ms;
  });
}

std::size_t ProcessReport::checked() const {
  return static_cast<std::size_t>(std::count_if(programs.begin(), programs.end(),
                                                [](const ProgramReport& program) { return program.checked; }));
}

double Runs::warm_get_ms(std::size_t program) const {
  std::vector<double> times;
  for (const ProcessReport& process : warm())
    if (program < process.programs.size()) times.push_back(process.programs[program].get_ms);
  return median(std::move(times));
}

double Runs::warm_get_ms() const {
  std::vector<double> times;
  for (const ProcessReport& process : warm()) times.push_back(process.get_ms());
  return median(std::move(times));
}

Json hello_message(const ProcessReport& report) {
  return {{"device", report.device},
          {"driver", report.driver},
          {"binaries", report.binaries},
          {"preloads", report.preloads},
          {"names", report.names}};
}

Json program_message(const ProgramReport& report) {
  return {
      {"program", report.name}, {"origin", report.origin}, {"get_ms", report.get_ms}, {"problem", report.problem}};
}

Json check_message(std::string_view problem) { return {{"checked", true}, {"problem", problem}}; }

Json goodbye_message(const ProcessReport& report) {
  return {{"compiles", report.compiles}, {"saved_ms", report.saved_ms}, {"warnings", report.warnings}};
}

Json failure_message(std::string_view sentence) { return {{"failure", sentence}}; }

ProcessReport with_message(ProcessReport report, const Json& message) {
  if (message.contains("failure")) {
    throw Failure(Error(ErrorCode::device_failed, message.at("failure")));
  } else if (message.contains("names")) {
    report.device = message.at("device");
    report.driver = message.at("driver");
    report.binaries = message.at("binaries");
    report.preloads = message.at("preloads");
    report.names = message.at("names").get<std::vector<std::string>>();
  } else if (message.contains("program")) {
    report.programs.push_back({.name = message.at("program"),
                               .origin = message.at("origin"),
                               .get_ms = message.at("get_ms"),
                               .problem = message.at("problem")});
  } else if (message.contains("checked")) {
    ProgramReport& program = report.programs.at(report.checked());
    program.checked = true;
    program.problem = message.at("problem");
  } else {
    report.compiles = message.at("compiles");
    report.saved_ms = message.at("saved_ms");
    report.warnings = message.at("warnings").get<std::vector<std::string>>();
    report.finished = true;
  }
  return report;
}

}  // namespace kiln::cli::demo
