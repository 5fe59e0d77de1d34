#include "tune_report.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include <kiln/device.hpp>

#include "context.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t rows = 10;

double microseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1000; }

/// The successful trials with their number in the search, and the range of their times. The scale is logarithmic.
struct Points {
  struct Point {
    std::size_t number;
    double time;
    double best;
  };
  std::vector<Point> all;
  double low = 0;
  double high = 1;

  explicit Points(const std::vector<TuneTrial>& trials) {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (!trials[i].problem.empty()) continue;
      const double time = microseconds(trials[i].time);
      best = std::min(best, time);
      all.push_back({i, time, best});
    }
    if (all.empty()) return;
    low = best;
    high = std::max_element(all.begin(), all.end(), [](const Point& a, const Point& b) {
             return a.time < b.time;
           })->time;
    // Avoids an empty range.
    high = std::max(high, low * 1.01);
  }
  /// The position of a time between the shortest (0) and the longest (1).
  double height(double time) const { return std::log(time / low) / std::log(high / low); }
};

/// Escapes a text for HTML.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  return result;
}

std::string svg_of(const std::string& title, const std::vector<TuneTrial>& trials) {
  constexpr double width = 720;
  constexpr double height = 360;
  constexpr double left = 80;
  constexpr double bottom = 320;
  constexpr double top = 40;
  const Points points(trials);
  const double step = (width - left - 20) / static_cast<double>(std::max<std::size_t>(trials.size(), 2) - 1);
  const auto x = [&](std::size_t number) { return left + step * static_cast<double>(number); };
  const auto y = [&](double time) { return bottom - (bottom - top) * points.height(time); };
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{}" y="20" font-size="14">{}</text>
<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="#888"/>
<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="#888"/>
<text x="{}" y="{}" text-anchor="middle">variants in the order of the trials</text>
)",
      width, height, left, escaped(title), left, bottom, width - 20, bottom, left, top, left, bottom, width / 2,
      height - 10);
  if (points.all.empty()) return svg + "</svg>\n";
  for (const double time : {points.low, std::sqrt(points.low * points.high), points.high})
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g} µs</text>\n", left - 6, y(time) + 4,
                       time);
  std::string line;
  for (const Points::Point& point : points.all)
    line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", x(point.number), y(point.best));
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#0a7d38\" stroke-width=\"2\"/>\n", line);
  for (const Points::Point& point : points.all)
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"#3367d6\" fill-opacity=\"0.6\"/>\n",
                       x(point.number), y(point.time));
  return svg + "</svg>\n";
}

std::string html_of(const std::string& title, const TuneRecord& record, const std::string& svg) {
  std::string table = "<tr><th>time</th>";
  for (const std::string& name : record.parameters) table += fmt::format("<th>{}</th>", escaped(name));
  table += "<th></th></tr>\n";
  for (const TuneTrial& trial : record.trials) {
    table += fmt::format("<tr><td>{}</td>", trial.problem.empty() ? human_duration(trial.time) : "–");
    for (const int value : trial.variant) table += fmt::format("<td>{}</td>", value);
    table += fmt::format("<td>{}</td></tr>\n", escaped(printable(trial.problem)));
  }
  return fmt::format(R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{0}</title>
<style>body{{font-family:sans-serif;max-width:760px;margin:2em auto}}td,th{{text-align:right;padding:2px 10px}}
td:last-child{{text-align:left;color:#a00}}</style></head>
<body>
{1}<table>
{2}</table>
</body></html>
)",
                     escaped(title), svg, table);
}

}  // namespace

std::string plot_of(const std::vector<TuneTrial>& trials, const Terminal& terminal) {
  const Points points(trials);
  if (points.all.empty()) return {};
  const std::size_t room = terminal.columns > 30 ? std::min<std::size_t>(terminal.columns, 100) - 14 : 66;
  const std::size_t columns = std::min(room, trials.size());
  std::vector<std::string> picture(rows, std::string(columns, ' '));
  const auto put = [&](std::size_t number, double time, char mark) {
    const std::size_t column = number * columns / trials.size();
    const auto up = static_cast<std::size_t>(std::lround(points.height(time) * (rows - 1)));
    char& place = picture[rows - 1 - up][column];
    if (place != '*') place = mark;
  };
  for (const Points::Point& point : points.all) put(point.number, point.best, '*');
  for (const Points::Point& point : points.all) put(point.number, point.time, '.');
  std::string text;
  for (std::size_t row = 0; row < rows; ++row) {
    const bool labelled = row == 0 || row == rows - 1;
    const double time = row == 0 ? points.high : points.low;
    text += fmt::format("{:>10} |{}\n", labelled ? fmt::format("{:.4g} us", time) : "", picture[row]);
  }
  return text + fmt::format("{0:>10} +{1}\n{0:>10}  {2} variants tried; * marks the best time\n", "",
                            std::string(columns, '-'), trials.size());
}

void write_tune_report(const std::filesystem::path& file, const Device& device, const TuneRecord& record,
                       const std::vector<TuneTrial>& trials) {
  std::string title = record.kernel;
  for (const TuneSize& size : record.sizes) title += fmt::format(" {}={}", size.name, size.value);
  title += fmt::format(" on {}", device.identity().device);
  const std::string svg = svg_of(title, trials);
  std::ofstream out(file);
  out << (file.extension() == ".svg" ? svg : html_of(title, record, svg));
  out.flush();
  if (!out)
    throw Failure(
        Error(ErrorCode::io, fmt::format("cannot write the report {}: {}", file.string(), std::strerror(errno))));
}

}  // namespace kiln::cli
